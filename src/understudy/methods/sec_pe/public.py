"""The public side of SecPE: clusters of a public corpus, by k-means on its embeddings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.evolution.embeddings import Block, integer_vectors
from understudy.evolution.voting import nearest
from understudy.methods.sec_pe.clusters import Clusters

_ITERATIONS = 50


def make_clusters(
    vectors: NDArray[np.float32], vector_labels: NDArray[np.int32] | None, *, labels: int, count: int, seed: int
) -> Clusters:
    """Per label ``count`` clusters of public unit vectors.

    Args:
        vectors: ``Float32[n, d]``.
        vector_labels: ``Int32[n]``; None makes one set of clusters for all labels.
        labels: size of the label set.

    Raises:
        ConfigError: if a label has fewer public texts than clusters.
    """
    if vector_labels is None:
        centres, sizes = _k_means(vectors, count=count, seed=seed)
        return Clusters(np.repeat(centres[None], labels, axis=0), np.repeat(sizes[None], labels, axis=0))
    parts = [_k_means(vectors[vector_labels == label], count=count, seed=seed) for label in range(labels)]
    return Clusters(np.stack([centres for centres, _ in parts]), np.stack([sizes for _, sizes in parts]))


def _k_means(vectors: NDArray[np.float32], *, count: int, seed: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Centres and sizes by Lloyd's algorithm, on integers and so the same everywhere."""
    if len(vectors) < count:
        raise ConfigError(
            f"The public corpus has {len(vectors)} texts where {count} clusters are to be made.",
            "Lower clusters, or give a larger public corpus.",
        )
    points = integer_vectors(vectors)
    centres = _seeds(points, count, np.random.default_rng([seed, 0x5EC]))
    for _ in range(_ITERATIONS):
        before, centres = centres, _means(points, _assign(points, centres), centres)
        if np.array_equal(before, centres):
            break
    sizes = np.bincount(_assign(points, centres), minlength=count)
    return centres, np.maximum(sizes, 1).astype(np.int64)


def _seeds(points: NDArray[np.int16], count: int, generator: np.random.Generator) -> NDArray[np.int16]:
    """k-means++ (Arthur and Vassilvitskii 2007): each next one is drawn in proportion to its squared distance."""
    chosen = [int(generator.integers(len(points)))]
    squares = np.square(points, dtype=np.int32).sum(axis=1, dtype=np.int64)
    farness = np.full(len(points), np.iinfo(np.int64).max)
    exact = points.astype(np.float32)  # products of these are integers below 2^24
    while len(chosen) < count:
        products = (exact @ exact[chosen[-1]]).astype(np.int64)
        farness = np.minimum(farness, squares + squares[chosen[-1]] - 2 * products)
        total = int(farness.sum())
        if total == 0:  # every text is a seed already
            chosen.append(chosen[0])
            continue
        chosen.append(int(np.searchsorted(np.cumsum(farness), generator.integers(total), side="right")))
    return points[chosen]


def _assign(points: NDArray[np.int16], centres: NDArray[np.int16]) -> NDArray[np.int32]:
    """``Int32[n]``: the nearest centre of each point."""
    block = Block(points, np.zeros(len(points), dtype=np.int32), np.zeros(0, dtype=np.int64))
    (found,) = nearest([block], centres, np.zeros(len(centres), dtype=np.int32), distance="l2")
    return found[:, 0]


def _means(points: NDArray[np.int16], found: NDArray[np.int32], centres: NDArray[np.int16]) -> NDArray[np.int16]:
    """The mean of each cluster's points, rounded; an empty cluster stays where it is."""
    sums = np.zeros(centres.shape, dtype=np.int64)
    np.add.at(sums, found, points)
    sizes = np.bincount(found, minlength=len(centres))[:, None]
    return np.where(sizes > 0, np.rint(sums / np.maximum(sizes, 1)), centres).astype(np.int16)
