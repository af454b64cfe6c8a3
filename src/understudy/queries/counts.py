"""In how many records each term or label is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import COUNT_GRID, Sensitivity
from understudy.vocabulary.matcher import TermMatcher


@dataclass(frozen=True)
class TermCounts(Query[BoundedBatch]):
    """In how many records each vocabulary term is among the first ``terms_per_record`` distinct ones.

    Guarantee:
        Unit: a record, or an owner whose records are averaged.
        Sensitivity: a record adds 1 to at most S = ``terms_per_record`` counts: L1 is S, L2 is sqrt(S); an average
        of such vectors is no longer. In integers: a record adds floor(COUNT_GRID / records of its owner) to each.
        Source: KPS (Nagesh et al. 2025, arXiv:2502.13193).
    """

    matcher: TermMatcher
    size: int
    terms_per_record: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(self.terms_per_record)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(self.size, dtype=np.int64)
        found = [self.matcher.first_distinct(text, self.terms_per_record) for text in batch.said]
        lengths = [len(terms) for terms in found]
        terms = np.fromiter((term for terms in found for term in terms), dtype=np.int64, count=sum(lengths))
        np.add.at(counts, terms, np.repeat(COUNT_GRID // batch.shares, lengths))
        return counts


@dataclass(frozen=True)
class LabelCounts(Query[BoundedBatch]):
    """How many records each label has.

    Guarantee:
        Unit: a record, or an owner whose records are averaged.
        Sensitivity: a record adds 1 to one count, L1 and L2 are 1; an average of such vectors is no longer. In
        integers: a record adds floor(COUNT_GRID / records of its owner).
    """

    labels: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.labels,)

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(1)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(self.labels, dtype=np.int64)
        np.add.at(counts, batch.labels, COUNT_GRID // batch.shares)
        return counts
