"""How a table writes dates, numbers, truth and missing values is declared, and each cell is read by it alone."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from understudy.base.columns import Column, declared_columns
from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import read_corpus
from understudy.run.settings import run_config

GERMAN = "Text;Datum;Betrag;Kunde\nZu warm;02.02.2024;1.220,39;ja\nZu kalt;31.12.2024;k. A.;nein\n"
COLUMNS = {
    "Datum": {"kind": "date", "range": ["01.01.2024", "31.12.2024"], "bins": 12},
    "Betrag": {"kind": "number", "range": [0, 2000], "bins": 20},
    "Kunde": "boolean",
}


def _column(kind: str, format_: str, low: object = 0, high: object = 2000) -> Column:
    return declared_columns({"x": {"kind": kind, "range": [low, high], "bins": 20, "format": format_}})[0]


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        (
            "1.234,56",
            {"220,39": 220.39, "1.220,39": 1220.39, "1220": 1220, "-3,5": -3.5, " 12,0 ": 12},
            ["220.39", "1.22"],
        ),
        ("1,234.56", {"1,220.39": 1220.39, "220.39": 220.39}, ["220,39", "1,2,3"]),
        ("1234,56", {"1220,39": 1220.39}, ["1.220,39"]),
        ("1 234,56", {"1\u00a0220,39": 1220.39, "1\u202f220": 1220}, ["1 22"]),
        ("1'234.56", {"1'220.5": 1220.5}, ["1,220.5"]),
        ("1.234,56 €", {"12,50 €": 12.5, "12,50": 12.5}, ["12,50 $"]),
    ],
)
def test_a_number_is_read_by_its_declared_form_alone(format_: str, good: dict[str, float], bad: list[str]) -> None:
    column = _column("number", format_)
    for cell, value in good.items():
        assert column.cell(cell) == column.plain.cell(value), cell
    assert [column.cell(cell) for cell in bad] == [None] * len(bad)


def test_a_point_before_three_digits_is_what_was_declared_and_never_guessed() -> None:
    """The twin: the plain reading takes the same cell for a thousandth of it."""
    assert _column("number", "1.234,56").cell("1.234") == 12
    assert _column("number", "1.234,56").plain.cell("1.234") == 0


def test_dates_have_the_declared_order_of_day_and_month() -> None:
    column = _column("date", "%d.%m.%Y|%d.%m.%Y %H:%M", "2024-01-01", "31.12.2024")
    assert column.cell("2.12.2024") == column.cell("02.12.2024 10:30") == column.plain.cell("2024-12-02")
    assert [column.cell(each) for each in ("2024-12-02", "12/02/2024", "31.02.2024")] == [None] * 3
    american = declared_columns({"x": {"kind": "date", "range": ["2024-01-01", "2024-12-31"]}}, "en-US")[0]
    assert american.cell("02/12/2024") == american.plain.cell("2024-02-12")


def test_truth_is_told_by_the_declared_words_and_a_mark_may_be_one() -> None:
    forms = {"a": "ja|nein", "b": "x|"}
    yes, mark = declared_columns({name: {"kind": "boolean", "format": form} for name, form in forms.items()})
    assert [yes.cell(each) for each in ("Ja", "nein", "", "true")] == [1, 0, 2, None]
    assert [mark.cell(each) for each in ("X", "", "y")] == [1, 0, None]
    assert yes.asked("true").weights.tolist() == [0, 1, 0]  # a condition is not in the table's language


def test_marks_of_missing_cells_give_way_to_declared_values() -> None:
    marked, kept = declared_columns({"a": ["b", "c"], "k": ["-", "c"]}, {"locale": "de", "missing": ["k. A.", "-"]})
    assert [marked.cell("-"), marked.cell(" k. A. "), kept.cell("-")] == [2, 2, 0]
    required = Column("a", "category", values=("b",), required=True, marks=("-",))
    assert required.cell("-") is None


def test_a_german_export_is_read_whole_and_not_at_all_without_its_formats(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    named = {"text": "Text", "columns": COLUMNS, "delimiter": ";", "encoding": "cp1252"}
    formats = {"locale": "de", "missing": "k. A."}
    (batch,) = read_corpus(path, **named, formats=formats).batches()
    assert batch.cells is not None
    assert batch.cells.tolist() == [[1, 12, 1], [11, 20, 0]]
    dates = {"Datum": "2024-01-01..2024-12-31/12"}
    with pytest.raises(CorpusError, match="'Datum' does not declare") as caught:
        list(read_corpus(path, **{**named, "columns": dates}).batches())
    assert "formats: de" in str(caught.value)
    assert "skip" not in str(caught.value)


def test_a_configuration_gives_each_column_its_form_and_the_release_keeps_it() -> None:
    config = run_config({"text": "Text", "columns": COLUMNS, "formats": "de"})
    date, number, truth = config.all_columns
    assert date.format.startswith("%d.%m.%Y|")
    assert (number.format, truth.format.split("|")[0]) == ("1.234,56", "ja,j,wahr,1")
    assert [Column.from_json(each.to_json()).to_json() for each in config.all_columns] == [
        each.to_json() for each in config.all_columns
    ]
    assert pickle.loads(pickle.dumps(date)).cell("02.02.2024") == 1  # engines send columns to other processes
    assert date == date.plain  # how a column is written is no part of what it is
    assert "format" not in run_config({"text": "Text", "columns": {"Kunde": "boolean"}}).all_columns[0].to_json()


@pytest.mark.parametrize(
    "formats",
    ["xx", {"when": "%d"}, {"date": "%B"}, {"date": "dd.mm.yyyy"}, {"number": "0,00"}, {"number": "1.234.56"},
     {"boolean": "ja"}, {"boolean": "ja|ja"}, {"missing": [""]}, {"locale": "de", "missing": 3}],
)  # fmt: skip
def test_formats_that_say_nothing_clear_are_refused(formats: object) -> None:
    with pytest.raises(ConfigError, match="formats are not declared as they should be"):
        declared_columns({"a": "boolean"}, formats)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["category", "identifier"])
def test_a_column_without_numbers_dates_or_truth_has_no_format(kind: str) -> None:
    with pytest.raises(ConfigError, match="has no such format"):
        declared_columns({"a": {"kind": kind, "values": ["b"] if kind == "category" else [], "format": "ja|nein"}})
