"""An attack on DP-SGD: a canary whose gradient is clipped to the whole clipping norm, through the real steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.audit.mechanisms.bounds import Floats
from understudy.audit.mechanisms.claims import EpsilonClaim
from understudy.methods.shared.queries.gradients import ClippedGradients, SampledRows
from understudy.models.training import Block, Shapes, TokenRow
from understudy.privacy.accountant import Composition
from understudy.privacy.gradients import DPSGD, Steps, noise_within
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Query, exact_sum
from understudy.privacy.mechanisms import Sensitivity
from understudy.privacy.noise import NoiseSource, SystemNoise

CANARY, OPPOSITE, OTHER = 1, 2, 3
"""Tokens, by which a record says what its gradient is."""
_HUGE = 1e6
_TABLE = ((0, 0, 0, 0), (_HUGE, 0, _HUGE, 0), (-_HUGE / 10, 0, -_HUGE / 10, 0), (0, _HUGE, 0, 0.5))
_SHAPES = Shapes(prompt=1, target=1, rows=2)
_CLIPPING_NORM = 0.7


class LinearModel:
    """A model whose loss for token t is weights . table[t], in place of :class:`~understudy.models.training.LoRA`.

    Args:
        table: ``Float[tokens, P]``, the gradient of each token's loss.
    """

    def __init__(self, table: ArrayLike) -> None:
        import torch

        self.table = torch.tensor(np.asarray(table, dtype=np.float32))
        self.causal = SimpleNamespace(device="cpu")

    @property
    def size(self) -> int:
        return int(self.table.shape[1])

    def gradients(self, block: Block) -> Any:
        """Of each row's mean loss, ``Float32[R, P]``."""
        each = self.table[block.tokens.gather(1, block.places)] * block.wanted[:, :, None]
        return each.sum(1) / block.counts.clamp(min=1)[:, None]


class _Remembered(Query[Sequence[TokenRow]]):
    """A query that sums each sample once: the same few come again and again."""

    def __init__(self, query: Query[Sequence[TokenRow]]) -> None:
        self._query = query
        self._sums: dict[tuple[int, ...], NDArray[np.int64]] = {}

    @property
    def sensitivity(self) -> Sensitivity:
        return self._query.sensitivity

    @property
    def shape(self) -> tuple[int, ...]:
        return self._query.shape

    def of_batch(self, batch: Sequence[TokenRow]) -> NDArray[np.int64]:
        tokens = tuple(int(row.target[0]) for row in batch)
        if tokens not in self._sums:
            self._sums[tokens] = self._query.of_batch(batch)
        return self._sums[tokens]


@dataclass(frozen=True)
class GradientAttack:
    """Is the canary among the units whose clipped gradients were summed, each step over a sample of its own?

    The score is the log-likelihood ratio along the direction in which the canary moves a sum, summed over steps. Where
    units are sampled, the others must not lie in that direction, lest their own coins blur it.

    Args:
        mechanism: samples, adds the noise, and is charged.
        query: what is summed.
        others: the records of each other unit, by their tokens.
        canary: its records, by their tokens: of an owner one is taken at random.
        claim: of all steps.
        source: of coins and noise.
    """

    mechanism: DPSGD
    query: Query[Sequence[TokenRow]]
    others: Sequence[Sequence[int]]
    canary: Sequence[int]
    claim: EpsilonClaim
    source: NoiseSource = field(default_factory=SystemNoise)

    def scores(self, runs: int, *, present: bool) -> Floats:
        grid, scale = self.mechanism.grid, self.mechanism.noise_multiplier * self.mechanism.grid
        firsts = [unit[0] for unit in self.others]
        without = self._exact(firsts)
        moved = (self._exact([*firsts, self.canary[0]]) - without) / scale
        length = float(np.linalg.norm(moved))
        units = [*self.others, self.canary] if present else self.others
        query = _Remembered(self.query)
        answers = np.array([self._answers(query, units) for _ in range(runs)])
        centred = (answers * grid - self.mechanism.rate * without) / scale
        return np.asarray(self._ratio(centred @ moved / length, length).sum(axis=1))

    def _exact(self, tokens: Sequence[int]) -> Floats:
        return exact_sum(self.query, _sampled(tokens)).astype(np.float64)

    def _answers(self, query: Query[Sequence[TokenRow]], units: Sequence[Sequence[int]]) -> list[Floats]:
        """One run: the noisy sum of every step."""
        steps = self.mechanism.open(self.source).between(0, self.mechanism.steps)
        return [steps.noisy_sum(query, _sampled(_shown(steps, units))) for _ in range(steps.left)]

    def _ratio(self, along: Floats, length: float) -> Floats:
        rate = self.mechanism.rate
        with_it = math.log(rate) + length * along - length**2 / 2
        return np.logaddexp(math.log1p(-rate), with_it) if rate < 1 else with_it


def _shown(steps: Steps, units: Sequence[Sequence[int]]) -> list[int]:
    """One record of each sampled unit."""
    sampled = [unit for unit, included in zip(units, steps.sample(len(units)), strict=True) if included]
    places = steps.one_of(np.array([len(unit) for unit in sampled], dtype=np.int64))
    return [unit[place] for unit, place in zip(sampled, places, strict=True)]


def _sampled(tokens: Sequence[int]) -> SampledRows:
    return SampledRows([TokenRow([0], np.array([token], dtype=np.int32)) for token in tokens])


def dp_sgd(budget: Budget, *, rate: float, steps: int, records: int = 1) -> GradientAttack:
    """Steps with the noise that ``budget`` asks for.

    Args:
        rate: of the Poisson sample.
        steps: all of which are released.
        records: of the canary: more than one are an owner's, alike in their clipped gradients.
    """
    schedule = noise_within(budget, rate=rate, steps=steps)
    mechanism = DPSGD(schedule.noise_multiplier, rate, steps, _CLIPPING_NORM)
    linear: Any = LinearModel(_TABLE)
    return GradientAttack(
        mechanism,
        ClippedGradients(linear, _SHAPES, mechanism),
        [[OTHER]] * 2,
        [CANARY] * records,
        EpsilonClaim(Composition((mechanism.event,)), float(budget.delta)),
    )
