"""Decide whether a budget is worth spending: one typed answer per forecast and per Release, put into words when shown.

The level compares the noise on a theme's released sum with the records of a label:

    share  =  noise in texts * CLEAR / records per label

With a small share most topics of a label come through. The more labels there are, the narrower each is and the more of
its texts say the same: the accuracy of classifiers shows that the share may grow with the root of their number. Methods
that release no sums over texts compare noise with signal in other units. This module sets the limits between the
levels; those of topics were chosen by the accuracy of classifiers (docs/decisions/065).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from understudy.privacy.unit import UnitKind

Level = Literal["good", "thin", "noise"]
Basis = Literal["topics", "labels", "tokens", "predictions", "answers", "training"]

CLEAR = 2.0
"""Standard deviations of its noise above which a sum comes through."""
LIMITS: Mapping[Basis, tuple[float, float]] = {
    "topics": (0.016, 0.08),
    "labels": (0.5, 3.0),
    "tokens": (0.1, 0.5),
    "predictions": (1 / 3, 1 / 0.3),
    "answers": (0.04, 0.15),
    "training": (0.25, 1.0),
}
"""Limits of each basis: "good" is up to the first, "noise" from the second on.

topics       share of a label's texts that must say a thing (a term, a vote, a cluster), over the root of the labels
labels       noise on a label's mean embedding over its distance from the others'
tokens       share of the private prompts that must agree on a token
predictions  1 over how many nats the private texts move a token's logit, at most
answers      standard deviation on a teacher-averaged probability
training     noise of all steps over the largest possible signal
"""


def at_least(total: float, std: float) -> float:
    """Return a lower bound on a noisy number of records; 0 for noise alone, however many values are summed.

    >>> at_least(100.0, 10.0), at_least(10.0, 10.0)
    (80.0, 0.0)
    """
    return max(0.0, total - CLEAR * std)


_CURES: Mapping[Basis, str] = {
    "tokens": "A lower --sampling-rate, more --subsets or fewer --tokens would help.",
    "predictions": "Larger batches (--batch-size) or fewer --tokens-per-batch would help.",
    "answers": "Fewer --queries or more --teachers would help.",
    "training": "More records per step (--sampling-rate) or a lower --lora-rank would help.",
}
_NAMES: Mapping[Level, str] = {"good": "Good", "thin": "Weak", "noise": "Noise"}
_MOST_RECORDS, _MOST_TIMES, _HARDLY_MORE = 10**10, 1000, 1.1


@dataclass(frozen=True)
class Verdict:
    """The expected usefulness of a budget.

    Args:
        level: None if it depends on a number of records that nobody declared.
        basis: the signal that is compared with its noise.
        survives: the words that are nearly sure to come through, before and after the charge, if the method knows it.
        records: that would make this budget ``good``; None if it is, or if their number does not matter.
        times: how many times as many records of the same kind would be enough, if the release counts no records.
        if_labels: the assumed number of labels, if it is only known from the data.
        unsaid_in: the language of the terms, if hardly any of them was found in the texts.

    >>> print(Verdict.of("topics", texts=20, records=1_000).sentence())
    Weak: noise nearly drowns the data. About 1,200 records would be enough.
    """

    level: Level | None
    basis: Basis
    survives: Annotated[str, Field(pattern=r"^[a-z0-9, ]{0,150}$")] = ""
    records: Annotated[int, Field(ge=1, le=_MOST_RECORDS)] | None = None
    times: Annotated[float, Field(ge=1, le=_MOST_TIMES)] | None = None
    unsaid_in: Annotated[str, Field(pattern=r"^[a-z-]{0,20}$")] = ""
    if_labels: Annotated[int, Field(ge=1)] | None = None

    @classmethod
    def of(
        cls, basis: Basis, *, texts: float = 0.0, least: float = 0.0, labels: int = 1, records: float | None = None
    ) -> Verdict:
        """Return the verdict by the noise in ``texts`` of a label over the records of a label, or ``least`` if larger.

        Args:
            texts: 0 if the number of records does not matter.
            records: of all labels together; None if unknown.
        """
        good, noise = LIMITS[basis]
        texts *= math.sqrt(labels) if basis == "topics" else labels
        enough = texts / good if least <= good else 0.0
        told = int(float(f"{enough:.2g}")) if 1 <= enough <= _MOST_RECORDS else None
        ratio = max(least, texts / max(records, 1.0) if records is not None else 0.0)
        if texts and records is None and ratio < noise:
            return cls(None, basis, records=told)
        level: Level = "good" if ratio <= good else "thin" if ratio < noise else "noise"
        return cls(level, basis, records=None if level == "good" else told)

    def in_times(self, records: float) -> Verdict:
        """Return the verdict with ``times`` for ``records``, if these are not a count but a weight of other records."""
        times = math.inf if self.records is None or records < 1 else float(f"{self.records / records:.2g}")
        return replace(self, records=None, times=times if 1 <= times <= _MOST_TIMES else None)

    def unsaid(self, language: str, *, expected: Verdict | None) -> Verdict:
        """Return the verdict if hardly any term of ``language`` occurs, so that results are chance; unchanged if noise
        was ``expected`` to drown all."""
        if expected and expected.level == "noise":
            return self
        return replace(self if self.level == "noise" else Verdict("noise", self.basis), unsaid_in=language)

    @property
    def coarse(self) -> Verdict | None:
        """Return the level without numbers that reveal a declared number of records; None if there is no level."""
        return Verdict(self.level, self.basis) if self.level else None

    def sentence(self, *, spent: bool = False, unit: UnitKind = "record") -> str:
        """Return the verdict in words; empty if there is nothing to say.

        Args:
            spent: the verdict is about a Release, not about a plan.
            unit: what is protected: records or owners are counted.
        """
        counted = "owners" if unit == "owner" else "records"
        if self.level is None:
            known = not spent and self.records
            return f"Declare --expected-records for a verdict: {self.records:,} {counted} are enough." if known else ""
        said = [f"{_NAMES[self.level]}: {self._what(spent)}."]
        if self.if_labels:
            said.append(f"This assumes {self.if_labels} labels; more labels need more {counted}. Declare --labels.")
        if self.level != "good" and self.times is not None:
            few = self.times < _HARDLY_MORE
            said.append(f"{'A few more' if few else f'About {self.times:g} times as many'} {counted} would be enough.")
        elif self.level != "good" and self.records:
            said.append(f"About {self.records:,} {counted} would be enough.")
        elif self.level != "good" and self.basis in _CURES:
            said.append(_CURES[self.basis])
        if self.unsaid_in:
            language = "English" if self.unsaid_in == "en" else f"the language {self.unsaid_in!r}"
            said.append(f"Hardly any term of the vocabulary occurs in the texts: are they in {language}?")
        return " ".join(said)

    def _what(self, spent: bool) -> str:
        """Return the expected result of this budget, without a full stop."""
        if self.level == "noise":
            return (
                "the result is mostly chance"
                if spent
                else "the result would be mostly chance; do not spend this budget"
            )
        if self.level == "thin":
            survive = f"only {self.survives} are nearly sure to survive"
            return survive if self.survives else "noise nearly drowns the data"
        if self.basis not in ("topics", "tokens"):
            return "the private texts come through clearly"
        return f"common themes {'come' if spent else 'will come'} through. This says nothing about how the texts read"
