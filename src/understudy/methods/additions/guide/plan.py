"""The guide, before a private record is read: its form, its charge, and what is left of the budget for the method."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from understudy.base.parameters import Ablation, Free, Parameters
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import LEAST_NOISE, Sensitivity, Shape, SubsampledSum
from understudy.privacy.plan import AddedCharges, Charge, Plan, charges_of, plan_beside
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict

GUIDE = "guide"
"""The charge, and the array of the Release."""


def embedding_rate(expected_records: int | None, unit: Unit) -> float:
    """With which each record, or owner, is embedded: at most :data:`MOST_EMBEDDED` records of those declared, or all.

    A power of two, so that a Release hardly tells the number that was declared, should it have been counted.
    """
    if expected_records is None:
        return 1.0
    halvings = math.ceil(math.log2(max(1.0, expected_records * unit.max_records / MOST_EMBEDDED)))
    return 2.0 ** -min(halvings, _MOST_HALVINGS)


def sample_words(rate: float, expected_records: int, unit: Unit) -> str:
    """How large a sample is, and how long the built-in embedder takes."""
    texts = float(f"{expected_records * unit.max_records * rate:.2g}")
    most = "about" if unit.kind == "record" else "at most about"
    minutes = math.ceil(texts / _PER_MINUTE)
    return f"{most} {texts:,.0f} texts: {minutes} minute{'s' * (minutes > 1)} on one core"


def guide_charge(multiplier: float, labels: int, *, expected_records: int | None, unit: Unit) -> Charge:
    """One noisy sum per label, jointly over labels, with this noise multiplier; of a sample where many are expected."""
    rate, query = embedding_rate(expected_records, unit), EmbeddingSumsSpec(labels)
    why = f"noisy sums of the texts' embeddings for each of {labels} label(s)"
    if rate == 1:
        return charges_of({GUIDE: (query, why)}, (multiplier,))[0]
    mechanism = SubsampledSum(max(multiplier, LEAST_NOISE), rate, query.sensitivity, query.shape)
    return Charge(GUIDE, mechanism, f"{why}, over a Poisson sample of the {unit.kind}s", query)


def plan_with_guide(
    plan_method: Callable[[Budget], Plan],
    budget: Budget | SecretBudget,
    *,
    share: float,
    labels: int,
    expected_records: int | None,
    unit: Unit,
) -> Plan:
    """The method's plan for what the guide leaves of ``budget``, and the guide's charge behind its own.

    The guide gets ``share`` of mu^2, as :func:`~understudy.privacy.plan.plan_beside` splits it. Where it samples, its
    noise stays what it would be of all records, and the method gets what sampling saves.
    """

    def plan_guide(multipliers: Sequence[float]) -> AddedCharges:
        charge = guide_charge(multipliers[0], labels, expected_records=expected_records, unit=unit)
        return AddedCharges((charge,), forecast(charge, labels=labels, expected_records=expected_records))

    return plan_beside(plan_method, budget, plan_guide, shares=(share,), what="guide")


def forecast(charge: Charge, *, labels: int, expected_records: int | None) -> Facts:
    """How far the sums stand above their noise."""
    multiplier, rate = charge.mechanism.noise_multiplier, charge.mechanism.rate  # type: ignore[attr-defined]
    entries = [Fact("guide_noise", multiplier / VECTOR_WEIGHT, "guide noise on a coordinate of a label's sum (texts)")]
    if expected_records is None:
        return Facts(tuple(entries))
    if rate < 1:
        entries.append(Fact("guide_rate", rate, "rate of the guide's sample"))
    ratio = _signal_to_noise(multiplier, rate * expected_records / labels)
    entries.append(Fact("guide_signal_to_noise", ratio, "guide signal to noise of a label of average size (about)"))
    return Facts(tuple(entries), (_MOSTLY_NOISE,) if ratio < _LEAST else ())


def verdict(charge: Charge, *, labels: int, records: int | None) -> Verdict:
    """Of a guide that is all there is."""
    multiplier, rate = charge.mechanism.noise_multiplier, charge.mechanism.rate  # type: ignore[attr-defined]
    return Verdict.of("labels", texts=1 / _signal_to_noise(multiplier, rate), labels=labels, records=records)


def why_no_guide(budget: Budget, *, labels: int, expected_records: int | None, unit: Unit) -> str:
    """Why a guide is not worth its share of the budget; empty: it is.

    Without a declared number of records it is decided for :data:`TYPICAL_RECORDS`.
    """
    records = TYPICAL_RECORDS if expected_records is None else expected_records
    multiplier, rate = gaussian_split(budget, (GUIDE_SHARE, 1 - GUIDE_SHARE))[0], embedding_rate(expected_records, unit)
    if _signal_to_noise(multiplier, rate * records / labels) < _LEAST:
        sampled = f", of which {rate:.2%} are embedded" if rate < 1 else ""
        return f"it would be mostly noise for {labels} labels of {records} records{sampled}"
    return ""


NO_EMBEDDER = "the embedder is not on this machine (pip install 'understudy[local]'; understudy models pull builtin)"
TYPICAL_RECORDS, MOST_EMBEDDED = 5_000, 50_000
"""Records of a table that declares none; and those that are embedded of a larger one, at most."""
_PER_MINUTE = 5_000
"""Texts that the built-in embedder reads on one core."""
_MOST_HALVINGS = 13
"""Of the rate: with fewer in the sample than one in 8,192, its epsilon would say nothing of those who are in it."""

_DISTANCE, _DIMENSION = 0.35, 384
"""Of a label's mean from the mean of all, and of the vectors: about those of the built-in embedder."""
_LEAST = 0.35
"""From which on a guide gained, on five tables of three sizes at four epsilons (docs/decisions/042)."""
_MOSTLY_NOISE = (
    "The guide would be mostly noise, and only cost: leave it out, or give it more records, fewer labels or a "
    "larger epsilon."
)


def _signal_to_noise(multiplier: float, records: float) -> float:
    """Of the distance of a label of so many records from the others."""
    return records * _DISTANCE * VECTOR_WEIGHT / (multiplier * math.sqrt(_DIMENSION))


GRID = 1 << 20
"""Integer steps of 1.0 in a coordinate."""

COUNT_WEIGHT = 0.3
"""Of the coordinate that counts records: a label's divided by this is how many records it has."""

VECTOR_WEIGHT = math.sqrt(1 - COUNT_WEIGHT**2)
"""Of the embedding: a label's sum divided by this is the sum of its records' unit vectors."""


@dataclass(frozen=True)
class EmbeddingSumsSpec:
    """Sums of the embeddings of each label's or topic's records: one record, or owner, adds a vector of count and
    embedding, of L2 norm at most 1. For Gaussian noise only."""

    rows: int

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(None, GRID, GRID)

    @property
    def shape(self) -> Shape:
        return (self.rows, None)


GUIDE_SHARE = 0.3
"""Of the budget (of mu^2): what the guide gets."""


class GuideParameters(Parameters):
    """The guide: noisy sums of the private texts' embeddings, by which texts are chosen."""

    guide: bool | None = None
    """Release a guide beside what the method releases; it takes 30 % of the budget (of mu^2), and the embedder reads
    the private texts. Default: decided from public facts, which ``plan`` and the run say in one line."""


class ChoosingParameters(Parameters):
    """What generating does with a Release's guide."""

    guide_candidates: Ablation[Free[int | None]] = Field(None, ge=0, le=1000)
    """Texts made for each one that is kept; the guide chooses among them. 0: as if there were no guide. Default: 3, and
    1 of dp-kps, whose phrases it chooses before a text is written."""


def candidates_of(wanted: ChoosingParameters, *, guided: bool) -> int:
    """Return how many texts are made for each one that is kept; ``guided``: phrases are chosen before."""
    if wanted.guide_candidates is not None:
        return wanted.guide_candidates or 1
    return 1 if guided else _TEXTS


_TEXTS = 3
"""Made for each one that a guide keeps."""
