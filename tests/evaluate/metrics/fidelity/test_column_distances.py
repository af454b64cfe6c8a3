"""Distances of typed columns: by hand, beside other real rows, and for tables of which one lacks something."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from understudy.base.columns import declared_columns
from understudy.evaluate.metrics.fidelity import measure_fidelity
from understudy.evaluate.metrics.fidelity.texts import column_values
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import HOLDOUT, OTHER_HALF, SYNTHETIC, MetricValue

COLUMNS = declared_columns("ward=A|B; night")
FEW = {"of": SYNTHETIC, "seed": 0, "resamples": 5}


def table(cells: Sequence[Sequence[int]], labels: Sequence[str] | None = None) -> Sample:
    texts = tuple(f"text {number}" for number in range(len(cells)))
    return Sample(texts, None if labels is None else tuple(labels), None, np.array(cells, np.int32), COLUMNS)


def named(values: Sequence[MetricValue], of: str = SYNTHETIC) -> dict[tuple[object, ...], float | None]:
    return {
        (each.metric.name.removeprefix("column_"), *each.settings.values()): each.value
        for each in values
        if each.of == of and each.metric.name.startswith("column")
    }


def test_distances_are_half_the_summed_differences_of_shares_missing_cells_and_labels_included() -> None:
    real = table([[0, 0], [0, 1], [1, 0], [2, 0]], "xxyy")
    other = table([[0, 0], [1, 1], [1, 1], [1, 2]], "xxxx")
    found = named(column_values(real, other, **FEW))  # type: ignore[arg-type]
    assert found == pytest.approx(
        {
            ("distance", "label"): 0.5,
            ("distance", "ward"): 0.5,
            ("distance", "night"): 0.5,
            ("pair_distance", "label", "ward"): 0.75,  # x0 x0 y1 y2 against x0 x1 x1 x1
            ("pair_distance", "label", "night"): 0.5,
            ("pair_distance", "ward", "night"): 0.75,
            ("pairs_mean",): 2 / 3,
            ("pairs_largest",): 0.75,
        }
    )


def fidelity(real: Sample, synthetic: Sample, holdout: Sample | None = None) -> tuple[MetricValue, ...]:
    return measure_fidelity(real, synthetic, holdout=holdout, schema=None, seed=0, resamples=20)


def test_the_yardstick_is_another_half_of_the_real_rows_and_never_the_synthetic_ones() -> None:
    real = table(np.random.default_rng(0).integers(2, size=(100, 2)))
    constant = table([[0, 0]] * 300)
    values = fidelity(real, constant)
    assert 0 < named(values, OTHER_HALF)["pairs_mean",] < 0.3 < named(values)["pairs_mean",]  # type: ignore[operator]
    assert {each.sample_size for each in values if each.metric.name.startswith("column")} == {50}
    assert all(
        each.interval is not None and each.interval.low <= (each.value or 0) <= each.interval.high
        for each in values
        if each.metric.name.startswith("column")
    )


def test_held_out_rows_are_the_yardstick_where_there_are_some() -> None:
    generator = np.random.default_rng(0)
    real, other = table(generator.integers(2, size=(90, 2))), table(generator.integers(2, size=(60, 2)))
    values = fidelity(real, table([[2, 2]] * 80), other)
    assert named(values)["distance", "ward"] == 1
    assert named(values, HOLDOUT)["distance", "ward"] < 0.5  # type: ignore[operator]
    assert not named(values, OTHER_HALF)


def test_tables_too_small_to_halve_have_a_note_and_those_without_columns_nothing() -> None:
    real, synthetic = table([[0, 0]] * 2), table([[0, 0]] * 5)
    assert set(named(fidelity(real, synthetic)).values()) == {None}
    bare = Sample(real.texts)
    assert not named(fidelity(bare, synthetic))
    assert not named(fidelity(real, bare))


def test_rows_keep_their_cells_when_some_are_taken() -> None:
    made = table([[number % 3, number % 2] for number in range(30)])
    for part in (made.at_most(7, seed=1), *made.halves(seed=2)):
        numbers = [int(text.split()[1]) for text in part.texts]
        assert part.cells is not None
        assert part.cells.tolist() == [[number % 3, number % 2] for number in numbers]
        assert part.columns == COLUMNS
    with pytest.raises(ValueError, match="one cell per text"):
        Sample(("a", "b"), cells=np.zeros((2, 1), np.int32), columns=COLUMNS)
