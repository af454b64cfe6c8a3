"""How many records have each value of typed columns, and each pair of values of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import COUNT_GRID, Sensitivity


@dataclass(frozen=True)
class Marginals(Query[BoundedBatch]):
    """Histograms of sets of variables, one behind the other, the last variable of each set moving fastest.

    The first variable is the label where there are labels; the others are the typed columns.

    Guarantee:
        Unit: a record, or an owner whose records are averaged, jointly over all histograms.
        Sensitivity: a record adds ``steps[i]`` to one cell of histogram i: L1 is their sum, L2 the root of the sum of
        their squares, rounded up; an average of such vectors is no longer. In integers: a record adds floor(step /
        records of its owner) to each. The cells are those of declared domains; which histograms there are, and so their
        steps, is public or follows from what was released before.
        Source: the measurements of Private-PGM (McKenna, Sheldon and Miklau 2019, arXiv:1901.09136).

    Args:
        steps: what a record adds to each histogram, in grid units; none: COUNT_GRID, so that records are counted.
    """

    sizes: tuple[int, ...]  # cells of each variable
    sets: tuple[tuple[int, ...], ...]  # of variables; a histogram each
    labelled: bool  # whether the first variable is the label
    steps: tuple[int, ...] = ()

    @classmethod
    def sharing(
        cls, sizes: tuple[int, ...], sets: tuple[tuple[int, ...], ...], *, labelled: bool, shares: NDArray[np.float64]
    ) -> Self:
        """Histograms that together have L2 sensitivity 1, however many there are, so that a noise multiplier which is
        planned before they are known is right for any of them.

        Args:
            shares: what a record adds to each, ``Float64[sets]`` of L2 norm 1; rounded down.
        """
        steps = np.floor(shares * (COUNT_GRID * (1 - 1e-12))).astype(np.int64)
        return cls(sizes, sets, labelled, tuple(steps.tolist()))

    @property
    def shape(self) -> tuple[int, ...]:
        return (int(self._starts[-1]),)

    @property
    def sensitivity(self) -> Sensitivity:
        if not self.steps:
            return Sensitivity.of_counts(len(self.sets))
        squares = sum(step**2 for step in self.steps)
        return Sensitivity(sum(self.steps), math.isqrt(squares - 1) + 1, COUNT_GRID)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        """``Int64[cells]``."""
        sums = np.zeros(self.shape, dtype=np.int64)
        rows = _rows(batch, labelled=self.labelled)
        steps = self.steps or (COUNT_GRID,) * len(self.sets)
        for start, chosen, step in zip(self._starts, self.sets, steps, strict=False):
            places = np.ravel_multi_index([rows[each] for each in chosen], [self.sizes[each] for each in chosen])
            np.add.at(sums, start + places, step // batch.shares)
        return sums

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The histograms of a vector of this query's shape, each with a dimension per variable."""
        return [
            values[start : start + math.prod(shape)].reshape(shape)
            for start, shape in zip(self._starts.tolist(), self._shapes, strict=False)
        ]

    @property
    def per_record(self) -> NDArray[np.float64]:
        """``Float64[sets]``: what a record adds to each histogram, in units of the released value."""
        return np.array(self.steps or (COUNT_GRID,) * len(self.sets)) / COUNT_GRID

    def in_records(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """A vector of this query's shape with each histogram in records."""
        return values / np.repeat(self.per_record, np.diff(self._starts))

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(self.sizes[each] for each in chosen) for chosen in self.sets]

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(math.prod(shape) for shape in self._shapes)], dtype=np.int64)


def _rows(batch: BoundedBatch, *, labelled: bool) -> list[NDArray[np.int32]]:
    """The cells of every variable."""
    columns = [] if batch.cells is None else list(batch.cells.T)  # none where the label is made of all of them
    return [batch.labels, *columns] if labelled else columns


@dataclass(frozen=True)
class IndependenceScores(Query[BoundedBatch]):
    """How far each set of variables is from independence: the L1 distance of its histogram from an expected one.

    Guarantee:
        Unit: a record, or an owner whose records are averaged.
        Sensitivity: the expected histograms are public or released values, constants here. One more record changes one
        cell of a set's histogram by 1, and with it the L1 distance from a constant by at most 1 (the triangle
        inequality, exact in integers), however many variables the set has; k sets, which are public, give a vector of
        L1 norm at most k, L2 norm at most sqrt(k). An owner's records change a histogram by at most 1 in L1 together,
        each by COUNT_GRID / records of the owner.
        :meth:`finish` is what makes distances of sums; it is not linear, so that this argument is about the finished
        value.
        Source: the scores of MST (McKenna, Miklau and Sheldon 2021, arXiv:2108.04978), all released at once.

    Args:
        expected: ``Int64`` of the shape of the sets' sum, in grid units: what independence would give.
    """

    sets: Marginals  # their histograms
    expected: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sets.sets),)

    @property
    def partial_shape(self) -> tuple[int, ...]:
        return self.sets.shape

    @property
    def sensitivity(self) -> Sensitivity:
        return self.sets.sensitivity

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return self.sets.of_batch(batch)

    def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """``Int64[sets]``."""
        return np.array([each.sum() for each in self.sets.split(np.abs(sums - self.expected))], dtype=np.int64)


_MOST_RECORDS = 2.0**40
"""Cap on the number of records taken from a noisy total: what is made of it must fit into 64-bit integers."""


def independent(sets: Marginals, singles: Sequence[NDArray[np.float64]], total: float) -> NDArray[np.int64]:
    """The histograms of ``sets`` if variables were independent, in grid units: post-processing of released values.

    Args:
        singles: noisy histogram of each variable; negative counts are 0.
        total: about how many records there are; at least 1.
    """
    shares = [np.maximum(each, 0) / max(np.maximum(each, 0).sum(), 1.0) for each in singles]
    total = min(max(total, 1.0), _MOST_RECORDS)
    expected = [
        reduce(np.multiply.outer, (shares[each] for each in chosen), total * step).ravel()
        for chosen, step in zip(sets.sets, sets.per_record, strict=True)
    ]
    found = np.concatenate(expected) if expected else np.zeros(0)
    steps: NDArray[np.int64] = np.rint(found * COUNT_GRID).astype(np.int64)
    return steps
