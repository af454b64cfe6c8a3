"""How much more often records with a value of a column say a term than others: empirical Bayes on noisy counts.

For cell a of a column, the noisy score s(a, t) of term t is compared with what it would be if the column said nothing
of terms, e(a, t) = share of a * score of t under all cells. The relative difference d(a, t) is taken to be normal with
variance tau^2, which is estimated from all scores of the column, on the low side: three standard errors less, so that
noise alone gives 0, and no more than there are cells, the most that it can be. It is then known by

    s(a, t) - e(a, t)  =  e(a, t) d(a, t) + noise,    variance of the noise: that which was added, and e(a, t) itself

(a weight of at most 1 per record: sampling varies it by no more). The lift of a term is 1 + the posterior mean of d:
near 1 where there is mostly noise, and for all terms of a column that says nothing of them. Post-processing, free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.text.vocabulary.shrinkage import KnownNoise, shrink

_LEAST, _MOST = 0.05, 20.0
"""Lifts; many columns together may still leave a row few terms."""


@dataclass(frozen=True)
class Lifts:
    """Of every term under every cell of the columns that phrases depend on.

    Args:
        logarithms: ``Float32[cells, N]``, the columns' cells one behind the other.
        spreads: tau of each column: 0 where it says nothing of terms.
        sizes: cells of each column.
    """

    logarithms: NDArray[np.float32]
    spreads: tuple[float, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, scores: NDArray[np.float64], sizes: Sequence[int], noise: KnownNoise) -> Lifts:
        """Of the noisy ``scores``, ``Float64[cells, N]``."""
        found = [_log_lifts(block, noise) for block in np.split(scores, np.cumsum(sizes)[:-1])]
        return cls(np.concatenate([logs for logs, _ in found]), tuple(spread for _, spread in found), tuple(sizes))

    def places(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of :attr:`logarithms`, of cells ``Int64[n, columns]``."""
        return cells + np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def of_rows(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """``Float32[n, N]``: logarithms of the lifts of rows, whose columns' lifts multiply."""
        total = np.zeros((len(places), self.logarithms.shape[1]), dtype=np.float32)
        for column in places.T:
            total += self.logarithms[column]
        return total


def _log_lifts(scores: NDArray[np.float64], noise: KnownNoise) -> tuple[NDArray[np.float32], float]:
    """Of one column: logarithms ``Float32[cells, N]``, and tau."""
    every = shrink(scores.sum(axis=0), KnownNoise("gaussian", noise.std * len(scores) ** 0.5)).mean
    shares = np.maximum(scores.sum(axis=1), 0.0)
    expected = shares[:, None] / max(float(shares.sum()), 1e-12) * every
    apart, variance = scores - expected, noise.std**2 + np.maximum(expected, 1e-12)
    precision = float(((expected**2 / variance) ** 2).sum())
    # least squares of apart^2 - variance on expected^2, weighted by 1 / variance^2, less three standard errors
    found = float(((apart**2 - variance) * expected**2 / variance**2).sum()) - 3 * (2 * precision) ** 0.5
    squared = min(max(found, 0.0) / max(precision, 1e-30), len(scores))
    difference = squared * expected * apart / (squared * expected**2 + variance)
    return np.log(np.clip(1 + difference, _LEAST, _MOST)).astype(np.float32), squared**0.5
