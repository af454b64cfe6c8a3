"""How far the typed columns of two tables are apart: every column, and every pair of columns.

The label is a column, too, and missing values are a cell of each. What a pair tells beyond its two columns is how they
are related; relations of three columns at once are not looked at.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics.fidelity.texts import Ints, total_variation
from understudy.evaluate.metrics.intervals import value_of_subsamples, whole_and_subsamples
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import Metric, MetricValue, Setting

_HOW = (
    "half the summed differences of the shares of all cells, in [0, 1]. Missing values are a cell, and the label is a "
    "column. Larger for fewer rows, so all tables are cut to one size."
)
_SOURCE = "Levin, Peres and Wilmer 2009, proposition 4.2"

COLUMN_DISTANCE = Metric(
    "column_distance",
    "Column distance",
    "fidelity",
    f"Total variation distance of one column: {_HOW}",
    _SOURCE,
    "lower",
)
PAIR_DISTANCE = Metric(
    "column_pair_distance",
    "Distance of a pair of columns",
    "fidelity",
    f"Total variation distance of two columns together: {_HOW}",
    _SOURCE,
    "lower",
)
PAIRS_MEAN = Metric(
    "column_pairs_mean",
    "Pairs of columns, mean distance",
    "fidelity",
    f"Mean over all pairs of columns of their total variation distance: {_HOW}",
    _SOURCE,
    "lower",
)
PAIRS_LARGEST = Metric(
    "column_pairs_largest",
    "Pairs of columns, largest distance",
    "fidelity",
    f"Largest total variation distance of any pair of columns: {_HOW}",
    _SOURCE,
    "lower",
)
COLUMN_METRICS = (COLUMN_DISTANCE, PAIRS_MEAN, PAIRS_LARGEST, PAIR_DISTANCE)
LABEL = "label"
"""What the label is called; no typed column is."""


def column_values(real: Sample, other: Sample, *, of: str, seed: int, resamples: int) -> list[MetricValue]:
    """The distances of two tables with the same typed columns, each of two rows or more.

    Args:
        of: whose the other table is.
        seed, resamples: of the subsamples that intervals come from.
    """
    numbers = _numbered(real, other)
    pairs = list(combinations(numbers, 2))
    tables = [*numbers.values(), *(_together(numbers[a], numbers[b]) for a, b in pairs)]
    chosen = whole_and_subsamples([len(real), len(other)], seed=seed, resamples=resamples)
    found = np.array([_distances(table, *chosen) for table in tables]).T

    def measured(metric: Metric, values: NDArray[np.float64], settings: dict[str, Setting]) -> MetricValue:
        return value_of_subsamples(metric, values, of, low=0.0, high=1.0, settings=settings)

    single, joint = found[:, : len(numbers)], found[:, len(numbers) :]
    values = [measured(COLUMN_DISTANCE, single[:, place], {"column": name}) for place, name in enumerate(numbers)]
    if pairs:
        values.append(measured(PAIRS_MEAN, joint.mean(axis=1), {}))
        values.append(measured(PAIRS_LARGEST, joint.max(axis=1), {}))
    return values + [
        measured(PAIR_DISTANCE, joint[:, place], {"column": a, "other": b}) for place, (a, b) in enumerate(pairs)
    ]


def _numbered(real: Sample, other: Sample) -> dict[str, Ints]:
    """By name, each column of both tables, the real one first, its values numbered without gaps."""
    assert real.cells is not None
    assert other.cells is not None
    found: dict[str, Ints] = {}
    if real.labels is not None and other.labels is not None:
        found[LABEL] = _without_gaps(np.array([*real.labels, *other.labels]))
    for place, column in enumerate(real.columns):
        found[column.name] = _without_gaps(np.concatenate([real.cells[:, place], other.cells[:, place]]))
    return found


def _together(a: Ints, b: Ints) -> Ints:
    return _without_gaps(a * (int(b.max(initial=0)) + 1) + b)


def _without_gaps(values: NDArray[Any]) -> Ints:
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)


def _distances(numbers: Ints, ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> list[float]:
    """Of all rows, then of every subsample, as ``ours`` and ``theirs`` (``Bool[k, rows]``) choose them."""
    real, other = np.split(numbers, [ours.shape[1]])
    cells = int(numbers.max(initial=0)) + 1
    return [total_variation(real[one], other[two], cells) for one, two in zip(ours, theirs, strict=True)]
