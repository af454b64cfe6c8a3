"""Public clusters, and the noisy sums of private records over them.

A record x (an integer vector of :mod:`understudy.methods.shared.evolution.embeddings`) belongs to the nearest public
centre e_k of its label and adds one vector there:

    ( sqrt(s) ,  sqrt(1 - s) * clip(x - e_k, C) / C )          s: the sizes' share, C: the residual's clipping norm

Its L2 norm is at most 1, so sizes and centres together are one release at one event, with no correction for two
statistics of one sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.base.display import plural
from understudy.base.errors import ConfigError
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.sec_pe.plan import GRID, ClusterSumsSpec
from understudy.methods.shared.evolution.embeddings import STEPS, Block, integer_vectors, private_vectors
from understudy.methods.shared.evolution.voting import nearest
from understudy.models.types import Embedder
from understudy.privacy.measurement import PlannedQuery

_SAFETY = 1 - 1e-9  # float rounding of a norm is far smaller


@dataclass(frozen=True)
class Clusters:
    """Public clusters: K centres per label, and the number of public texts nearest to each."""

    centres: NDArray[np.int16]  # ``Int16[labels, K, d]`` on the grid of the embeddings
    sizes: NDArray[np.int64]  # ``Int64[labels, K]``, at least 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the number of labels, of centres per label (K), and of dimensions."""
        labels, count, dimension = self.centres.shape
        return labels, count, dimension


@dataclass(frozen=True)
class ClusterSums(PlannedQuery[BoundedBatch, ClusterSumsSpec]):
    """For each label and public cluster, the number of records (size) and the sum of their residuals from the centre.

    ``Float64[labels, K, 1 + d]``, in the units of the formula above.

    Guarantee:
        Unit: a record.
        Sensitivity: a record's vector has L2 norm at most sqrt(s + (1 - s)) = 1, GRID in integers: the count's weight
        and every coordinate are rounded toward zero. A record touches one cluster of one label. Its vector depends on
        the record alone: the embedder answers alike in every batch, the nearest centre is found on integers, exactly,
        and the residual's norm is the root of an exact integer.
        Source: SecPE (Wang et al. 2025), with residual sums in place of means.
    """

    clusters: Clusters
    embedder: Embedder
    clip: float  # C, the largest norm of a residual; unit vectors are at most 2 apart
    size_share: float  # s, in (0, 1)

    @property
    def found(self) -> tuple[int, ...]:
        labels, count, dimension = self.clusters.shape
        return (labels, count, 1 + dimension)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        sums = np.zeros(self.shape, dtype=np.int64)
        vectors, labels = private_vectors(self.embedder.embed(batch.texts)), batch.labels
        clusters = self.assign(vectors, labels)
        known = clusters >= 0  # non-finite vectors belong to no cluster
        vectors, labels, clusters = vectors[known], labels[known], clusters[known]
        residuals = vectors.astype(np.int64) - self.clusters.centres[labels, clusters]
        norms = np.sqrt(np.einsum("ij,ij->i", residuals, residuals).astype(np.float64))
        weight = math.sqrt(1 - self.size_share) * GRID * _SAFETY
        scale = weight / np.maximum(norms, self.clip * STEPS)
        np.add.at(sums[..., 0], (labels, clusters), math.floor(math.sqrt(self.size_share) * GRID * _SAFETY))
        np.add.at(sums[..., 1:], (labels, clusters), np.trunc(residuals * scale[:, None]).astype(np.int64))
        return sums

    def assign(self, vectors: NDArray[np.int16], labels: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return ``Int32[n]``: the nearest centre of each record's label, -1 for a zero vector."""
        all_labels, count, dimension = self.clusters.shape
        labels_of_centres = np.repeat(np.arange(all_labels, dtype=np.int32), count)
        block = Block(vectors, labels, np.zeros(len(vectors), dtype=np.int64))
        (found,) = nearest([block], self.clusters.centres.reshape(-1, dimension), labels_of_centres, distance="l2")
        return np.where(found[:, 0] >= 0, found[:, 0] % count, -1).astype(np.int32)


def noisy_centres(
    clusters: Clusters, sums: NDArray[np.float64], *, clip: float, size_share: float, noise: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sizes ``Float64[labels, K]`` and centres ``Float64[labels, K, d]`` (in 1.0) of a release. Post-processing.

    centre = e_k + shrunk residual sum / (n_k + size_k), a noisy size below 0 counting as 0. The noisy residual sum r of
    d coordinates is shrunk by max(0, 1 - (d - 2) noise^2 / |r|^2) (James and Stein 1961, positive part): if it is all
    noise, the centre stays the public one.

    Args:
        sums: as :class:`ClusterSums` releases them.
        noise: standard deviation of the noise on a coordinate of ``sums``.
    """
    sizes = sums[..., 0] / math.sqrt(size_share)
    squares = np.square(sums[..., 1:]).sum(axis=-1)
    most = (clusters.shape[2] - 2) * noise**2
    shrunk = np.clip(1 - np.divide(most, squares, out=np.full_like(squares, np.inf), where=squares > 0), 0, 1)
    residuals = sums[..., 1:] * (shrunk * clip / math.sqrt(1 - size_share))[..., None]
    weights = clusters.sizes + np.maximum(sizes, 0)
    return sizes, clusters.centres / STEPS + residuals / weights[..., None]


_ITERATIONS = 50


def make_clusters(
    vectors: NDArray[np.float32], vector_labels: NDArray[np.int32] | None, *, labels: int, count: int, seed: int
) -> Clusters:
    """Divide public unit vectors ``Float32[n, d]`` into ``count`` clusters per label; without ``vector_labels``, all
    labels have the same clusters. Raises ConfigError if a label has fewer public texts than clusters."""
    if vector_labels is None:
        centres, sizes = _k_means(vectors, count=count, seed=seed)
        return Clusters(np.repeat(centres[None], labels, axis=0), np.repeat(sizes[None], labels, axis=0))
    parts = [_k_means(vectors[vector_labels == label], count=count, seed=seed) for label in range(labels)]
    return Clusters(np.stack([centres for centres, _ in parts]), np.stack([sizes for _, sizes in parts]))


def _k_means(vectors: NDArray[np.float32], *, count: int, seed: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Compute centres and sizes by Lloyd's algorithm, on integers and thus the same on every machine."""
    if len(vectors) < count:
        raise ConfigError(
            f"The public corpus has {plural(len(vectors), 'text')}, too few for {plural(count, 'cluster')}.",
            "Lower clusters, or give a larger public corpus.",
        )
    points = integer_vectors(vectors)
    centres = _seeds(points, count, np.random.default_rng([seed, 0x5EC]))
    for _ in range(_ITERATIONS):
        found = _assign(points, centres)
        sums = np.zeros(centres.shape, dtype=np.int64)
        np.add.at(sums, found, points)
        sizes = np.bincount(found, minlength=count)[:, None]  # an empty cluster stays where it is
        means = np.where(sizes > 0, np.rint(sums / np.maximum(sizes, 1)), centres)
        before, centres = centres, means.astype(np.int16)
        if np.array_equal(before, centres):
            break
    members = np.bincount(_assign(points, centres), minlength=count)
    return centres, np.maximum(members, 1).astype(np.int64)


def _seeds(points: NDArray[np.int16], count: int, generator: np.random.Generator) -> NDArray[np.int16]:
    """k-means++ (Arthur and Vassilvitskii 2007): each next one is sampled in proportion to its squared distance."""
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
    """Return ``Int32[n]``: the nearest centre of each point."""
    block = Block(points, np.zeros(len(points), dtype=np.int32), np.zeros(0, dtype=np.int64))
    (found,) = nearest([block], centres, np.zeros(len(centres), dtype=np.int32), distance="l2")
    return found[:, 0]
