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

from understudy.base.errors import ConfigError
from understudy.run.settings import TableParameters
from understudy.schema.columns import MOST_CELLS, Column, cross_labels, declared_columns, parse
from understudy.schema.labels import as_type

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
        **{"priority": 3, "stars": 6, "paid": 21, "urgent": 3, "opened": 13, "at": 25, "code": 3}
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
            assert found == cell
            assert column.cell(str(value)) == cell
    assert column.sample(column.missing, generator) is None
    for nothing in (None, "", " \t", float("nan"), np.float32("nan"), np.datetime64("NaT")):
        assert column.cell(nothing) == column.missing == column.size - 1
    assert len({column.title(cell) for cell in range(column.size)}) == column.size


@pytest.mark.parametrize(
    "declared",
    [
        {"kind": "identifier", "pattern": "P-####"},
        {"kind": "identifier", "format": "no place"},
        {"kind": "identifier", "values": [1, 2]},
        {"identifier": "P-####"},
        {"pattern": "P-####"},
        {"kind": "identifer"},
        "identifier no place",
    ],
)
def test_an_identifier_that_is_declared_wrongly_is_told_the_form_that_works(declared: Any) -> None:
    with pytest.raises(ConfigError, match="identifier P-####"):
        declared_columns({"id": declared})
    for works in ({"id": "identifier P-####"}, "id=identifier P-####"):
        assert declared_columns(works)[0].format == "P-####"
    assert "identifier P-####" in str(TableParameters.model_json_schema()["properties"]["columns"])


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
    with pytest.raises(ConfigError, match=r"has no (value )?'missing'"):
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
        *(("opened", value, None) for value in ["1999-01-01", "9999-12-31", "soon", 2024, "2024-13-01", True]),
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
        *({"a": {"kind": "number", "range": [0, 1], "decimals": -1}}, {"a": {"kind": "integer", "range": [0, 2**63]}}),
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
    with pytest.raises(ConfigError, match="the same name"):
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
    with pytest.raises(ConfigError, match=problem or None) as caught:
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
    np.testing.assert_allclose(weights, [0.5, 1, 0.001, 0, 0])  # 20.00 is one value of a thousand
    weights = Column("a", "integer", least=0, most=39, bins=4).asked("5..19|missing").weights
    np.testing.assert_allclose(weights, [0.5, 1, 0, 0, 1])


def test_one_value_of_a_number_is_as_much_of_its_bin_as_it_has_values() -> None:
    paid = Column("paid", "number", least=0.0, most=500.0, bins=20, decimals=2)
    asked = {text: paid.asked(text).weights.sum() for text in ("50", "50..74.99", "50|60", "50|60..70", "50..50.01")}
    assert asked == pytest.approx(
        {"50": 0.0004, "50..74.99": 1.0, "50|60": 0.0008, "50|60..70": 0.4008, "50..50.01": 0.0008}
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


# -- values are read as they are written, or not at all ---------------------------------------------------------------


def _dates(format_: str, first: str = "2000-01-01", last: str = "2030-12-31", kind: Any = "date") -> Column:
    """A column with a bin for each year."""
    return Column("x", kind, least=first, most=last, bins=int(last[:4]) - int(first[:4]) + 1, format=format_)


@given(st.dates(datetime.date(1940, 1, 1), datetime.date(2039, 12, 31)), st.integers(1850, 2050))
def test_a_year_of_two_digits_has_the_century_of_the_declared_range(day: datetime.date, first: int) -> None:
    column = Column("x", "date", least=f"{first}-01-01", most=f"{first + 99}-12-31", bins=900, format="%d/%m/%y")
    year = first + (day.year - first) % 100
    try:
        read: datetime.date | None = day.replace(year=year)
    except ValueError:  # 29 February of 1900
        read = None
    assert column.cell(day.strftime("%d/%m/%y")) == column.plain.cell(read if read else "no date")


def test_a_year_of_two_digits_without_a_reading_in_the_range_makes_a_bad_row() -> None:
    column = _dates("%d/%m/%y", "1940-01-01", "2005-12-31")
    assert [column.cell(f"01/02/{year}") for year in ("54", "05", "06", "39")] == [14, 65, None, None]
    assert "1940-01-01 to 2005-12-31" in column.form


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [("1905-01-01", "2005-01-01", "more than a hundred years"), ("01.01.40", "31.12.05", "does not have two ends")],
)
def test_years_of_two_digits_that_no_range_tells_apart_are_refused(first: str, last: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Column("x", "date", least=first, most=last, format="%d.%m.%y")
    assert Column("x", "date", least="01.01.1905", most="31.12.2004", format="%d.%m.%y").cell("31.12.04") == 15


@pytest.mark.parametrize(
    "text",
    [
        *("20240301205216513", "20240301205216", "2024030120521", "2024-03-01x20:52", "2024-03-01_20:52"),
        *("2024-03-01+02:00", "2024-03-01Z", "2024-03-01T20:52+14:30", "2024-03-01T20:52+23:00", "2024-03-01T"),
        *("2024-W09-5", "2024W095", "2024-03-01T24:00", "2024-03-01T20:5216", "\u0662\u0660\u0662\u0664-03-01"),
        *("\uff12024-03-01", "2024-03-01T20:52\u0661", "2024-3-1"),
    ],
)
def test_a_time_that_is_written_in_no_usual_way_is_none(text: str) -> None:
    assert parse(text, "datetime") is None
    assert parse(text, "date") is None


@given(
    st.datetimes(datetime.datetime(1000, 1, 2), datetime.datetime(9999, 12, 30)),
    st.sampled_from(["T", "t", " ", "   "]),
    st.sampled_from(["", "Z", "+02:00", "-1130", "+14:00", "+05"]),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds"]),
)
def test_a_written_time_is_read_unchanged(time: datetime.datetime, between: str, zone: str, precision: str) -> None:
    text = time.isoformat(between[0], timespec=precision).replace(between[0], between)
    wanted = datetime.datetime.fromisoformat(time.isoformat(timespec=precision) + zone)
    if wanted.tzinfo is not None:
        wanted = wanted.astimezone(datetime.UTC).replace(tzinfo=None)
    assert parse(text + zone, "datetime") == wanted.replace(microsecond=0)
    assert parse(text + zone, "date") == time.date()


FORMS = [
    *("%d.%m.%Y", "%m/%d/%y", "%d-%b-%y", "%B %d, %Y", "%Y%m%d", "%d%m%Y", "%y%m%d"),
    *("%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%Y%m%d%H%M%S", "%d%m%y %I%M%S%p", "%Y%m%d%H%M%S%f"),
]


@given(st.sampled_from(FORMS), st.datetimes(datetime.datetime(2000, 1, 1), datetime.datetime(2030, 12, 31)))
def test_a_date_in_any_declared_form_is_the_date_that_is_read(form: str, time: datetime.datetime) -> None:
    column, text = _dates(form, kind="datetime" if "S" in form else "date"), time.strftime(form)
    assert column.cell(text) == column.cell(f" {text.upper()}") == column.plain.cell(time)
    if text.isdecimal():  # numbers of Parquet, JSON lines and frames, and a table of numbers saved as CSV
        numbers: list[Any] = [int(text), str(int(text)), decimal.Decimal(text)]
        numbers += [np.int64(int(text))] if int(text) < 2**63 else []
        numbers += [float(text)] if int(text) < 2**53 else []
        assert {column.cell(number) for number in numbers} == {column.cell(text)}


@pytest.mark.parametrize("value", [20240623, 20240623.0, "20240623", "20240623.0", decimal.Decimal("20240623.0")])
def test_eight_digits_are_one_date_however_a_file_holds_them(value: Any) -> None:
    assert COLUMNS["opened"].cell(value) == COLUMNS["opened"].cell("2024-06-23")
    assert parse(value, "date") == datetime.date(2024, 6, 23)


def test_months_have_their_english_names_whatever_the_locale_is() -> None:
    column = _dates("%d-%b-%y|%d %B %Y")
    assert [column.cell(each) for each in ("5-MAR-24", "5 march 2024", "5-M\u00e4r-24", "5-M\u00e4rz-24")] == [
        24,
        24,
        None,
        None,
    ]


@pytest.mark.parametrize(
    "form",
    [
        *("%d.%m", "%d.%m.%Y %y", "%d.%d.%m.%Y", "%d.%m.%b.%Y", "%d.%M.%Y", "%d.%m.%Y %", "%d.%m.%Y %Z"),
        *("%d.%m.%Y %I:%M", "%d.%m.%Y %H:%M %p", "%d.%m.%Y %M", "%d.%m.%Y %H:%S"),
    ],
)
def test_a_form_of_dates_that_leaves_something_open_is_refused(form: str) -> None:
    with pytest.raises(ConfigError, match="a date is written with %d"):
        _dates(form)


@pytest.mark.parametrize(
    "text", ["1_0", "\uff11\uff10", "\u0663", "nan", "inf", "-Infinity", "0x10", "1e999", "5 0", "--5"]
)
def test_what_only_python_takes_for_a_number_is_none(text: str) -> None:
    assert COLUMNS["stars"].cell(text) is None
    assert COLUMNS["paid"].cell(text) is None
    assert as_type(text, "int") is None
    assert as_type(text, "float") is None


# -- numbers are on their grid ----------------------------------------------------------------------------------------


@given(st.integers(-(10**6), 10**6), st.integers(1, 5000), st.integers(0, 6), st.integers(0, 40), st.data())
def test_a_number_is_sampled_with_its_decimals_in_its_bin_and_range(
    low: int, steps: int, decimals: int, bins: int, data: st.DataObject
) -> None:
    least, most = low / 10**decimals, (low + steps) / 10**decimals
    column = Column("x", "number", least=least, most=most, bins=bins, decimals=decimals)
    assert column.bins <= steps + 1
    cell = data.draw(st.integers(0, column.bins - 1))
    value = column.sample(cell, np.random.default_rng(steps))
    assert isinstance(value, float)
    assert least <= value <= most
    assert repr(value) == repr(round(value, decimals))
    assert column.cell(value) == column.cell(repr(value)) == column.cell(f"{value:.{decimals}f}") == cell
    drawn = data.draw(st.integers(low, low + steps)) / 10**decimals
    assert column.read(drawn) == (column.cell(repr(drawn)), False)


@pytest.mark.parametrize(
    ("text", "decimals", "bins"),
    [("0.0..1.0", 1, 11), ("0.0..1.0/20", 1, 11), ("1e-3..1e-1", 3, 16), ("0.00..99.90/20", 2, 20), ("0..1e3", 0, 16)],
)
def test_ends_give_the_decimals_and_bins_are_no_more_than_values(text: str, decimals: int, bins: int) -> None:
    (column,) = declared_columns(f"x={text}")
    assert (column.decimals, column.bins) == (decimals, bins)
    generator = np.random.default_rng(0)
    sampled = [column.sample(cell, generator) for cell in range(bins) for _ in range(20)]
    assert all(repr(value) == repr(round(value, decimals)) for value in sampled)  # type: ignore[arg-type, call-overload]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64), st.integers(1, 999), st.data())
def test_whole_numbers_of_any_size_stay_exact(low: int, span: int, bins: int, data: st.DataObject) -> None:
    column = Column("x", "integer", least=low, most=min(low + span, 2**63 - 1), bins=bins)
    cell = data.draw(st.integers(0, column.bins - 1))
    value = column.sample(cell, np.random.default_rng(0))
    assert isinstance(value, int)
    assert low <= value <= column.most
    assert column.cell(value) == column.cell(str(value)) == cell


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ("0..9223372036854775808", "more than 64 bits"),
        ("0.00..1e16", "more digits than a decimal number can store"),
        ({"kind": "number", "range": [0.11, 0.19], "decimals": 1}, "no number with this many decimals"),
    ],
)
def test_a_range_that_cannot_be_kept_exactly_is_refused(declared: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        declared_columns({"x": declared})


def test_the_last_day_or_minute_of_a_range_of_times_is_in_it() -> None:
    days = Column("x", "datetime", least="2024-01-01", most=datetime.date(2024, 12, 31))
    minutes = COLUMNS["at"]
    assert days.cell("2024-12-31T23:59:59.9") == 15
    assert minutes.cell("2024-01-01T23:59:59") == 23
    assert minutes.cell("2024-01-02T00:00") is None
    assert minutes.title(0) == "2024-01-01 00:00:00 to 2024-01-01 00:59:59"


def test_amounts_beyond_a_range_are_its_ends_and_are_said_to_be() -> None:
    assert [COLUMNS["stars"].read(each) for each in (0, 5, "6", None)] == [(0, True), (4, False), (4, True), (5, False)]
    assert COLUMNS["paid"].read(99.96) == (19, True)
    assert COLUMNS["opened"].read("2025-01-01") == (None, False)


def test_a_mark_is_a_missing_cell_however_a_file_holds_it() -> None:
    column = Column("x", "integer", least=0, most=9, marks=("-1",))
    assert [column.cell(value) for value in ("-1", -1, -1.0, 1)] == [10, 10, 10, 1]
    assert column.cell(10**5000) is None, "more digits than Python spells"
