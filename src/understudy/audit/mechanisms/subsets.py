"""An attack on few-shot's tokens, chosen by subsets of a fresh sample: is a record there?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.audit.bounds import Floats
from understudy.audit.mechanisms.logits import SURE, Told
from understudy.audit.mechanisms.promise import EpsilonPromise
from understudy.decoding.sums import softmax_sum, vote_sum
from understudy.methods.few_shot.sampler import deal
from understudy.privacy.accountant import Composition
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import NoiseSource, SystemNoise
from understudy.privacy.subsampled import SubsampledTokens, SubsetNoise, subsampled_multiplier, votes_epsilon

_MOST_SHOWN = 4
_FIRST, _SECOND = (SURE, 0.0), (0.0, SURE)


@dataclass(frozen=True)
class SubsetAttack:
    """Is a record there for the first of two tokens? The score is how often that is chosen.

    A subset says what the first record says that it is dealt, and the second token where it is dealt none. The record
    stands before all others.

    Args:
        mechanism: samples, chooses and counts.
        others: what the other records say.
        promise: of all tokens.
        deal: who goes into which subset.
        source: of coins and noise.
    """

    mechanism: SubsampledTokens
    others: Sequence[tuple[float, float]]
    promise: EpsilonPromise
    deal: Callable[..., list[NDArray[np.int64]]] = deal
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        records = [_FIRST, *self.others] if present else list(self.others)
        counts, sums = np.zeros(runs), cache(self._sums)
        for run in range(runs):
            tokens = self.mechanism.open(self.source).label(0)
            while tokens.left:
                sample = tokens.sample(len(records))
                dealt = self.deal(sample, subsets=self.mechanism.subsets, most=_MOST_SHOWN)
                said = tuple(records[numbers.min()] if len(numbers) else _SECOND for numbers in dealt)
                counts[run] += tokens.choose(sums(said)) == 0
        return counts

    def _sums(self, said: Sequence[tuple[float, float]]) -> NDArray[np.int64]:
        """The real sums."""
        told: Any = Told([_SECOND, *said])
        counted = [0, *[1] * len(said)]
        if self.mechanism.noise == "votes":
            return vote_sum(told, told.candidates, divisors=counted)
        return softmax_sum(told, told.candidates, grid=self.mechanism.grid, divisors=counted)


def few_shot(noise: SubsetNoise, budget: Budget, *, rate: float, tokens: int) -> SubsetAttack:
    """Tokens with the noise that ``budget`` asks for, chosen by two subsets; the other records say the second token."""
    pure = noise == "votes"
    if pure:
        budget = Budget(budget.epsilon, 0)
        strength = votes_epsilon(budget, rate=rate, tokens=tokens)
    else:
        strength = subsampled_multiplier(budget, rate=rate, tokens=tokens)
    mechanism = SubsampledTokens(noise, 2, strength, rate, tokens)
    return SubsetAttack(mechanism, [_SECOND] * 2, EpsilonPromise(Composition((mechanism.event,)), float(budget.delta)))
