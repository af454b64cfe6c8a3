"""DP-KPS as published, before a private record is read: the noisy sums to release, and how good they will be.

1. vocabulary    noisy counts of all public terms; the N largest form the privatised vocabulary V~
2. density-1     per label, a noisy kernel density over single terms of V~
   density-2, density-4, ... density-L   (iterative) per label, one over sequences of that many terms
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from understudy.base.display import plural
from understudy.base.errors import ConfigError
from understudy.base.parameters import Ablation
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.specs import TermCountsSpec
from understudy.methods.shared.vocabulary import TermListParameters, WordsParameters, public_vocabulary
from understudy.models.machine import require_memory
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import COUNT_GRID, QuerySpec, Sensitivity, Shape, require_releasable
from understudy.privacy.noise import NoiseKind
from understudy.privacy.plan import Charge, Plan, charges_of, noise_multipliers
from understudy.privacy.verdict import CLEAR, Verdict
from understudy.text.vocabulary.shrinkage import noise_floor, require_enough_terms


class SequenceParameters(WordsParameters):
    """How sequences of terms are sampled from a Release: post-processing, free; may change at every ``generate``."""

    length: int = Field(10, ge=1, le=100)
    """Terms of a sequence (L). In the iterative mode no sequence is longer than what was released."""
    contrast: Ablation[float] = Field(0.0, ge=0, le=100)
    """How strongly terms that other labels share are avoided (gamma). 0: not at all, as published."""
    temperature: Ablation[float] = Field(1.0, ge=0.01, le=100)
    """Below 1, terms of high density are preferred even more. 1: in proportion to their density, as published."""


class ReleaseParameters(TermListParameters):
    """What is released, and how the budget is divided."""

    noise: Ablation[NoiseKind] = "gaussian"
    """``gaussian``: (epsilon, delta)-DP. ``laplace``: pure DP, as published; the default where delta is 0."""
    mode: Literal["independent", "iterative"] = "independent"
    """``independent``: the terms of a sequence are sampled from one density of terms. ``iterative``: each is sampled
    given those before it, from densities of sequences."""
    ensemble: Ablation[Literal["logarithmic", "linear"]] = "logarithmic"
    """Iterative mode: densities of sequences of 1, 2, 4, ... and L terms, or of each number of terms up to L."""
    vocabulary_epsilon: float | None = Field(None, gt=0, le=1e5)
    """Part of epsilon for the vocabulary (epsilon_voc); the densities get the rest (epsilon_kde). Default: a sixth."""
    top_terms: int = Field(1000, ge=1)
    """Size of the privatised vocabulary (N)."""
    terms_per_record: Ablation[int] = Field(10, ge=1, le=100)
    """Contribution bound: the first distinct terms of a record that count (S)."""
    bandwidth: Ablation[float] = Field(0.25, ge=0.01, le=100)
    """Bandwidth of the kernel on unit vectors (h)."""
    features: Ablation[int] = Field(2000, ge=1, le=100_000)
    """Random frequencies of a density (I). Default where delta is 0: 300, since Laplace noise grows with sqrt(I)."""


class DPKDEParameters(ReleaseParameters, SequenceParameters):
    """All parameters of DP-KPS as published."""


NAME = "dp-kde"
VOCABULARY = "vocabulary"
_VOCABULARY_SHARE = 1 / 6
GRID = 1 << 10
"""Integer steps of 1.0 in a random feature."""
_BYTES_PER_PHASE, _BYTES_PER_FEATURE = 2 + 8, 2 * 8


def densities(parameters: DPKDEParameters) -> dict[int, str]:
    """Return the sequence length of each density, with the name of its charge."""
    length = parameters.length
    if parameters.mode == "independent":
        sizes = [1]
    elif parameters.ensemble == "linear":
        sizes = list(range(1, length + 1))
    else:
        sizes = [*(1 << power for power in range((length - 1).bit_length())), length]
    return {size: f"density-{size}" for size in sizes}


@dataclass(frozen=True)
class DensitySpec:
    """For each label, a sum of vectors of cos and sin of I = ``features`` random features. A record's vector has L2
    norm at most sqrt(I) and L1 norm at most sqrt(2) I."""

    labels: int
    features: int

    @property
    def sensitivity(self) -> Sensitivity:
        grid = COUNT_GRID * GRID
        return Sensitivity(grid * math.sqrt(2) * self.features, grid * math.sqrt(self.features), grid)

    @property
    def shape(self) -> Shape:
        return (self.labels, 2 * self.features)


def multipliers(parameters: DPKDEParameters, budget: Budget) -> Sequence[float]:
    """Return the noise multipliers of the vocabulary and of each density, which together spend ``budget``.

    Pure epsilons add up. A Gaussian budget (mu^2) is divided in proportion to the squares of the parts' epsilons, which
    gives each about the noise that its epsilon alone would. Raises ConfigError if the vocabulary's epsilon leaves
    nothing for the densities.
    """
    whole, sketches = float(budget.epsilon), len(densities(parameters))
    first = parameters.vocabulary_epsilon or whole * _VOCABULARY_SHARE
    if first >= whole:
        raise ConfigError(
            f"The vocabulary's part of epsilon ({first:g}) leaves nothing of {whole:g} for the densities.",
            "Lower vocabulary_epsilon, or raise epsilon.",
        )
    power = 1 if parameters.noise == "laplace" else 2
    shares = [first**power, *[(whole - first) ** power / sketches] * sketches]
    return noise_multipliers(budget, shares, parameters.noise)


def make_plan(parameters: DPKDEParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """Return the plan of a release."""
    size, labels, most = len(public_vocabulary(parameters).terms), facts.labels.size, parameters.top_terms
    require_enough_terms(most, size)
    if parameters.length > most:
        raise ConfigError(
            f"Sequences of {parameters.length} distinct terms need a vocabulary of at least {parameters.length} terms.",
            "Lower length or raise top_terms.",
        )
    if parameters.mode == "iterative" and parameters.length > parameters.terms_per_record:
        raise ConfigError(
            f"Sequences of {parameters.length} terms are impossible, since only {parameters.terms_per_record} terms a "
            "record are used.",
            "Lower length or raise terms_per_record.",
        )
    if parameters.noise == "laplace":
        budget = Budget(budget.epsilon, 0)  # pure: no delta is charged
    density = DensitySpec(labels, parameters.features)
    require_releasable(density.shape, cure="Lower features, or declare fewer labels.")
    counts = TermCountsSpec(size, parameters.terms_per_record)
    sums: dict[str, tuple[QuerySpec, str]] = {
        VOCABULARY: (counts, f"noisy counts of {size} public terms, of which the top {most} stay")
    }
    for terms, name in densities(parameters).items():
        what = "single terms" if terms == 1 else f"sequences of {terms} terms"
        sums[name] = density, f"noisy kernel density of {what} for each of {plural(labels, 'label')}"
    charges = charges_of(sums, multipliers(parameters, budget), noise=parameters.noise)
    return Plan(NAME, facts.unit, budget, charges, _forecast(parameters, charges, size, facts))


def _forecast(parameters: DPKDEParameters, charges: Sequence[Charge], terms: int, facts: PublicFacts) -> Facts:
    counts, density, *_ = (each.mechanism for each in charges)
    units, noise = f"{facts.unit.kind}s", score_noise(parameters, density.noise_multiplier)  # type: ignore[attr-defined]
    std: float = counts.noise_std  # type: ignore[attr-defined]
    floor = noise_floor(std, terms)
    entries = (
        Fact("vocabulary_count_noise", std, f"vocabulary count noise (standard deviation, {units})"),
        Fact("vocabulary_noise_floor", floor, f"count that a term needs to count as real ({units})"),
        Fact("density_score_noise", noise, f"noise on a density (standard deviation, {units})"),
    )
    texts = CLEAR * noise * parameters.terms_per_record  # a term has 1/S of a record's weight of 1
    found = Verdict.of("topics", texts=texts, labels=facts.labels.size, records=facts.expected_records)
    return Facts(entries, verdict=found)


def score_noise(parameters: ReleaseParameters, multiplier: float) -> float:
    """Return the standard deviation of the noise on one density, in records. Gaussian noise does not depend on I."""
    return multiplier * (1.0 if parameters.noise == "gaussian" else 2 * math.sqrt(parameters.features))


def require_room(parameters: DPKDEParameters, *, terms: int, dimension: int, cure: str) -> None:
    """Raise ConfigError if embeddings and random features of the vocabulary do not fit into memory."""
    require_releasable((terms, dimension), cure=cure)
    per_term = max(densities(parameters)) * _BYTES_PER_PHASE + _BYTES_PER_FEATURE
    needed = parameters.features * (terms * per_term + dimension * 12)
    require_memory(needed, what="The random features of the vocabulary", cure=cure)
