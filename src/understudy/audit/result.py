"""What an audit of a whole run found: every number beside the promise, and how much the test could have found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.audit.one_run import GuessRule, lower_bound
from understudy.evaluate.metrics.intervals import LEVEL, bootstrap
from understudy.evaluate.metrics.results import read_result, result_json, write_result
from understudy.evaluate.metrics.value import Count, Interval, Number, Share

Verdict = Literal["consistent", "VIOLATION"]
FALSE_POSITIVES = 0.01
_SEED = 0


@dataclass(frozen=True)
class Guesses:
    """One rule's guesses from one attack's scores, and the bound that they give."""

    rule: GuessRule
    correct: Count
    epsilon: Number


@dataclass(frozen=True)
class Attack:
    """One attack on the run.

    Args:
        name: of :data:`understudy.audit.scoring.ATTACKS`.
        auc: chance that a planted canary scores above one that was not planted (a tie counts one half).
        auc_interval: bootstrap over the canaries.
        true_positives: share of the planted canaries above a threshold that at most 1 % of the others are above.
        true_positives_interval: Clopper-Pearson, the threshold taken as given.
        guesses: one a rule.
    """

    name: str
    auc: Number
    auc_interval: Interval
    true_positives: Number
    true_positives_interval: Interval
    guesses: tuple[Guesses, ...]

    @property
    def epsilon(self) -> float:
        return max((each.epsilon for each in self.guesses), default=0.0)


@dataclass(frozen=True)
class RunAudit:
    """The audit of one run.

    Args:
        method: the audited method.
        unit: what it protects, in words; each canary is one such unit.
        epsilon, delta: the promise.
        private: False where noise was off or seeded: then the promise was not made, and is what a run with noise makes.
        canaries: how many there are.
        planted: how many of them the coins put into the data.
        synthetic_texts: that the run made.
        confidence: of ``bound``, over all attacks and rules together.
        attacks: what was tried.
        largest_bound: the bound if all guesses had been right: the power of the test.
        canaries_needed: how many canaries could show a violation of this promise; None if 100,000 could not.
        seconds: how long the run and the attacks took.
        settings: how the audit was made.
    """

    method: str
    unit: str
    epsilon: Number
    delta: Number
    private: bool
    canaries: Count
    planted: Count
    synthetic_texts: Count
    confidence: Share
    attacks: tuple[Attack, ...]
    largest_bound: Number
    canaries_needed: Count | None
    seconds: Number
    settings: Mapping[str, Any]

    @property
    def bound(self) -> float:
        """The run's epsilon is at least this, with the stated confidence."""
        return max((attack.epsilon for attack in self.attacks), default=0.0)

    @property
    def verdict(self) -> Verdict:
        return "VIOLATION" if self.bound > self.epsilon else "consistent"

    def to_json(self) -> dict[str, Any]:
        return {**result_json(self), "bound": self.bound, "verdict": self.verdict}

    def save(self, path: Path) -> None:
        """Write it for its owner's eyes only: it is computed on private data, and no epsilon covers it."""
        write_result(path, self.to_json())

    @property
    def remark(self) -> str:
        """What the verdict means, in a sentence or two."""
        if self.verdict == "VIOLATION":
            return "The run leaks more than is promised."
        if self.largest_bound <= self.epsilon:
            wanted = "" if self.canaries_needed is None else f" ({self.canaries_needed} would do)"
            return f"So few canaries could not have shown a violation{wanted}. A low bound is not a proof."
        return "A low bound is not a proof: another attack may find more."


def load_audit(path: Path) -> RunAudit:
    """Read what :meth:`RunAudit.save` wrote.

    Raises:
        ConfigError: if it cannot be read, or is of another version.
    """
    return read_result(path, RunAudit, made_by="audit run")


def judge(
    name: str,
    scores: NDArray[np.float64],
    planted: NDArray[np.bool_],
    rules: tuple[GuessRule, ...],
    *,
    delta: float,
    confidence: float,
) -> Attack:
    """What one attack's scores show.

    Args:
        scores: ``Float64[m]``.
        planted: ``Bool[m]``.
        confidence: of each bound, corrected for how many are tried.
    """
    guesses = []
    for rule in rules:
        correct = rule.correct(scores, planted)
        bound = lower_bound(correct, rule.guesses, canaries=len(scores), delta=delta, confidence=confidence)
        guesses.append(Guesses(rule, correct, bound))
    rate, interval = true_positive_rate(scores, planted)
    area = bootstrap(
        lambda rows: area_under_curve(scores[rows], planted[rows]), len(scores), seed=_SEED, over="the canaries"
    )
    return Attack(name, area_under_curve(scores, planted), area, rate, interval, tuple(guesses))


def area_under_curve(scores: NDArray[np.float64], planted: NDArray[np.bool_]) -> float:
    """Chance that a planted canary scores above another; 0.5 where there are none of one kind.

    Source: Hanley and McNeil 1982: the Mann-Whitney statistic over the number of pairs.
    """
    from scipy.stats import rankdata

    present, absent = int(planted.sum()), int((~planted).sum())
    if not present or not absent:
        return 0.5
    ranks = float(rankdata(scores)[planted].sum())
    return (ranks - present * (present + 1) / 2) / (present * absent)


def true_positive_rate(scores: NDArray[np.float64], planted: NDArray[np.bool_]) -> tuple[float, Interval]:
    """Share of the planted canaries above the lowest threshold that at most 1 % of the others are above."""
    from scipy.stats import binomtest

    absent = np.sort(scores[~planted])[::-1]
    allowed = int(FALSE_POSITIVES * len(absent))
    threshold = absent[allowed] if len(absent) else -np.inf
    trials, found = int(planted.sum()), int((scores[planted] > threshold).sum())
    if trials == 0:
        return 0.0, Interval(0.0, 1.0, "nothing planted")
    ends = binomtest(found, trials).proportion_ci(LEVEL, method="exact")
    return found / trials, Interval(float(ends.low), float(ends.high), f"Clopper-Pearson, {trials} planted")
