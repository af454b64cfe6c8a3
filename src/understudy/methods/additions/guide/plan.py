"""Plan the guide before a private record is read: its sums, its charge, and the budget that it leaves for the
method."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from understudy.base.display import plural
from understudy.base.parameters import Ablation, Free, Parameters
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import LEAST_NOISE, Sensitivity, Shape, SubsampledSum
from understudy.privacy.plan import AddedCharges, Charge, Plan, charges_of, plan_beside
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict

GUIDE = "guide"
"""Name of the charge, and of the array of the Release."""


def embedding_rate(expected_records: int | None, unit: Unit) -> float:
    """Return the rate at which records (owners) are embedded: at most :data:`MOST_EMBEDDED` of those declared.

    A power of two, so that a Release hardly reveals the declared number, in case it was counted.
    """
    if expected_records is None:
        return 1.0
    halvings = math.ceil(math.log2(max(1.0, expected_records * unit.max_records / MOST_EMBEDDED)))
    return 2.0 ** -min(halvings, _MOST_HALVINGS)


def sample_words(rate: float, expected_records: int, unit: Unit) -> str:
    """Describe a sample's size, and how long the built-in embedder takes."""
    texts = float(f"{expected_records * unit.max_records * rate:.2g}")
    most = "about" if unit.kind == "record" else "at most about"
    minutes = math.ceil(texts / _PER_MINUTE)
    return f"{most} {texts:,.0f} texts: {plural(minutes, 'minute')} on one core"


def guide_charge(multiplier: float, labels: int, *, expected_records: int | None, unit: Unit) -> Charge:
    """Return the charge of a guide: a noisy sum per label with this noise multiplier, over a sample if many records are
    expected."""
    rate, query = embedding_rate(expected_records, unit), EmbeddingSumsSpec(labels)
    why = f"noisy sums of the texts' embeddings for each of {plural(labels, 'label')}"
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
    """Plan the guide and the method; return one plan with the method's charges first, then the guide's.

    The guide gets ``share`` of mu^2, as :func:`~understudy.privacy.plan.plan_beside` splits it. If it samples, its
    noise is the same as for all records, and the method gets the budget that sampling saves.
    """

    def plan_guide(multipliers: Sequence[float]) -> AddedCharges:
        charge = guide_charge(multipliers[0], labels, expected_records=expected_records, unit=unit)
        return AddedCharges((charge,), forecast(charge, labels=labels, expected_records=expected_records))

    return plan_beside(plan_method, budget, plan_guide, shares=(share,), what="guide")


def forecast(charge: Charge, *, labels: int, expected_records: int | None) -> Facts:
    """Return the noise and the signal-to-noise ratio of the guide's sums."""
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
    """Return the verdict on a guide that is the only release."""
    multiplier, rate = charge.mechanism.noise_multiplier, charge.mechanism.rate  # type: ignore[attr-defined]
    return Verdict.of("labels", texts=1 / _signal_to_noise(multiplier, rate), labels=labels, records=records)


def why_no_guide(budget: Budget, *, labels: int, expected_records: int | None, unit: Unit) -> str:
    """Return why a guide is not worth its share of the budget; empty if it is.

    Without a declared number of records, :data:`TYPICAL_RECORDS` are assumed.
    """
    records = TYPICAL_RECORDS if expected_records is None else expected_records
    multiplier, rate = gaussian_split(budget, (GUIDE_SHARE, 1 - GUIDE_SHARE))[0], embedding_rate(expected_records, unit)
    if _signal_to_noise(multiplier, rate * records / labels) < _LEAST:
        sampled = f", of which {rate:.2%} are embedded" if rate < 1 else ""
        return f"it would be mostly noise for {plural(labels, 'label')} of {records} records{sampled}"
    return ""


NO_EMBEDDER = "the embedder is not on this machine (pip install 'understudy[local]'; understudy models pull builtin)"
TYPICAL_RECORDS, MOST_EMBEDDED = 5_000, 50_000
"""Records assumed if none are declared; and the most records that are embedded of a larger table."""
_PER_MINUTE = 5_000
"""Texts per minute that the built-in embedder reads on one core."""
_MOST_HALVINGS = 13
"""Most halvings of the rate: below one in 8,192, its epsilon would say nothing about those in the sample."""

_DISTANCE, _DIMENSION = 0.35, 384
"""Distance of a label's mean from the mean of all, and dimension of the vectors: about the built-in embedder's."""
_LEAST = 0.35
"""Signal to noise from which a guide helped, on five tables of three sizes at four epsilons (docs/decisions/042)."""
_MOSTLY_NOISE = (
    "The guide would be mostly noise, so its budget would be wasted: leave it out, or use more records, fewer labels "
    "or a larger epsilon."
)


def _signal_to_noise(multiplier: float, records: float) -> float:
    """Return the signal to noise of a label's distance from the others, given its number of records."""
    return records * _DISTANCE * VECTOR_WEIGHT / (multiplier * math.sqrt(_DIMENSION))


GRID = 1 << 20
"""Integer steps of 1.0 in a coordinate."""

COUNT_WEIGHT = 0.3
"""Weight of the coordinate that counts records: a label's value divided by it is its number of records."""

VECTOR_WEIGHT = math.sqrt(1 - COUNT_WEIGHT**2)
"""Weight of the embedding: a label's sum divided by it is the sum of its records' unit vectors."""


@dataclass(frozen=True)
class EmbeddingSumsSpec:
    """Sums of the embeddings of each label's or topic's records. A record (or owner) adds one vector of a count and an
    embedding, of L2 norm at most 1. For Gaussian noise only."""

    rows: int

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(None, GRID, GRID)

    @property
    def shape(self) -> Shape:
        return (self.rows, None)


GUIDE_SHARE = 0.3
"""Share of the budget (of mu^2) that the guide gets."""


class GuideParameters(Parameters):
    """The guide: noisy sums of the private texts' embeddings, by which texts are chosen."""

    guide: bool | None = None
    """Also release a guide; it takes 30 % of the budget (of mu^2), and the embedder reads the private texts. Default:
    decided from public facts, which ``plan`` and the run say in one line."""


class ChoosingParameters(Parameters):
    """How ``generate`` uses a Release's guide."""

    guide_candidates: Ablation[Free[int | None]] = Field(None, ge=0, le=1000)
    """Texts made for each one that is kept; the guide chooses among them. 0: ignore the guide. Default: 3, but 1 for
    dp-kps, whose phrases it chooses before a text is written."""


def candidates_of(wanted: ChoosingParameters, *, guided: bool) -> int:
    """Return how many texts are made for each one that is kept; ``guided``: phrases are chosen before."""
    if wanted.guide_candidates is not None:
        return wanted.guide_candidates or 1
    return 1 if guided else _TEXTS


_TEXTS = 3
"""Number of texts made for each one that a guide keeps."""
