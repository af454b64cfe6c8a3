"""Attacks on tokens of private prediction and few-shot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.audit.mechanisms.bounds import Claim, Floats
from understudy.base.lazy import torch
from understudy.methods.few_shot.release import deal
from understudy.methods.shared.decoding.sums import Candidates, Clipping, TokenSums, softmax_sum, vote_sum
from understudy.models.contexts import Rows
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import NoiseSource, SystemNoise
from understudy.privacy.subsampled import SubsampledTokens, SubsetNoise, subsampled_multiplier, votes_epsilon
from understudy.privacy.tokens import PrivateTokens, clip_for

SURE = 99.0
"""A logit beside which others do not count."""
TOKENS = 4
_FIRST, _SECOND = (SURE, 0.0), (0.0, SURE)
"""The logits of a row that says the first, or the second, of two tokens. The first is what the public row says."""
_MOST_SHOWN = 4


class ScriptedLogits:
    """Logits ``Float32[rows, K]``, row 0 public, in place of :class:`~understudy.models.contexts.Contexts`."""

    def __init__(self, rows: ArrayLike) -> None:
        self.logits = torch.tensor(np.asarray(rows, dtype=np.float32))

    @property
    def rows_at_once(self) -> int:
        return len(self.logits)

    def __len__(self) -> int:
        return len(self.logits)

    def blocks(self, candidates: Any | None = None) -> Iterator[Rows]:  # noqa: ARG002 - all tokens are candidates
        yield Rows(0, len(self.logits), self.logits)

    @property
    def candidates(self) -> Candidates:
        return Candidates(None, self.logits[0])


@dataclass(frozen=True)
class TokenAttack:
    """Is there a record for the first half of the vocabulary? The score is how many tokens of it are sampled.

    Args:
        others: logits: row 0 public, then the rows of other records of the batch.
        mine: the unit's rows: one for a record.
        claim: of all tokens.
    """

    mechanism: PrivateTokens
    sums: TokenSums
    others: NDArray[np.float64]
    mine: NDArray[np.float64]
    claim: Claim
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        utilities = self.utilities(present=present)
        half = len(utilities) // 2
        batches = self.mechanism.open(self.source)
        counts = np.zeros(runs)
        for run in range(runs):
            batch = batches.batch()
            while batch.left:
                counts[run] += batch.choose(utilities) < half
        return counts

    def utilities(self, *, present: bool) -> NDArray[np.int64]:
        rows = np.concatenate([self.others, self.mine]) if present else self.others
        divisors = [1] * (len(self.others) - 1) + [len(self.mine)] * len(self.mine) * present
        scripted: Any = ScriptedLogits(rows)
        return self.sums.over(scripted, scripted.candidates, divisors).utilities(self.mechanism.batch_size)


def private_tokens(
    clipping: Clipping, budget: Budget, *, vocabulary: int = 2, rows: int = 1, batch_size: int = 1
) -> TokenAttack:
    """Tokens of a batch, clipped as hard as ``budget`` asks for.

    Without the unit the mean favours the second half of the vocabulary by one clip range (another record does, or what
    is public), with it the first half.

    Args:
        vocabulary: tokens, an even number.
        rows: of the unit: more than one are an owner's.
        batch_size: declared; differences: 1.
    """
    clip = clip_for(budget, TOKENS, batch_size=batch_size, temperature=1.0)
    mechanism = PrivateTokens(clip, batch_size, 1.0, TOKENS)
    first = np.arange(vocabulary) < vocabulary // 2
    favours_second = np.where(first, 0.0, clip)
    others = [np.zeros(vocabulary), favours_second] if clipping == "recenter" else [favours_second]
    return TokenAttack(
        mechanism,
        TokenSums(clipping, clip, mechanism.grid),
        np.array(others),
        np.tile(np.where(first, SURE, 0.0), (rows, 1)),
        Claim((mechanism.event,), float(budget.delta)),
    )


@dataclass(frozen=True)
class SubsetAttack:
    """Is a record there for the first of two tokens? The score is how often that is chosen.

    A subset says what the first record says that it is dealt, and the second token where it is dealt none. The record
    stands before all others.

    Args:
        others: what the other records say.
        claim: of all tokens.
        deal: who goes into which subset.
    """

    mechanism: SubsampledTokens
    others: Sequence[tuple[float, float]]
    claim: Claim
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
        scripted: Any = ScriptedLogits([_SECOND, *said])
        counted = [0, *[1] * len(said)]
        if self.mechanism.noise == "votes":
            return vote_sum(scripted, scripted.candidates, divisors=counted)
        return softmax_sum(scripted, scripted.candidates, grid=self.mechanism.grid, divisors=counted)


def few_shot(noise: SubsetNoise, budget: Budget, *, rate: float, tokens: int) -> SubsetAttack:
    """Tokens with the noise that ``budget`` asks for, chosen by two subsets; the other records say the second token."""
    pure = noise == "votes"
    if pure:
        budget = Budget(budget.epsilon, 0)
        strength = votes_epsilon(budget, rate=rate, tokens=tokens)
    else:
        strength = subsampled_multiplier(budget, rate=rate, tokens=tokens)
    mechanism = SubsampledTokens(noise, 2, strength, rate, tokens)
    return SubsetAttack(mechanism, [_SECOND] * 2, Claim((mechanism.event,), float(budget.delta)))
