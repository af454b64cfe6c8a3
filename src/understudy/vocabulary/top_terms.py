"""The privatised vocabulary: the top N of noisy term counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus
from understudy.errors import ConfigError
from understudy.vocabulary.matcher import TermMatcher

GRID = 1 << 20


@dataclass(frozen=True)
class TermCounts:
    """In how many records each vocabulary term is among the first ``terms_per_record`` distinct ones.

    An :class:`~understudy.privacy.mechanisms.IntegerSum` of the corpus.

    Guarantee:
        Unit: a record, or an owner whose records are averaged.
        Sensitivity: a record adds 1 to at most S = ``terms_per_record`` counts: L1 is S, L2 is sqrt(S); an average
        of such vectors is no longer. In integers: a record adds floor(GRID / records of its owner) to each.
        Source: KPS (Nagesh et al. 2025, arXiv:2502.13193).
    """

    matcher: TermMatcher
    size: int
    terms_per_record: int
    name: str = "vocabulary"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def grid(self) -> float:
        return float(GRID)

    @property
    def l1_sensitivity(self) -> float:
        return float(GRID * self.terms_per_record)

    @property
    def l2_sensitivity(self) -> float:
        return math.nextafter(GRID * math.sqrt(self.terms_per_record), math.inf)

    def evaluate(self, data: BoundedCorpus) -> NDArray[np.int64]:
        counts = np.zeros(self.size, dtype=np.int64)
        first_distinct, limit = self.matcher.first_distinct, self.terms_per_record
        for batch in data.batches():
            found = [first_distinct(text, limit) for text in batch.said]
            lengths = [len(terms) for terms in found]
            terms = np.fromiter((term for terms in found for term in terms), dtype=np.int64, count=sum(lengths))
            np.add.at(counts, terms, np.repeat(GRID // batch.shares, lengths))
        return counts


def require_enough_terms(top: int, vocabulary_size: int) -> None:
    """See that the public vocabulary has the terms that the privatised one is to have.

    Raises:
        ConfigError: if it has not.
    """
    if top > vocabulary_size:
        raise ConfigError(
            f"The privatised vocabulary (top_terms = {top}) is larger than the public one ({vocabulary_size} terms).",
            "Lower top_terms or give a larger vocabulary.",
        )


def top_terms(noisy_counts: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Indices of the ``size`` largest noisy counts, the largest first: ``Int64[size]``. Post-processing."""
    return np.argsort(-noisy_counts, kind="stable")[:size].astype(np.int64)


def noise_floor(noise_std: float, size: int) -> float:
    """A level that pure Gaussian noise on ``size`` terms exceeds at about one term: std * sqrt(2 ln size).

    Noisy counts above it are most likely real; below it the top N is filled with chance terms.
    """
    return noise_std * math.sqrt(2 * math.log(max(size, 2)))
