"""The random features of the sketches, and keyphrase sequences sampled from them. All of it is post-processing.

``generator`` steers the sampling and has nothing to do with privacy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
_SMALLEST = 1e-12


def term_scores(sketch: Scores, features: NDArray[np.int32]) -> Scores:
    """``Float64[labels, N]``: Phi(V~) F_c / I, the estimated kernel density of each term under each label."""
    frequencies = features.shape[1] // 2
    return np.asarray(sketch @ (features.T / (GRID * frequencies)), dtype=np.float64)


def label_share(scores: Scores) -> Scores:
    """``Float64[labels, N]``: scores_c / sum over labels of scores, negative scores counted as 0."""
    positive = np.maximum(scores, 0.0)
    return np.asarray(positive / np.maximum(positive.sum(axis=0, keepdims=True), _SMALLEST), dtype=np.float64)


def contrast_weights(scores: Scores, *, contrast: float = 1.0) -> Scores:
    """``Float64[labels, N]``: scores_c * (scores_c / sum over labels of scores)^contrast.

    Negative scores count as 0. A label whose scores are all 0 (noise can do that) is given equal weights, so
    that every label runs to the end. Computed in logarithms: a large contrast must not underflow.
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
    """``Int64[count, length]``: rows of distinct terms, sampled one after another in proportion to ``weights``.

    Gumbel top-k (Yellott 1977): sorting log-weights plus Gumbel noise samples without replacement.

    Args:
        log_lifts: of some of the rows ``Float32[rows, N]``: logarithms by which their weights differ; None: by none.
    """
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.maximum(weights, _SMALLEST * weights.max())).astype(np.float32)
    sampled = np.empty((count, length), dtype=np.int64)
    for some in _at_once(count, weights.size):
        rows = sampled[some]
        keys = log_weights + _gumbel((len(rows), weights.size), generator)
        if log_lifts is not None:
            keys += log_lifts(some)
        best = np.argpartition(-keys, length - 1, axis=1)[:, :length]
        order = np.argsort(-np.take_along_axis(keys, best, axis=1), axis=1)
        rows[:] = np.take_along_axis(best, order, axis=1)
    return sampled


def sample_iterative(
    sketches: Mapping[int, NDArray[np.float64]],
    phases: Mapping[int, NDArray[np.float32]],
    log_contrast: NDArray[np.float64],
    *,
    length: int,
    count: int,
    generator: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Per label ``Int64[count, length]``: sequences grown term by term against the sequence sketches.

    A sequence of l terms (prefix and candidate) asks the smallest structure K_m with m >= l, zero-padded: the
    padding multiplies all candidates by one factor, which cancels. Terms are sampled in proportion to scores (an
    argmax would make all sequences equal). KPS (Nagesh et al. 2025, arXiv:2502.13193).

    Args:
        sketches: m -> ``Float64[labels, 2 I]`` noisy sums.
        phases: m -> ``Float32[m, N, I]`` of each term at each position.
        log_contrast: ``Float64[labels, N]`` added to the log-scores, zeros for none.
    """
    labels = len(log_contrast)
    sampled = np.empty((labels, count, length), dtype=np.int64)
    for position in range(length):
        size = min(m for m in sketches if m > position)
        candidate = phases[size][position]
        cos_sin = np.concatenate([np.cos(candidate), np.sin(candidate)], axis=1).T
        for label in range(labels):
            for start in range(0, count, _PREFIXES):
                prefix = sampled[label, start : start + _PREFIXES, :position]
                phase = phases[size][np.arange(position), prefix].sum(axis=1, dtype=np.float32)
                scores = _next_scores(sketches[size][label], phase, cos_sin)
                logits = _log_positive(scores) + log_contrast[label]
                np.put_along_axis(logits, prefix, -np.inf, axis=1)
                noisy = logits + _gumbel(logits.shape, generator)  # a sample per row from their softmax
                sampled[label, start : start + _PREFIXES, position] = np.argmax(noisy, axis=1)
    return list(sampled)


_PREFIXES = 1024
_NUMBERS = 1 << 24  # of one array


def _at_once(count: int, terms: int) -> Iterator[slice]:
    """So many sequences at a time that memory does not grow with their number."""
    size = max(1, _NUMBERS // terms)
    return (slice(start, start + size) for start in range(0, count, size))


def cut_to_lengths(sequences: NDArray[np.int64], *, shortest: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Sequences of mixed lengths: each is cut to a length between ``shortest`` (if it has so many terms) and its whole
    one, uniformly, and padded with -1. Terms are sampled one after another, so what is left is a shorter sequence's.
    """
    count, length = sequences.shape
    lengths = generator.integers(min(shortest, length), length + 1, size=(count, 1))
    return np.where(np.arange(length) < lengths, sequences, -1)


def _next_scores(
    sketch: NDArray[np.float64], prefix: NDArray[np.float32], cos_sin: NDArray[np.float32]
) -> NDArray[np.float32]:
    """``Float32[n, N]`` scores: [(C cosP + S sinP) . cosA + (S cosP - C sinP) . sinA] / I.

    One matrix product of ``[n, 2 I] x [2 I, N]``, without any dependence on the embedding's dimension.
    """
    frequencies = prefix.shape[1]
    cos, sin = np.cos(prefix), np.sin(prefix)
    c, s = np.split((sketch / frequencies).astype(np.float32), 2)
    return np.asarray(np.concatenate([c * cos + s * sin, s * cos - c * sin], axis=1) @ cos_sin, dtype=np.float32)


def _log_positive(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """log(max(scores, 0)) a row, floored far below the row's best; rows without a positive score become flat."""
    best = np.maximum(scores.max(axis=1, keepdims=True), np.float32(1e-30))
    return np.asarray(np.log(np.maximum(scores / best, _SMALLEST)), dtype=np.float64)


def _gumbel(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    exponential = generator.standard_exponential(shape, dtype=np.float32)
    return np.asarray(-np.log(np.maximum(exponential, np.float32(1e-9))), dtype=np.float32)


def structures(length: int) -> Sequence[int]:
    """Sizes m of the iterative method's structures: 1, 2, 4, ... capped at ``length``.

    >>> structures(10)
    [1, 2, 4, 8, 10]
    """
    sizes = [1]
    while sizes[-1] < length:
        sizes.append(min(2 * sizes[-1], length))
    return sizes


GRID = 1 << 10
"""Integer steps of 1.0 in a feature. Truncation towards zero, so that no norm grows."""


WEIGHT_GRID = 1 << 20
"""Integer steps of a record's weight of 1. Weights are rounded down, so that no norm grows."""


@dataclass(frozen=True)
class Frequencies:
    """The random frequencies of one structure: public, sampled from a public seed.

    For a sequence of m unit vectors x_1..x_m and bandwidth h,

        phi(x) = [cos(p_i), sin(p_i)], i = 1..I,   p_i = sum_b a_ib . x_b,   a_ib ~ sqrt(2)/(h sqrt(m)) N(0, I_d)

    so that phi(x) . phi(y) / I estimates exp(-|x - y|^2 / (h^2 m)) for the concatenations (LSQ, Wagner et al. 2023;
    Rahimi and Recht 2007), and |phi(x)|_2 = sqrt(I) exactly. Phases add over blocks, so everything is computed from one
    table of phases per block.
    """

    seed: int  # public; any int
    length: int  # terms per sequence (m), 1 or more
    count: int  # number of frequencies (I)
    bandwidth: float  # h, greater than 0
    dimension: int  # of an embedding (d)

    def block(self, position: int) -> NDArray[np.float32]:
        """``Float32[I, d]``: the frequencies that the term at ``position`` (from 0) is multiplied with."""
        generator = np.random.Generator(np.random.PCG64([self.seed, self.length, position]))
        normal = generator.standard_normal((self.count, self.dimension))
        return (normal * (math.sqrt(2 / self.length) / self.bandwidth)).astype(np.float32)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the frequencies, kept in the Release: another NumPy must sample the same ones."""
        whole = hashlib.sha256()
        for position in range(self.length):
            whole.update(self.block(position).tobytes())
        return whole.digest()

    def phases(self, embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
        """``Float32[m, N, I]``: of each term at each position. Phases of a sequence add up."""
        return np.stack([embeddings @ self.block(position).T for position in range(self.length)])


def integer_features(phases: NDArray[np.float32]) -> NDArray[np.int32]:
    """``Int32[n, 2 I]``: GRID * [cos, sin] of ``Float32[n, I]`` phases, truncated towards zero.

    The L2 norm of a row is at most GRID sqrt(I), the L1 norm at most GRID sqrt(2) I: truncation only lowers them.
    """
    exact = np.concatenate([np.cos(phases), np.sin(phases)], axis=1, dtype=np.float64)
    return np.trunc(exact * (GRID * (1 - 2.0**-20))).astype(np.int32)  # float32 cos^2 + sin^2 may pass 1 by 2^-23
