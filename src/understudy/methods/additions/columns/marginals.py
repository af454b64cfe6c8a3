"""Query the histograms of typed columns and of sets of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch
from understudy.methods.additions.columns.plan import MarginalsSpec, ScoresSpec
from understudy.privacy.measurement import PlannedQuery
from understudy.privacy.mechanisms import COUNT_GRID


@dataclass(frozen=True)
class Marginals(PlannedQuery[BoundedBatch, MarginalsSpec]):
    """Histograms of sets of variables.

    Guarantee:
        Unit: a record, or an owner whose records are averaged, jointly over all histograms.
        Sensitivity: a record adds ``steps[i]`` to one cell of histogram i: L1 is their sum, L2 the root of the sum of
        their squares, rounded up; an average of such vectors is no longer. In integers: a record adds floor(step /
        records of its owner) to each. The cells are those of declared domains; which histograms there are, and so their
        steps, is public or follows from what was released before.
        Source: the measurements of Private-PGM (McKenna, Sheldon and Miklau 2019, arXiv:1901.09136).
    """

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        """Return the sums of one batch: ``Int64[cells]``."""
        spec, sums = self.spec, np.zeros(self.shape, dtype=np.int64)
        rows = _rows(batch, labelled=spec.labelled)
        steps = spec.steps or (COUNT_GRID,) * len(spec.sets)
        for start, chosen, step in zip(spec.starts, spec.sets, steps, strict=False):
            places = np.ravel_multi_index([rows[each] for each in chosen], [spec.sizes[each] for each in chosen])
            np.add.at(sums, start + places, step // batch.shares)
        return sums


def _rows(batch: BoundedBatch, *, labelled: bool) -> list[NDArray[np.int32]]:
    """Return the cells of every variable."""
    columns = [] if batch.cells is None else list(batch.cells.T)  # empty if all of them form the label
    return [batch.labels, *columns] if labelled else columns


@dataclass(frozen=True)
class IndependenceScores(PlannedQuery[BoundedBatch, ScoresSpec]):
    """How far each set of variables is from independence: the L1 distance of its histogram from an expected one.

    Guarantee:
        Unit: a record, or an owner whose records are averaged.
        Sensitivity: the expected histograms are public or released values, constants here. One more record changes one
        cell of a set's histogram by 1, and with it the L1 distance from a constant by at most 1 (the triangle
        inequality, exact in integers), however many variables the set has; k sets, which are public, give a vector of
        L1 norm at most k, L2 norm at most sqrt(k). An owner's records change a histogram by at most 1 in L1 together,
        each by COUNT_GRID / records of the owner. :meth:`finish` turns the summed histograms into distances; since it
        is not linear, this argument is about the finished value.
        Source: the scores of MST (McKenna, Miklau and Sheldon 2021, arXiv:2108.04978), all released at once.

    Args:
        expected: ``Int64`` of the shape of the sets' sum, in grid units: what independence would give.
    """

    expected: NDArray[np.int64]

    @property
    def partial_shape(self) -> tuple[int, ...]:
        return self.spec.sets.shape

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        return Marginals(self.spec.sets).of_batch(batch)

    def finish(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the L1 distances of the summed histograms from the expected ones: ``Int64[sets]``."""
        return np.array([each.sum() for each in self.spec.sets.split(np.abs(sums - self.expected))], dtype=np.int64)


_MOST_RECORDS = 2.0**40
"""Cap on the number of records taken from a noisy total: what is made of it must fit into 64-bit integers."""


def independent(sets: MarginalsSpec, singles: Sequence[NDArray[np.float64]], total: float) -> NDArray[np.int64]:
    """Return the histograms that ``sets`` would have if their variables were independent, in grid units:
    ``Int64[cells]``. Post-processing.

    Args:
        singles: noisy histogram of each variable; negative counts are 0.
        total: the estimated number of records; at least 1.
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
