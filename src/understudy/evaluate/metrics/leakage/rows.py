"""Whole rows of a table with typed columns that are those of a real row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from understudy.evaluate.metrics.intervals import share_of_texts
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import Metric, MetricValue

COPIED_ROWS = Metric(
    "copied_rows",
    "Copied rows",
    "leakage",
    "Share of rows whose text, label and cells of all typed columns together are those of a real row, in [0, 1]. A "
    "number or a date is its bin.",
    "",
    "lower",
)


def measure_rows(real: Sample, others: Mapping[str, Sample]) -> Iterator[MetricValue]:
    """The share of copied rows of each table; nothing of tables without typed columns."""
    if real.cells is None:
        return
    known = set(_rows(real))
    for of, table in others.items():
        if table.cells is not None:
            copied = np.array([row in known for row in _rows(table)], dtype=np.bool_)
            yield share_of_texts(COPIED_ROWS, copied, of, {})


def _rows(table: Sample) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    assert table.cells is not None
    labels = table.labels or [""] * len(table)
    return zip(table.texts, labels, map(tuple, table.cells.tolist()), strict=True)
