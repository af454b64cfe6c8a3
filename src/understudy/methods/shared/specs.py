"""The plans of sums that several methods measure: the shape of each, and how far one privacy unit moves it.

Each is a :class:`~understudy.privacy.mechanisms.QuerySpec`. The query of the same name reads the private records; its
*Guarantee* says why the sensitivity holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from understudy.base.display import plural
from understudy.privacy.mechanisms import COUNT_GRID, Sensitivity, Shape
from understudy.privacy.noise import NoiseKind
from understudy.privacy.unit import Unit


@dataclass(frozen=True)
class LabelCountsSpec:
    """The number of records of each of ``labels`` labels
    (:class:`~understudy.methods.shared.queries.counts.LabelCounts`)."""

    labels: int

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(1)

    @property
    def shape(self) -> Shape:
        return (self.labels,)


def planned_label_counts(labels: int) -> tuple[LabelCountsSpec, str]:
    """Return the plan of label counts: the query and its purpose."""
    return LabelCountsSpec(labels), f"noisy counts of the records of {plural(labels, 'label')}"


@dataclass(frozen=True)
class TermCountsSpec:
    """For each of ``terms`` terms, the number of records in which it is among the first S = ``terms_per_record``
    distinct ones (:class:`~understudy.methods.shared.queries.counts.TermCounts`)."""

    terms: int
    terms_per_record: int

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(self.terms_per_record)

    @property
    def shape(self) -> Shape:
        return (self.terms,)


@dataclass(frozen=True)
class TermHistogramSpec:
    """Weighted counts of terms, with a record's weight of 1 divided among its first S = ``terms_per_record`` ones
    (:class:`~understudy.methods.shared.queries.counts.TermHistogram`).

    Args:
        terms: None if the vocabulary is not known before the charge.
        blocks: numbers of rows of each disjoint part of the sum; a record is in one row of each: the number of labels,
            or the cells of each of several columns. Empty: all records are counted together.
    """

    noise: NoiseKind
    terms_per_record: int
    terms: int | None
    blocks: tuple[int, ...] = ()

    @property
    def sensitivity(self) -> Sensitivity:
        one = Sensitivity.of_shared_weight(self.noise, self.terms_per_record)
        return one.in_blocks(max(1, len(self.blocks)))

    @property
    def shape(self) -> Shape:
        return (sum(self.blocks), self.terms) if self.blocks else (self.terms,)


@dataclass(frozen=True)
class VotesSpec:
    """Votes for candidates. A record, or all records of an owner together, have one vote of L2 norm 1
    (:class:`~understudy.methods.shared.votes.VoteHistogram`).

    Args:
        unit: the privacy unit; the votes of all its records together have L2 norm 1.
        nearest: candidates that a record votes for (k), 1 or more.
        candidates: None if their number is not known before the charge.
    """

    unit: Unit
    nearest: int = 1
    candidates: int | None = None

    @property
    def sensitivity(self) -> Sensitivity:
        records = self.unit.max_records if self.unit.kind == "owner" else 1
        return Sensitivity(COUNT_GRID * math.sqrt(self.nearest * records), COUNT_GRID, COUNT_GRID)

    @property
    def shape(self) -> Shape:
        return (self.candidates,)
