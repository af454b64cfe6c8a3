"""The number of records with each term or label, and the weight of each term in records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch
from understudy.methods.shared.specs import LabelCountsSpec, TermCountsSpec, TermHistogramSpec
from understudy.privacy.measurement import PlannedQuery
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.noise import NoiseKind
from understudy.text.vocabulary.words import TermMatcher


@dataclass(frozen=True)
class TermCounts(PlannedQuery[BoundedBatch, TermCountsSpec]):
    """For each vocabulary term, the number of records in which it is among the first ``terms_per_record`` distinct
    terms. Used for the private keywords of aug-pe; dp-kps bounds its counts differently (:class:`TermHistogram`).

    Guarantee:
        Unit: a record, or an owner whose records are averaged.
        Sensitivity: a record adds 1 to at most S = ``terms_per_record`` counts: L1 is S, L2 is sqrt(S); an average
        of such vectors is no longer. In integers: a record adds floor(COUNT_GRID / records of its owner) to each.
        Source: KPS (Nagesh et al. 2025, arXiv:2502.13193).
    """

    matcher: TermMatcher

    @property
    def found(self) -> tuple[int, ...]:
        return (self.matcher.size,)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(self.shape, dtype=np.int64)
        found = [self.matcher.first_distinct(text, self.spec.terms_per_record) for text in batch.said]
        lengths = [len(terms) for terms in found]
        terms = np.fromiter((term for terms in found for term in terms), dtype=np.int64, count=sum(lengths))
        np.add.at(counts, terms, np.repeat(batch.weights, lengths))
        return counts


@dataclass(frozen=True)
class TermRows:
    """Finds the first S distinct terms of a vocabulary in each record.

    Args:
        read: returns whether a text is in the language of the vocabulary; other texts have no terms. It depends on this
            text alone. None: all texts are read.
    """

    matcher: TermMatcher
    terms_per_record: int
    read: Callable[[str], bool] | None = None

    def of(self, batch: BoundedBatch) -> NDArray[np.int64]:
        """Return the term indices of each record, padded with -1: ``Int64[n, S]``."""
        rows = np.full((len(batch.labels), self.terms_per_record), -1, dtype=np.int64)
        for row, text in enumerate(batch.said):
            if self.read is not None and not self.read(text):
                continue
            found = self.matcher.first_distinct(text, self.terms_per_record)
            rows[row, : len(found)] = found
        return rows


def weights_of_terms(
    shape: tuple[int, int], rows: NDArray[np.int64], labels: NDArray[np.int32], weights: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Add each record's weight to its label's count of every term in its row: ``Int64[labels, terms]``."""
    histogram = np.zeros(shape, dtype=np.int64)
    used = rows >= 0
    record = np.nonzero(used)[0]
    np.add.at(histogram, (labels[record], rows[used]), weights[record])
    return histogram


@dataclass(frozen=True)
class TermHistogram(PlannedQuery[BoundedBatch, TermHistogramSpec]):
    """Weighted term counts, of all records or by label: a record's weight of 1 is divided among its first S distinct
    terms.

    Guarantee:
        Unit: a record, or an owner whose records are averaged jointly over labels.
        Sensitivity: a record with m distinct terms (m at most S) adds floor(G / sqrt(m)) to each for gaussian noise,
            so its L2 norm is at most sqrt(m G^2 / m) = G = COUNT_GRID, or floor(G / m) for laplace noise, so its L1
            norm is at most m G / m = G; m = 0 adds nothing. Of k records of an owner each adds such a vector with
            G / k for G, and k of these are no longer than G together (the triangle inequality). All of it holds
            whether records are counted by label or all together.

    Args:
        read: as of :class:`TermRows`.
    """

    matcher: TermMatcher
    read: Callable[[str], bool] | None = None

    @property
    def found(self) -> tuple[int, ...]:
        return (self.matcher.size,)

    @cached_property
    def rows(self) -> TermRows:
        return TermRows(self.matcher, self.spec.terms_per_record, self.read)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        rows = self.rows.of(batch)
        labels = batch.labels if self.spec.blocks else np.zeros_like(batch.labels)
        weights = _shared_weights(rows, batch.shares, self.spec.noise)
        shape = (sum(self.spec.blocks) or 1, self.shape[-1])
        return weights_of_terms(shape, rows, labels, weights).reshape(self.shape)


def _shared_weights(rows: NDArray[np.int64], shares: NDArray[np.int64], noise: NoiseKind) -> NDArray[np.int64]:
    """Return ``Int64[n]``: what each record gives to every term of its row."""
    distinct = np.maximum((rows >= 0).sum(axis=1), 1)
    norm = np.sqrt(distinct) if noise == "gaussian" else distinct
    return np.asarray(np.floor(COUNT_GRID / (norm * shares)), dtype=np.int64)


@dataclass(frozen=True)
class ColumnTermHistogram(TermHistogram):
    """:class:`TermHistogram` by the cells of typed columns instead of labels: a block of the sum per column.

    Guarantee:
        Unit: a record, or an owner whose records are averaged jointly over all cells.
        Sensitivity: a record has one cell of each of k columns, to which it adds the vector of
            :class:`TermHistogram`: the blocks of different columns are disjoint, so its L2 norm is at most
            sqrt(k) COUNT_GRID for gaussian noise, its L1 norm at most k COUNT_GRID for laplace noise. Of an owner's
            records the same holds by the triangle inequality.

    Args:
        columns: positions of the columns among those of a batch, one for each block of the spec.
    """

    columns: tuple[int, ...] = field(kw_only=True)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        assert batch.cells is not None, "the plan has the columns that the corpus was read with"
        rows = self.rows.of(batch)
        weights = _shared_weights(rows, batch.shares, self.spec.noise)
        blocks = [
            weights_of_terms((size, self.shape[1]), rows, batch.cells[:, column], weights)
            for column, size in zip(self.columns, self.spec.blocks, strict=True)
        ]
        return np.concatenate(blocks)


@dataclass(frozen=True)
class LabelCounts(PlannedQuery[BoundedBatch, LabelCountsSpec]):
    """The number of records of each label.

    Guarantee:
        Unit: a record, or an owner whose records are averaged.
        Sensitivity: a record adds 1 to one count, L1 and L2 are 1; an average of such vectors is no longer. In
        integers: a record adds floor(COUNT_GRID / records of its owner).
    """

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(self.shape, dtype=np.int64)
        np.add.at(counts, batch.labels, batch.weights)
        return counts
