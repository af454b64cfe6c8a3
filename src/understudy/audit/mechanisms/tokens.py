"""Attacks on private prediction: on the tokens of a batch, and on the test for public ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.audit.bounds import Floats
from understudy.audit.mechanisms.logits import SURE, Told
from understudy.audit.mechanisms.promise import EpsilonPromise
from understudy.decoding.sums import Clipping, TokenSums
from understudy.privacy.accountant import Composition
from understudy.privacy.events import PureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import NoiseSource, SystemNoise
from understudy.privacy.sparse_vector import Run, SparseVector
from understudy.privacy.token_budget import clip_for
from understudy.privacy.tokens import PrivateTokens

TOKENS = 4


@dataclass(frozen=True)
class TokenAttack:
    """Is there a record for the first half of the vocabulary? The score is how many tokens of it are drawn.

    Args:
        mechanism: that is charged, and draws.
        sums: over the private rows.
        others: logits, row 0 public; the rows of other records of the batch.
        mine: the unit's rows: one for a record.
        promise: of all tokens.
        source: of the draw.
    """

    mechanism: PrivateTokens
    sums: TokenSums
    others: NDArray[np.float64]
    mine: NDArray[np.float64]
    promise: EpsilonPromise
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
        """The real sums of the rows; every token has the same."""
        rows = np.concatenate([self.others, self.mine]) if present else self.others
        divisors = [1] * (len(self.others) - 1) + [len(self.mine)] * len(self.mine) * present
        told: Any = Told(rows)
        return self.sums.over(told, told.candidates, divisors).utilities(self.mechanism.batch_size)


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
        EpsilonPromise(Composition((mechanism.event,)), float(budget.delta)),
    )


@dataclass(frozen=True)
class TestAttack:
    """Was a run of the test late, with many tokens found public before a private one?

    The unit makes every distance but the last one smaller, and that one larger (Lyu, Su and Li 2017).

    Args:
        vector: the test.
        batch_size: that distances are of.
        early, late: other records of the batch, at every question but the last and at the last.
        questions: before the last.
        promise: of one run.
        run: what is asked.
        source: of noise.
    """

    vector: SparseVector
    batch_size: int
    early: int
    late: int
    questions: int
    promise: EpsilonPromise
    run: type[Run] = Run
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        early = self.distance([_OTHER] * self.early + [_PUBLIC] * present)
        late = self.distance([_OTHER] * self.late + [_OTHER] * present)
        return np.array([self._is_late(early, late) for _ in range(runs)], dtype=np.float64)

    def _is_late(self, early: int, late: int) -> bool:
        run = self.run(self.vector, self.source)
        return not any(run.is_above(early) for _ in range(self.questions)) and run.is_above(late)

    def distance(self, rows: Sequence[Sequence[float]]) -> int:
        """The real distance of the rows from the public distribution."""
        told: Any = Told([_PUBLIC, *rows])
        sums = TokenSums("recenter", 1.0, distance_grid=PrivateTokens.distance_grid)
        return sums.over(told, told.candidates).distance(self.batch_size)


_PUBLIC, _OTHER = (SURE, 0.0), (0.0, SURE)
"""What the model says without private text, and the one thing that it says otherwise."""


def token_test(budget: Budget) -> TestAttack:
    """One run of the test with the noise that a pure epsilon asks for; distances half a scale from the threshold."""
    step, epsilon = PrivateTokens.distance_grid, float(budget.epsilon)
    apart = max(1, round(4 / epsilon))  # rows, each of one step: twice the scale
    vector = SparseVector(round((4 + 1 + apart / 2) * step), step, 2 * step / epsilon)
    promise = EpsilonPromise(Composition((PureEvent(vector.epsilon),)), 0.0)
    return TestAttack(vector, batch_size=4, early=1 + apart, late=1, questions=8, promise=promise)
