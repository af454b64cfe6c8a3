"""A fourth addition: how long the texts are, released with noise. All that it takes, in one file and one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from understudy.base.parameters import Parameters
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.additions.base import Addition, Releasing
from understudy.methods.base import Released
from understudy.methods.facts import PublicFacts
from understudy.methods.release_schema import Contents, Held
from understudy.privacy.events import GaussianEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum, Sensitivity
from understudy.privacy.plan import AddedCharges, Charge, Plan, plan_beside
from understudy.release import Release

NAME, BINS, SHARE = "lengths", 8, 0.1


class LengthsParameters(Parameters):
    """The lengths of the texts."""

    lengths: bool = False
    """Release how many texts have about each number of words; it takes 10 % of the budget."""


@dataclass(frozen=True)
class LengthCounts(Query[BoundedBatch]):
    """Numbers of records by the binary logarithm of their words: a record adds 1 to one count, L2 is 1."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (BINS,)

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(1)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(BINS, dtype=np.int64)
        for text, share in zip(batch.said, batch.shares, strict=True):
            counts[min(BINS, len(text.split()).bit_length()) - 1] += COUNT_GRID // share
        return counts


@dataclass(frozen=True)
class Lengths(Addition):
    """Noisy counts of lengths beside any method."""

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = LengthsParameters

    @classmethod
    def of(cls, settings: Parameters, _facts: PublicFacts) -> Self | None:
        return cls() if settings.part(LengthsParameters).lengths else None

    def plan(self, _facts: PublicFacts, plan_rest: Callable[[Any], Plan], budget: Any) -> Plan:
        def charged(multipliers: Sequence[float]) -> AddedCharges:
            query = LengthCounts()
            mechanism = NoisySum("gaussian", multipliers[0], query.sensitivity, query.shape)
            noise = Fact("length_noise", mechanism.noise_std, "noise on a count of lengths (records)")
            return AddedCharges((Charge(NAME, mechanism, "noisy counts of lengths"),), Facts((noise,)))

        return plan_beside(plan_rest, budget, charged, shares=(SHARE,), what=NAME)

    def release(self, at: Releasing, _plan: Plan) -> Releasing:
        counts = at.tools.measure(NAME, LengthCounts(), at.corpus).value
        return replace(at, released=at.released | Released({NAME: counts}))

    @property
    def stored(self) -> dict[str, Any]:
        return {NAME: True}

    @classmethod
    def is_in(cls, release: Release) -> bool:
        return bool(release.parameters.get(NAME))

    @classmethod
    def contents(cls, contents: Contents, _release: Release) -> Contents:
        return contents.joined({NAME: GaussianEvent.kind}, {NAME: Held("float64", (BINS,))})
