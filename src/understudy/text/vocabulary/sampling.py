"""Sequences of terms sampled by noisy scores: post-processing, free.

``generator`` controls the sampling and does not affect privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
_SMALLEST = 1e-12


def label_share(scores: Scores) -> Scores:
    """Return each label's share of a term's scores: ``Float64[labels, N]``; negative scores count as 0."""
    positive = np.maximum(scores, 0.0)
    return np.asarray(positive / np.maximum(positive.sum(axis=0, keepdims=True), _SMALLEST), dtype=np.float64)


def contrast_weights(scores: Scores, *, contrast: float = 1.0) -> Scores:
    """Return sampling weights scores_c * (scores_c / sum over labels of scores)^contrast: ``Float64[labels, N]``.

    Negative scores count as 0. A label whose scores are all 0 (noise can do that) gets equal weights, so that every
    label gets sequences. Computed in logarithms: a large contrast must not underflow.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(scores) + contrast * np.log(label_share(scores))
    logs = np.where(scores > 0, logs, -np.inf)
    best = logs.max(axis=1, keepdims=True)
    hopeless = np.isneginf(best)
    return np.where(hopeless, 1.0, np.exp(logs - np.where(hopeless, 0.0, best)))


def sample_independent(
    weights: NDArray[np.float64],
    *,
    length: int,
    count: int,
    generator: np.random.Generator,
    log_lifts: Callable[[slice], NDArray[np.float32]] | None = None,
) -> NDArray[np.int64]:
    """Sample rows of distinct terms, one term after another in proportion to ``weights``: ``Int64[count, length]``.

    Gumbel top-k (Yellott 1977): sorting log-weights plus Gumbel noise samples without replacement.

    Args:
        log_lifts: ``Float32[rows, N]`` for some rows: added to their log-weights; None: nothing.
    """
    least = 0.0 if np.count_nonzero(weights) >= length else _SMALLEST * weights.max()
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.maximum(weights, least)).astype(np.float32)
    sampled = np.empty((count, length), dtype=np.int64)
    for some in _at_once(count, weights.size):
        rows = sampled[some]
        keys = log_weights + gumbel((len(rows), weights.size), generator)
        if log_lifts is not None:
            keys += log_lifts(some)
        best = np.argpartition(-keys, length - 1, axis=1)[:, :length]
        order = np.argsort(-np.take_along_axis(keys, best, axis=1), axis=1)
        rows[:] = np.take_along_axis(best, order, axis=1)
    return sampled


_NUMBERS = 1 << 24  # of one array


def _at_once(count: int, terms: int) -> Iterator[slice]:
    """Yield blocks of sequences, so that memory does not grow with their number."""
    size = max(1, _NUMBERS // terms)
    return (slice(start, start + size) for start in range(0, count, size))


def gumbel(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    """Return Gumbel noise: the index with the largest log-weight plus noise is a sample in proportion to the
    weights."""
    exponential = generator.standard_exponential(shape, dtype=np.float32)
    return np.asarray(-np.log(np.maximum(exponential, np.float32(1e-9))), dtype=np.float32)
