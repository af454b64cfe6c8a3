"""Copied rows: text, label and every cell, and the share is that of the synthetic rows."""

from __future__ import annotations

import numpy as np

from understudy.base.columns import declared_columns
from understudy.evaluate.metrics.leakage.rows import measure_rows
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import HOLDOUT, SYNTHETIC


def table(*rows: tuple[str, str, int]) -> Sample:
    texts, labels, cells = zip(*rows, strict=True)
    columns = declared_columns("ward=A|B")
    return Sample(texts, labels, cells=np.array(cells, np.int32)[:, None], columns=columns)


def test_only_rows_that_are_equal_in_everything_count() -> None:
    real = table(("a", "x", 0), ("b", "x", 1))
    synthetic = table(("a", "x", 0), ("a", "x", 1), ("a", "y", 0), ("c", "x", 0))
    found = {each.of: each.value for each in measure_rows(real, {SYNTHETIC: synthetic, HOLDOUT: real})}
    assert found == {SYNTHETIC: 0.25, HOLDOUT: 1.0}
    assert not list(measure_rows(Sample(("a",)), {SYNTHETIC: synthetic}))
    assert not list(measure_rows(real, {SYNTHETIC: Sample(("a",))}))
