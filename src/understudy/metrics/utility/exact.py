"""A linear layer whose result for one text never depends on the texts beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GRID = 2.0**22
"""Rows and columns are at most this long in steps: a product is at most 2^44 and a little, for what rounding adds to a
length. A row that is longer than it should be is clipped: with d coordinates of at most 2^22 a product is at most
sqrt(d) 2^44. Up to d = 2^17 all are below the 2^53 that float64 holds exactly."""


@dataclass(frozen=True)
class ExactLinear:
    """``x W + b`` for rows ``x``, in sums that are exact.

    Floating-point products round differently in another block, thread or kernel, so that a record can turn the
    prediction of its neighbour, and then one record moves a count of right predictions by more than 1. Here rows and
    weights are rounded to integers of which float64 holds every partial sum, whatever the order; all else is done
    element by element.

    Args:
        weights: ``Float64[d, k]``, integers.
        bias: ``Float64[k]``.
        row_step, weight_step: powers of two by which rows are, and weights were, multiplied.
        reach: no row of results is longer (L2), if no row ``x`` is longer than what this was made for.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    row_step: float
    weight_step: float
    reach: float

    @classmethod
    def rounded(cls, weights: NDArray[Any], bias: NDArray[Any], *, reach: float) -> ExactLinear:
        """The layer of ``Float[d, k]`` and ``Float[k]``, for rows of at most ``reach`` (L2)."""
        lengths = np.sqrt((weights.astype(np.float64) ** 2).sum(0))
        row_step, weight_step = _step(reach), _step(float(lengths.max(initial=0.0)))
        return cls(
            np.rint(weights.astype(np.float64) * weight_step),
            bias.astype(np.float64),
            row_step,
            weight_step,
            float(np.linalg.norm(lengths * reach + np.abs(bias))),
        )

    def __call__(self, rows: Any) -> NDArray[np.float64]:
        """``Float64[n, k]`` of ``rows``: ``Float[n, d]``, an array, or a sparse one with rows as long as said."""
        scaled = rows.astype(np.float64) * self.row_step
        steps = np.rint(scaled).clip(-_GRID, _GRID) if isinstance(scaled, np.ndarray) else scaled.rint()
        return np.asarray(steps @ self.weights) / (self.row_step * self.weight_step) + self.bias

    def highest(self, rows: Any) -> NDArray[np.int64]:
        """The first column with the highest result of each row, ``Int64[n]``."""
        found: NDArray[np.int64] = np.argmax(self(rows), axis=1)
        return found


def _step(length: float) -> float:
    """The power of two that brings ``length`` to at most the grid."""
    return 2.0 ** math.floor(math.log2(_GRID / max(length, 1e-12)))
