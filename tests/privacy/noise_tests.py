"""Two-sided tests of noise at alpha = 1e-12, so that none of thousands of runs fails by chance. Each returns a p-value;
the broken twins must get a tiny one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

ALPHA = 1e-12


def pmf(kind: str, *, scale: float, reach: int) -> NDArray[np.float64]:
    """Probabilities of the integers -reach..reach under the discrete Gaussian or Laplace distribution."""
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    weight = np.exp(-(x**2) / (2 * scale**2)) if kind == "gaussian" else np.exp(-np.abs(x) / scale)
    return np.asarray(weight / weight.sum(), dtype=np.float64)


def scale_p_value(kind: str, noise: NDArray[np.int64], *, scale: float) -> float:
    """Two-sided: sum of squares (Gaussian, chi-square) or of magnitudes (Laplace, gamma). For scales from 10 up."""
    if kind == "gaussian":
        below = stats.chi2.cdf(float(np.sum((noise / scale) ** 2)), noise.size)
    else:
        below = stats.gamma.cdf(float(np.sum(np.abs(noise / scale))), noise.size)
    return float(2 * min(below, 1 - below))


def mean_p_value(kind: str, noise: NDArray[np.int64], *, scale: float) -> float:
    """Two-sided: is the mean zero?"""
    std = scale * (1 if kind == "gaussian" else math.sqrt(2))
    return float(2 * stats.norm.sf(abs(float(noise.mean())) / std * math.sqrt(noise.size)))


def shape_p_value(kind: str, noise: NDArray[np.int64], *, scale: float) -> float:
    """Chi-square against the exact probabilities, for small scales; the outer integers share one cell per side."""
    reach = math.ceil(60 * scale)
    expected = pmf(kind, scale=scale, reach=reach) * noise.size
    observed = np.bincount(np.clip(noise, -reach, reach) + reach, minlength=2 * reach + 1).astype(np.float64)
    edge = int(np.argmax(np.cumsum(expected) >= 50)) + 1

    def cells(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([[counts[:edge].sum()], counts[edge:-edge], [counts[-edge:].sum()]])

    whole = cells(expected)
    return float(stats.chisquare(cells(observed), whole * (noise.size / whole.sum())).pvalue)


def dependence_p_value(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Two-sided, on signs and on magnitudes: are two draws independent?"""
    signs = stats.binomtest(int(np.sum((first > 0) == (second > 0))), first.size).pvalue
    sizes = stats.spearmanr(np.abs(first), np.abs(second)).pvalue
    return float(min(signs, sizes))
