"""Clipped per-example gradients as integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import torch
from understudy.models.machine import worker_pool
from understudy.models.training import Block, Shapes, TokenRow, Trainable, row_norms
from understudy.privacy.gradients import DPSGD
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import Sensitivity

_SHORT = 1 - 2**-20
"""Larger than the lengthening of a vector by all rounding in float32."""


@dataclass(frozen=True, repr=False)
class SampledRows:
    """The rows of one Poisson sample, as batches. Private."""

    rows: Sequence[TokenRow]

    def batches(self) -> Iterator[Sequence[TokenRow]]:
        """Yield all rows in one batch; nothing for an empty sample, for which nothing is computed."""
        if self.rows:
            yield self.rows


@dataclass(frozen=True, repr=False)
class ClippedGradients(Query[Sequence[TokenRow]]):
    """The sum over rows of the clipped gradient of each row's mean loss.

    Guarantee:
        Unit: a row: a record, or the one record of an owner that is used in a step.
        Sensitivity: L2 norm ``grid`` in integers. A gradient g becomes trunc(g * grid / max(C, |g|)), shortened by
        2^-20 before, which is more than float32 rounds; |g| is computed in float64. One that is not finite counts as 0.
        A row's integers are a function of the row alone (fixed shapes, tried on the device), and are added as
        integers: neither the order nor the blocks show in the sum.
    """

    trainable: Trainable
    shapes: Shapes
    mechanism: DPSGD

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.trainable.size,)

    @property
    def sensitivity(self) -> Sensitivity:
        return self.mechanism.sensitivity

    def of_batch(self, batch: Sequence[TokenRow]) -> NDArray[np.int64]:
        return np.asarray(sum(self.of_blocks(batch, self._of_block), np.zeros(self.shape, dtype=np.int64)))

    def of_blocks(self, rows: Sequence[TokenRow], part: Callable[[Block, int], NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """Yield ``part`` of every block and its number of real rows, computed by several workers."""
        device = self.trainable.causal.device
        with worker_pool(device) as pool:
            yield from pool.map(lambda each: part(*each), self.shapes.blocks(rows, device=device))

    def _of_block(self, block: Block, real: int) -> NDArray[np.int64]:
        gradients = self.trainable.gradients(block)
        return clipped_sum(gradients, real, clipping_norm=self.mechanism.clipping_norm, grid=self.mechanism.grid)


def clipped_sum(gradients: Any, real: int, *, clipping_norm: float, grid: int) -> NDArray[np.int64]:
    """Return ``Int64[P]``: the sum of the first ``real`` rows, each clipped to ``clipping_norm`` = ``grid`` integers.

    Args:
        gradients: ``Float32[R, P]``. Norms of all R rows are computed: how one is added up may depend on their number.
    """
    norms = row_norms(gradients)
    factors = torch.where(norms.isfinite(), _SHORT * grid / norms.clamp(min=clipping_norm), 0.0).float()
    total = torch.zeros(gradients.shape[1], dtype=torch.int64, device=gradients.device)
    for gradient, factor in zip(gradients[:real], factors, strict=False):  # one at a time: they may be large
        total += (gradient.nan_to_num(0.0, 0.0, 0.0) * factor).nan_to_num(0.0, 0.0, 0.0).trunc().to(torch.int64)
    found: NDArray[np.int64] = total.cpu().numpy()
    return found


def plain_sum(query: ClippedGradients, rows: Sequence[TokenRow]) -> NDArray[np.float64]:
    """Return the sum of the rows' gradients without clipping: NOT PRIVATE, for the baseline that shows what training
    could reach."""

    def plain(block: Block, real: int) -> NDArray[np.float64]:
        found: NDArray[np.float64] = query.trainable.gradients(block)[:real].double().sum(0).cpu().numpy()
        return found

    return np.asarray(sum(query.of_blocks(rows, plain), np.zeros(query.shape)))
