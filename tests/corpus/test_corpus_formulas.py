"""No cell of a CSV file that is written runs in a spreadsheet, and what is read back is what was written."""

from __future__ import annotations

import csv
import json

import pytest
from clinic import in_format
from corpus_tables import rows_of, texts_of
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import ConfigError
from understudy.corpus import read_corpus, write_table
from understudy.corpus.delimited import escaped, unescaped
from understudy.evaluate.synthetic import read_synthetic
from understudy.evaluate.tables import Named, open_table
from understudy.release import PublicSchema
from understudy.run.outputs import OutputFolder
from understudy.text.writing.records import SyntheticRecord

RUN = [
    '=HYPERLINK("http://x")', "+1+cmd|' /C calc'!A0", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "'=1", "''-x",
    "\uff1d1+1", "- an item", "--", "-", "+",
]  # fmt: skip
SAFE = ["a=b", "1-2", "-1", "+4.5", "-1e9", "'tis", "", "x@y.z", "'-1", "\u2212x"]


@pytest.mark.parametrize("cell", RUN)
def test_a_cell_that_a_spreadsheet_would_run_gets_an_apostrophe(cell: str) -> None:
    assert escaped(cell) == f"'{cell}"
    assert unescaped(escaped(cell)) == cell


@pytest.mark.parametrize("cell", SAFE)
def test_any_other_cell_stays_as_it_is(cell: str) -> None:
    assert escaped(cell) == unescaped(cell) == cell


@given(st.text(st.sampled_from("'=+-@1.e \t\n\rx"), max_size=8))
def test_what_is_escaped_is_undone_exactly(cell: str) -> None:
    assert unescaped(escaped(cell)) == cell
    first = escaped(cell).lstrip("'").lstrip()[:1]
    assert not first or first not in "=@" or escaped(cell).startswith("'")


def test_csv_escapes_by_default_and_other_formats_never(tmp_path) -> None:
    columns = {"text": RUN, "=n": [-5] * len(RUN)}
    for ending in ("csv", "jsonl", "parquet"):
        write_table(tmp_path / f"t.{ending}", columns)
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["text", "'=n"]
    assert rows == [[f"'{text}", "-5"] for text in RUN]
    assert texts_of(read_corpus(tmp_path / "t.csv", text="text", formulas_escaped=True)) == RUN
    assert texts_of(read_corpus(tmp_path / "t.jsonl", text="text", formulas_escaped=True)) == RUN
    assert texts_of(read_corpus(tmp_path / "t.parquet", text="text")) == RUN
    write_table(tmp_path / "t.csv", columns, keep_formulas=True)
    assert texts_of(read_corpus(tmp_path / "t.csv", text="text")) == RUN


def test_a_real_table_is_read_as_it_stands(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("note\n'=1\n")
    assert texts_of(read_corpus(tmp_path / "t.csv", text="note")) == ["'=1"]


def test_the_synthetic_table_is_evaluated_and_reported_as_it_was_made(tmp_path) -> None:
    folder = OutputFolder(tmp_path / "out")
    folder.make()
    records = [SyntheticRecord(text, place % 2, {}) for place, text in enumerate(RUN)]
    schema = PublicSchema("note", "label", ("-a", "=b"))
    folder.write_records(records, schema)
    path = in_format({"output": folder.root}, "csv")
    assert rows_of(open_table(path, [Named(("text",), "label")])) == [(r.text, schema.labels[r.label]) for r in records]
    assert [text.text for text in read_synthetic(folder.shareable)] == RUN
    assert {text.label for text in read_synthetic(folder.shareable)} == {"-a", "=b"}


def test_no_control_character_reaches_csv(tmp_path) -> None:
    write_table(tmp_path / "t.csv", {"text": ["a\x00b\x1b[0m\x7f", "c\td\r\ne"]})
    assert texts_of(read_corpus(tmp_path / "t.csv", text="text")) == ["a\ufffdb\ufffd[0m\ufffd", "c\td\r\ne"]
    write_table(tmp_path / "t.jsonl", {"text": ["a\x00b"]})
    assert json.loads((tmp_path / "t.jsonl").read_text()) == {"text": "a\x00b"}


def test_a_damaged_synthetic_table_is_still_one_error(tmp_path) -> None:
    folder = OutputFolder(tmp_path)
    folder.make()
    folder.synthetic_file("csv").write_text("text,label\nonly one\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_synthetic(folder.shareable)
