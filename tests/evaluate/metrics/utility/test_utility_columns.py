"""Columns told from the text: trained on one table, tested on real rows, beside the most frequent value."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.base.columns import declared_columns
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.columns import measure_columns
from understudy.evaluate.metrics.value import MAJORITY, REAL, REAL_ALL, SYNTHETIC

COLUMNS = declared_columns("ward=A|B; night")
WORDS = ("heart pulse", "rash itch", "unknown")


def table(count: int, *, wrong: bool = False, ones: int = 2) -> Sample:
    """Texts that tell the ward, or the other one; every ``ones``th is of ward B."""
    wards = [int(number % ones == 0) for number in range(count)]
    texts = tuple(f"{WORDS[1 - ward if wrong else ward]} {number % 7}" for number, ward in enumerate(wards))
    return Sample(texts, cells=np.array([[ward, 0] for ward in wards], np.int32), columns=COLUMNS)


def test_a_column_is_learned_from_each_table_s_own_texts_and_tested_on_real_ones() -> None:
    tables = {SYNTHETIC: table(20, wrong=True), "bare": Sample(("heart",), ("x",))}
    values = list(measure_columns(table(60), table(40, ones=4), tables, seed=0))
    found = {(each.of, each.metric.name): each for each in values if each.settings["column"] == "ward"}
    accuracy = {of: each.value for (of, name), each in found.items() if name == "column_accuracy"}
    assert accuracy == {SYNTHETIC: 0, REAL: 1, REAL_ALL: 1, MAJORITY: 0.75}
    assert found[MAJORITY, "column_macro_f1"].value == pytest.approx((2 * 30 / 70) / 2)
    assert {of: found[of, "column_accuracy"].sample_size for of in (SYNTHETIC, REAL, REAL_ALL)} == {
        SYNTHETIC: 20,
        REAL: 20,
        REAL_ALL: 60,
    }


def test_a_column_of_one_value_is_left_out_with_a_note() -> None:
    values = list(measure_columns(table(20), table(20), {SYNTHETIC: table(30)}, seed=0))
    night = [each for each in values if each.settings["column"] == "night"]
    assert {(each.value, each.note) for each in night} == {(None, "All real rows have one value.")}
    assert {each.of for each in values} == {SYNTHETIC, REAL_ALL, MAJORITY}  # there are not more real rows
