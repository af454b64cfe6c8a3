"""Sum the embeddings of each label's records, and count the records, as one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.additions.guide.plan import COUNT_WEIGHT, GRID, VECTOR_WEIGHT, EmbeddingSumsSpec
from understudy.models.types import Embedder
from understudy.privacy.measurement import PlannedQuery

_SHORTEST, _LONGEST = int(0.9 * GRID), int(1.1 * GRID)  # norms that count as a unit vector's
_BEYOND = 2.0 * GRID  # a coordinate that no such vector has: replaces NaN and infinity
_SAFETY = 1 - 1e-9  # float rounding of a norm is far smaller
_COUNT = math.floor(COUNT_WEIGHT * GRID)


@dataclass(frozen=True)
class GuideSums(PlannedQuery[BoundedBatch, EmbeddingSumsSpec]):
    """For each label, the sum over its records of ``(w, sqrt(1 - w^2) e(text))``, w = COUNT_WEIGHT: ``[labels, 1 +
    d]``.

    A record whose vector is not of length 1 (within 10 percent; NaN and infinity count as longer) adds nothing, not
    even to the count. All other vectors are scaled to length 1.

    Guarantee:
        Unit: a record, or an owner whose records are averaged, jointly over labels.
        Sensitivity: a record adds one vector to the row of its own label, of L2 norm at most sqrt(w^2 + (1 - w^2)) = 1,
        GRID in integers: each coordinate is rounded towards zero. Where an owner has s records, each adds a vector of
        norm at most GRID / s, whatever its label: by the triangle inequality all s together are no longer than GRID.
        The rows are those of the declared labels, and nothing is divided by how many records there are. The vector
        depends on the record alone: its length is the root of an exact integer, and all else is done number by number.
        It rests on an embedder that answers alike in every batch, which the run probes before the charge.
        Source: the mean embedding of DP-MERF (Harder et al. 2021) as a sum, with the embedder's own features.

    Args:
        embedder: local, for it reads private texts.
        dimension: of the embedder's vectors (d).
    """

    embedder: Embedder
    dimension: int

    @property
    def found(self) -> tuple[int, ...]:
        return (1 + self.dimension,)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        """Return the sums of one batch: ``Int64[labels, 1 + d]``. Memory: about 50 bytes per coordinate of the batch's
        vectors.

        Raises ModelError: the embedder does not answer with one vector of ``dimension`` numbers per text.
        """
        steps = _integers(self._embed(batch.texts))
        squared = np.square(steps).sum(axis=1)
        good = (squared >= _SHORTEST**2) & (squared <= _LONGEST**2)
        return sums_of(steps[good], batch.labels[good], batch.shares[good], shape=self.shape)

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        answer = self.embedder.embed(texts)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                vectors = np.asarray(answer, dtype=np.float32)
        except (TypeError, ValueError):  # which may quote the answer
            vectors = np.zeros(0, dtype=np.float32)
        if vectors.shape != (len(texts), self.dimension):
            raise ModelError(
                f"The embedder {self.embedder.model_id!r} does not answer with one vector of its dimension per text.",
                "Use another embedder.",
            )
        return vectors


def sums_of(
    vectors: NDArray[np.int64], rows: NDArray[np.integer], shares: NDArray[np.int64], *, shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Add a vector for each record to a row of a table of sums, and return the table.

    A record with the vector v adds ``(w, sqrt(1 - w^2) v / |v|) / share`` in steps of 1 / GRID, each number rounded
    towards zero: a count and a direction, together of length at most 1 / share.

    Args:
        vectors: ``Int64[n, d]``, not zero, of any scale.
        rows: ``Int[n]``: the row (label or topic) of each record.
        shares: ``Int64[n]``, 1 or more: how many used records the record's unit has.
        shape: of the table: rows, and 1 + d.
    """
    sums = np.zeros(shape, dtype=np.int64)
    norms = np.sqrt(np.square(vectors).sum(axis=1))
    scale = VECTOR_WEIGHT * GRID * _SAFETY / (norms * shares)
    np.add.at(sums[:, 0], rows, _COUNT // shares)
    np.add.at(sums[:, 1:], rows, np.trunc(vectors * scale[:, None]).astype(np.int64))
    return sums


def _integers(unit: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return grid steps, rounded towards zero; values that no unit vector has become ``_BEYOND``."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.clip(np.trunc(unit * np.float32(GRID)), -_BEYOND, _BEYOND)
    return np.where(np.isnan(steps), np.float32(_BEYOND), steps).astype(np.int64)
