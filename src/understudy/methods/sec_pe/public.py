"""The public side of SecPE: clusters of a public corpus, by k-means on its embeddings."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.evolution.embeddings import integer_vectors
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
    from scipy.cluster.vq import kmeans2

    if len(vectors) < count:
        raise ConfigError(
            f"The public corpus has {len(vectors)} texts where {count} clusters are to be made.",
            "Lower clusters, or give a larger public corpus.",
        )
    points = integer_vectors(vectors).astype(np.float64)
    generator = np.random.default_rng([seed, 0x5EC])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of texts that are alike some clusters stay empty, and that is fine
        centres, nearest = kmeans2(points, count, iter=_ITERATIONS, minit="++", seed=generator)
    sizes = np.maximum(np.bincount(nearest, minlength=count), 1)
    return np.rint(centres).astype(np.int16), sizes.astype(np.int64)
