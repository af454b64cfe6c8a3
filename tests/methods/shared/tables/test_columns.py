"""Declared columns: every value has one cell, decided by itself, and what declares no finite domain is one error."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.columns import MOST_CELLS, Column, cross_labels, declared_columns
from understudy.base.errors import ConfigError

SHORT = (
    "priority=low|high; stars=1..5; paid=0.0..99.9/20; urgent; opened=2024-01-01..2024-12-31/12; "
    "at=2024-01-01T00:00..2024-01-01T23:59/24; code=7|8"
)
COLUMNS = {column.name: column for column in declared_columns(SHORT)}
EACH = pytest.mark.parametrize("column", COLUMNS.values(), ids=lambda column: column.name)


def test_the_short_form_tells_kinds_by_how_ends_are_written() -> None:
    kinds = {name: column.kind for name, column in COLUMNS.items()}
    assert kinds == {
        **{"priority": "category", "stars": "integer", "paid": "number", "urgent": "boolean"},
        **{"opened": "date", "at": "datetime", "code": "category"},
    }
    assert {name: column.size for name, column in COLUMNS.items()} == {
        **{"priority": 3, "stars": 6, "paid": 21, "urgent": 3, "opened": 13, "at": 25, "code": 3},
    }
    assert COLUMNS["paid"].decimals == 1
    assert COLUMNS["code"].values == (7, 8)


def test_a_file_and_a_mapping_declare_the_same(tmp_path: Path) -> None:
    text = """
    columns:
      priority: [low, high]
      stars: 1..5
      paid: {kind: number, range: [0.0, 99.9], bins: 20, decimals: 1}
      urgent: boolean
      opened: {kind: date, range: [2024-01-01, 2024-12-31], bins: 12}
      at: {kind: datetime, range: ["2024-01-01T00:00", "2024-01-01T23:59"], bins: 24}
      code: {kind: category, values: [7, 8]}
    """
    (tmp_path / "columns.yaml").write_text(text)
    assert declared_columns(f"@{tmp_path / 'columns.yaml'}") == tuple(COLUMNS.values())


@EACH
def test_json_gives_the_column_back(column: Column) -> None:
    assert Column.from_json(json.loads(json.dumps(column.to_json()))) == column
    assert "required" not in column.to_json(), "Releases of versions that knew no such field keep their digest"


@EACH
def test_every_cell_has_values_that_lie_in_it_and_missing_ones_have_their_own(column: Column) -> None:
    generator = np.random.default_rng(0)
    for cell in range(column.size - 1):
        for _ in range(20):
            value = column.sample(cell, generator)
            found = column.cell(value)
            near = 1 if column.kind == "number" else 0  # decimals are rounded
            assert found is not None
            assert abs(found - cell) <= near
            assert column.cell(str(value)) is not None
    assert column.sample(column.missing, generator) is None
    for nothing in (None, "", " \t", float("nan")):
        assert column.cell(nothing) == column.missing == column.size - 1
    assert len({column.title(cell) for cell in range(column.size)}) == column.size


REQUIRED = declared_columns(
    {
        column.name: {**column.to_json(), "required": True}
        for column in (*COLUMNS.values(), declared_columns("one=A")[0])
    }
)


@pytest.mark.parametrize("column", REQUIRED, ids=lambda column: column.name)
def test_a_required_column_has_no_cell_for_missing_values(column: Column) -> None:
    assert column.cell(None) is None
    assert column.cell("") is None
    assert column.size == (len(column.values) or column.bins)
    assert "missing" not in [column.title(cell) for cell in range(column.size)]
    generator = np.random.default_rng(0)
    assert None not in [column.sample(cell, generator) for cell in range(column.size)]
    assert "no cell may be empty" in column.form
    with pytest.raises(ConfigError, match="has no 'missing'"):
        column.asked("missing")
    first = column.title(0).partition(" to ")[0]
    assert column.asked(first).weights.shape == (column.size,)
    assert Column.from_json(json.loads(json.dumps(column.to_json()))) == column


@pytest.mark.parametrize(
    ("name", "value", "cell"),
    [
        *(("stars", value, cell) for value, cell in [(1, 0), ("5", 4), (3.0, 2), (np.int64(2), 1), (-9, 0), (99, 4)]),
        *(("stars", value, cell) for value, cell in [("5.0", 4), (decimal.Decimal("5.00"), 4)]),
        *(("stars", value, None) for value in ["x", 1.5, True, [1], "1e9999", 10**400, b"1"]),
        *(("paid", value, None) for value in [decimal.Decimal("sNaN"), decimal.Decimal("Infinity")]),
        ("paid", 1e300, 19),
        *(("paid", value, cell) for value, cell in [(0, 0), (99.9, 19), ("5", 1), (1e9, 19), (-1, 0)]),
        *(("paid", value, None) for value in ["a lot", True, float("inf"), {}, "1,5"]),
        ("paid", decimal.Decimal("5.00"), 1),
        *(("urgent", value, cell) for value, cell in [(True, 1), ("FALSE", 0), (1, 1), ("no", 0), (0.0, 0)]),
        *(("urgent", value, None) for value in ["perhaps", 2, [True]]),
        *(("priority", value, None) for value in ["Low", "medium", 3, ["low"]]),
        ("code", 7.0, 0),
        ("opened", datetime.date(2024, 2, 29), 1),
        ("opened", datetime.datetime(2024, 2, 29, 23), 1),
        ("opened", "2024-12-31T23:59:59Z", 11),
        ("opened", "1999-01-01", 0),
        ("opened", "9999-12-31", 11),
        *(("opened", value, None) for value in ["soon", 20240101, "2024-13-01", True]),
        ("at", datetime.date(2024, 1, 1), 0),
        ("at", datetime.datetime(2024, 1, 1, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=5))), 0),
        ("at", datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5))), None),
    ],
)
def test_a_value_is_in_one_cell_or_in_none(name: str, value: Any, cell: int | None) -> None:
    assert COLUMNS[name].cell(value) == cell


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**6), st.integers(1, 200), st.data())
def test_bins_of_whole_numbers_divide_the_range(low: int, span: int, bins: int, data: st.DataObject) -> None:
    column = Column("n", "integer", least=low, most=low + span, bins=bins)
    value = data.draw(st.integers(low, low + span))
    cell = column.cell(value)
    assert cell is not None
    first, last = column._whole_bin(cell)
    assert first <= value <= last
    assert column._whole_bin(0)[0] == low
    assert column._whole_bin(column.size - 2)[1] == low + span


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.dates()))
def test_nothing_that_a_file_holds_raises(value: Any) -> None:
    for column in COLUMNS.values():
        cell = column.cell(value)
        assert cell is None or 0 <= cell < column.size


@pytest.mark.parametrize(
    "declared",
    [
        *("", "=", "a=", "a=1..", "a=5..1", "a=1..5/0", "a=x..y", "a=1..2024-01-01", "a=nan..1", "a\tb=x|y"),
        *("a=low|low", "a=low||high", "a;a", "a=1..1000000/1001", "a=low|missing", "@no-such-file"),
        *({}, 5, {"a": None}, {"a": []}, {"a": [None]}, {"a": [1, "x"]}, {"a": [True, 1]}, {"a": [2**70]}, {"": ["x"]}),
        *({"a": {"kind": "identifier", "values": ["x"]}}, {"a": {"kind": "boolean", "required": "yes"}}),
        *({"a": {"kind": "text"}}, {"a": {"kind": "integer"}}, {"a": {"kind": "integer", "range": [1]}}),
        *({"a": {"kind": "integer", "range": ["a", "b"]}}, {"a": {"kind": "integer", "range": [1, 5], "values": [1]}}),
        *({"a": {"kind": "boolean", "values": [1]}}, {"a": {"kind": "category", "values": "low"}}),
        *(
            {"a": {"kind": "integer", "range": [1, 5], "bins": 2.5}},
            {"a": {"kind": "integer", "range": [1, 5], "step": 1}},
        ),
        *({"a": {"kind": "number", "range": [0, 1], "decimals": -1}}, {"a": {"kind": "integer", "range": [0, 2**60]}}),
        *({"a": {"kind": "date", "range": [1, 2]}}, {"a": list(range(MOST_CELLS))}),
    ],
    ids=lambda each: str(each)[:50],
)
def test_what_declares_no_finite_domain_is_one_error(declared: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        declared_columns(declared)
    assert caught.value.cure


@pytest.mark.parametrize("text", ["columns: [", "[1, 2]", "5", "a: 2024-99-99x: :", ""])
def test_a_file_that_is_no_mapping_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError):
        declared_columns(f"@{tmp_path / 'c.yaml'}")


def test_values_far_outside_a_narrow_range_are_its_end() -> None:
    narrow = Column("a", "number", least=0.0, most=1e-8)
    assert narrow.cell(1e300) == narrow.size - 2
    assert narrow.cell(-1e300) == 0


def test_combinations_that_are_written_alike_are_refused() -> None:
    columns = declared_columns({"a": ["x", "x / y"], "b": ["y / z", "z"]})
    with pytest.raises(ConfigError, match="written alike"):
        cross_labels(columns)


# -- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "asked", "cells"),
    [
        ("priority", "high", [1]),
        ("priority", "low|missing", [0, 2]),
        ("stars", "2..4", [1, 2, 3]),
        ("stars", "5", [4]),
        ("opened", "2024-01-05..2024-02-10", [0, 1]),
        ("urgent", "true", [1]),
    ],
)
def test_a_condition_leaves_cells(name: str, asked: str, cells: list[int]) -> None:
    assert np.flatnonzero(COLUMNS[name].asked(asked).weights).tolist() == cells


@pytest.mark.parametrize(
    ("name", "asked", "problem", "cure"),
    [
        ("priority", "medium", "", "low"),
        ("priority", "", "", "low"),
        ("stars", "x", "", "1"),
        ("stars", "7", "has no values in", "It goes from"),
        ("opened", "2026-01-01..2026-02-01", "has no values in", "It goes from"),
        ("paid", "9..1", "ends before it begins", ""),
        ("opened", "2024-05-01..2024-01-01", "ends before it begins", ""),
        ("stars", "4..", "has no", "both ends written out, such as"),
        ("opened", "2024-13-01..2024-12-31", "has no", "both ends written out, such as"),
        ("paid", "50.05", "no values in", ""),
    ],
)
def test_a_condition_that_no_value_meets_says_what_there_is(name: str, asked: str, problem: str, cure: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        COLUMNS[name].asked(asked)
    assert cure in caught.value.cure


@pytest.mark.parametrize(
    ("name", "asked", "low", "high"),
    [
        ("stars", "2..4", 2, 4),
        ("paid", "20..40", 20, 40),
        ("paid", "37", 37, 37),
        ("paid", "3..4|80..81.5", 3, 81.5),
        ("opened", "2024-03-01..2024-05-31", datetime.date(2024, 3, 1), datetime.date(2024, 5, 31)),
        (
            "at",
            "2024-01-01T05:10..2024-01-01T05:20",
            datetime.datetime(2024, 1, 1, 5, 10),
            datetime.datetime(2024, 1, 1, 5, 20),
        ),
    ],
)
def test_values_of_a_condition_lie_within_it(name: str, asked: str, low: Any, high: Any) -> None:
    column, generator = COLUMNS[name], np.random.default_rng(0)
    wanted = column.asked(asked)
    for cell in np.flatnonzero(wanted.weights):
        for _ in range(30):
            value = column.sample(int(cell), generator, wanted.spans)
            assert value is not None
            assert low <= value <= high  # type: ignore[operator]


def test_a_part_of_a_bin_has_its_part_of_the_weight() -> None:
    weights = Column("a", "number", least=0.0, most=40.0, bins=4).asked("5..20").weights
    np.testing.assert_allclose(weights, [0.5, 1, 0, 0, 0])
    weights = Column("a", "integer", least=0, most=39, bins=4).asked("5..19|missing").weights
    np.testing.assert_allclose(weights, [0.5, 1, 0, 0, 1])


def test_one_value_of_a_number_is_as_much_of_its_bin_as_it_has_values() -> None:
    paid = Column("paid", "number", least=0.0, most=500.0, bins=20, decimals=2)
    asked = {text: paid.asked(text).weights.sum() for text in ("50", "50..74.99", "50|60", "50|60..70", "50..50.01")}
    assert asked == pytest.approx(
        {"50": 0.0004, "50..74.99": 0.9996, "50|60": 0.0008, "50|60..70": 0.4004, "50..50.01": 0.0004}
    )
    cell = paid.cell(60)
    assert cell is not None
    generator = np.random.default_rng(0)
    sampled = [paid.sample(cell, generator, paid.asked("50|60..70").spans) for _ in range(200)]
    assert sum(value == 50 for value in sampled) < 5


def test_a_date_with_a_zone_is_the_day_that_it_names() -> None:
    midnight = datetime.datetime(2024, 4, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    assert COLUMNS["opened"].cell(midnight) == COLUMNS["opened"].cell("2024-04-01")
    assert COLUMNS["opened"].cell("2024-04-01T00:00+02:00") == COLUMNS["opened"].cell("2024-04-01")


@pytest.mark.parametrize("name", ["columns.yaml", "folder/columns.yml"])
def test_a_file_without_its_sign_is_told_how_it_is_named(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared_columns(name)
    assert f"@{name}" in caught.value.cure


@pytest.mark.parametrize("text", ["paid=0.0..9.0/9", "paid=0.0..1.0/3", "paid=-2.50..2.50/7"])
def test_a_number_that_is_sampled_lies_in_its_bin_when_it_is_read_again(text: str) -> None:
    (column,) = declared_columns(text)
    generator = np.random.default_rng(0)
    for cell in range(column.bins):
        for _ in range(200):
            value = column.sample(cell, generator)
            assert column.cell(value) == cell
            assert value == round(value, column.decimals)


def test_bins_near_each_other_have_titles_of_their_own() -> None:
    column = Column("a", "number", least=1_000_000.0, most=1_000_001.0)
    assert len({column.title(cell) for cell in range(column.size)}) == column.size
