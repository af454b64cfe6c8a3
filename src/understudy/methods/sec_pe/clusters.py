"""Public clusters, and the noisy sum of what private records say about them.

A record x (an integer vector of :mod:`understudy.evolution.embeddings`) belongs to the nearest public centre e_k of its
label and adds one vector there:

    ( sqrt(s) ,  sqrt(1 - s) * clip(x - e_k, C) / C )          s: the sizes' share, C: the residual's clipping norm

Its L2 norm is at most 1, so sizes and centres together are one release at one event, with no correction for two
statistics of one sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch
from understudy.evolution.embeddings import STEPS, Block, private_vectors
from understudy.evolution.voting import nearest
from understudy.methods.sec_pe.plan import CLUSTER_SENSITIVITY, GRID
from understudy.models.types import Embedder
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import Sensitivity

_SAFETY = 1 - 1e-9  # float rounding of a norm is far smaller


@dataclass(frozen=True)
class Clusters:
    """Public: for each label K centres, and how many public texts lie around each.

    Args:
        centres: ``Int16[labels, K, d]`` on the grid of the embeddings.
        sizes: ``Int64[labels, K]``, at least 1.
    """

    centres: NDArray[np.int16]
    sizes: NDArray[np.int64]

    @property
    def labels(self) -> int:
        return int(self.centres.shape[0])

    @property
    def count(self) -> int:
        """Centres per label (K)."""
        return int(self.centres.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.centres.shape[2])


@dataclass(frozen=True)
class ClusterSums(Query[BoundedBatch]):
    """Per label and public cluster: noisy size, and noisy sum of residuals.

    ``Float64[labels, K, 1 + d]``, in the units of the formula above.

    Guarantee:
        Unit: a record.
        Sensitivity: a record's vector has L2 norm at most sqrt(s + (1 - s)) = 1, GRID in integers: the count's weight
        and every coordinate are rounded toward zero. A record touches one cluster of one label. Its vector depends on
        the record alone: the embedder answers alike in every batch, the nearest centre is found on integers, exactly,
        and the residual's norm is the root of an exact integer.
        Source: SecPE (Wang et al. 2025), with residual sums in place of means.

    Args:
        clip: C, the largest norm of a residual; unit vectors are at most 2 apart.
        size_share: s, in (0, 1).
    """

    clusters: Clusters
    embedder: Embedder
    clip: float
    size_share: float

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.clusters.labels, self.clusters.count, 1 + self.clusters.dimension)

    @property
    def sensitivity(self) -> Sensitivity:
        return CLUSTER_SENSITIVITY

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        sums = np.zeros(self.shape, dtype=np.int64)
        vectors, labels = private_vectors(self.embedder.embed(batch.texts)), batch.labels
        clusters = self.assign(vectors, labels)
        known = clusters >= 0  # a vector that is none belongs nowhere
        vectors, labels, clusters = vectors[known], labels[known], clusters[known]
        residuals = vectors.astype(np.int64) - self.clusters.centres[labels, clusters]
        norms = np.sqrt(np.einsum("ij,ij->i", residuals, residuals).astype(np.float64))
        weight = math.sqrt(1 - self.size_share) * GRID * _SAFETY
        scale = weight / np.maximum(norms, self.clip * STEPS)
        np.add.at(sums[..., 0], (labels, clusters), math.floor(math.sqrt(self.size_share) * GRID * _SAFETY))
        np.add.at(sums[..., 1:], (labels, clusters), np.trunc(residuals * scale[:, None]).astype(np.int64))
        return sums

    def assign(self, vectors: NDArray[np.int16], labels: NDArray[np.int32]) -> NDArray[np.int32]:
        """``Int32[n]``: the nearest centre of each record's label, -1 for a vector that is zero."""
        labels_of_centres = np.repeat(np.arange(self.clusters.labels, dtype=np.int32), self.clusters.count)
        flat = self.clusters.centres.reshape(-1, self.clusters.dimension)
        block = Block(vectors, labels, np.zeros(len(vectors), dtype=np.int64))
        (found,) = nearest([block], flat, labels_of_centres, distance="l2")
        return np.where(found[:, 0] >= 0, found[:, 0] % self.clusters.count, -1).astype(np.int32)


def noisy_centres(
    clusters: Clusters, sums: NDArray[np.float64], *, clip: float, size_share: float, noise: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sizes ``Float64[labels, K]`` and centres ``Float64[labels, K, d]`` (in 1.0) of a release. Post-processing.

    centre = e_k + shrunk residual sum / (n_k + size_k), a noisy size below 0 counting as 0. The noisy residual sum r of
    d coordinates is shrunk by max(0, 1 - (d - 2) noise^2 / |r|^2) (James and Stein 1961, positive part): where it is
    all noise, the centre stays the public one.

    Args:
        sums: as :class:`ClusterSums` releases them.
        noise: standard deviation of the noise on a coordinate of ``sums``.
    """
    sizes = sums[..., 0] / math.sqrt(size_share)
    squares = np.square(sums[..., 1:]).sum(axis=-1)
    most = (clusters.dimension - 2) * noise**2
    shrunk = np.clip(1 - np.divide(most, squares, out=np.full_like(squares, np.inf), where=squares > 0), 0, 1)
    residuals = sums[..., 1:] * (shrunk * clip / math.sqrt(1 - size_share))[..., None]
    weights = clusters.sizes + np.maximum(sizes, 0)
    return sizes, clusters.centres / STEPS + residuals / weights[..., None]
