"""What is written is read back the same, and a file is there whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
from contextlib import suppress

import pyarrow.parquet as pq
import pytest
from clinic import in_format
from corpus_tables import rows_of, texts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import read_corpus, write_table
from understudy.corpus.readers import escaped, unescaped
from understudy.evaluate.synthetic import read_synthetic
from understudy.evaluate.tables import Named, open_table
from understudy.release import PublicSchema
from understudy.run.outputs import OutputFolder
from understudy.text.records import SyntheticRecord

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(lambda text: text.strip())
ROWS = st.lists(st.tuples(TEXTS, st.sampled_from(["a", "b,", 'c"\r\n', "d\n"])), max_size=8)
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
LABELS = ["a", "b,", 'c"\r\n', "d\n"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@given(rows=ROWS)
@settings(max_examples=60, deadline=None)
def test_any_text_and_label_is_read_back_as_it_was_written(tmp_path_factory, ending, rows):
    path = tmp_path_factory.mktemp("table") / f"t.{ending}"
    columns = {'the "text"': [text for text, _ in rows], "label,": [label for _, label in rows]}
    write_table(path, columns)
    read = read_corpus(path, text='the "text"', label="label,", labels=LABELS, formulas_escaped=ending == "csv")
    shown = [(CONTROLS.sub("\ufffd", text) if ending == "csv" else text, label) for text, label in rows]
    assert rows_of(read) == shown


@given(rows=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=6))
@settings(max_examples=60, deadline=None)
def test_skipping_never_fails_on_a_written_csv(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    write_table(path, {"t": [row[0] for row in rows], "o": [row[1] for row in rows]})
    kept = rows_of(read_corpus(path, text="t", owner="o", on_bad_row="skip", formulas_escaped=True))
    replaced = [
        tuple(
            CONTROLS.sub("\ufffd", cell.encode("utf-16", "surrogatepass").decode("utf-16", "replace")) for cell in row
        )
        for row in rows
    ]
    expected = [(text, None) for text, owner in replaced if text.strip() and owner.strip()]
    assert [row[:2] for row in kept] == expected


@given(data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "csv.gz", "csv.zst"])
def test_any_bytes_are_read_or_are_a_corpus_error(tmp_path_factory, ending, data):
    path = tmp_path_factory.mktemp("bytes") / f"t.{ending}"
    path.write_bytes(b"t,u\n" + data if ending == "csv" else data)
    with suppress(CorpusError):
        texts_of(read_corpus(path, text="t", on_bad_row="skip"))


def test_labels_keep_their_type_in_parquet_and_json(tmp_path):
    columns = {"text": ["x", "y"], "n": [1, 2], "b": [True, False], "f": [0.5, 1.0], "s": ["1", None]}
    write_table(tmp_path / "t.parquet", columns)
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.to_pydict() == columns
    assert [str(t) for t in table.schema.types] == ["string", "int64", "bool", "double", "string"]
    write_table(tmp_path / "t.jsonl", columns)
    first = (tmp_path / "t.jsonl").read_text().splitlines()[0]
    assert first == '{"text": "x", "n": 1, "b": true, "f": 0.5, "s": "1"}'
    write_table(tmp_path / "t.csv", columns)
    assert (tmp_path / "t.csv").read_bytes() == b"text,n,b,f,s\r\nx,1,true,0.5,1\r\ny,2,false,1.0,\r\n"


def test_halves_of_surrogate_pairs_are_joined_or_replaced(tmp_path):
    for ending in ("csv", "jsonl", "parquet"):
        write_table(tmp_path / f"t.{ending}", {"t": ["\ud83c\udf88 up", "half \ud83c"]})
        assert texts_of(read_corpus(tmp_path / f"t.{ending}", text="t")) == ["🎈 up", "half \ufffd"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_table_without_rows_is_written_and_read(tmp_path, ending):
    write_table(tmp_path / f"t.{ending}", {"t": [], "l": []})
    assert texts_of(read_corpus(tmp_path / f"t.{ending}", text="t", label="l", labels="a")) == []


def test_a_written_file_has_ordinary_permissions(tmp_path):
    before = os.umask(0o022)
    try:
        write_table(tmp_path / "t.csv", {"t": ["x"]})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "t.csv").stat().st_mode) == 0o644


class Unspellable:
    def __str__(self) -> str:
        raise RuntimeError("not today")


@pytest.mark.parametrize(("ending", "error"), [("csv", RuntimeError), ("jsonl", TypeError), ("parquet", TypeError)])
def test_a_write_that_fails_leaves_the_file_that_was_there(tmp_path, ending, error):
    path = tmp_path / f"t.{ending}"
    write_table(path, {"t": ["before"]})
    with pytest.raises(error):
        write_table(path, {"t": ["after", Unspellable()]})
    assert texts_of(read_corpus(path, text="t")) == ["before"]
    assert list(tmp_path.iterdir()) == [path]


# -- no cell of a CSV file that is written runs in a spreadsheet, and what is read back is what was written -----------


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
    assert rows_of(open_table(path, [Named(("note",), "label")])) == [(r.text, schema.labels[r.label]) for r in records]
    assert [text.text for text in read_synthetic(folder.shareable)] == RUN
    assert {text.label for text in read_synthetic(folder.shareable)} == {"-a", "=b"}


def test_no_control_character_reaches_csv(tmp_path) -> None:
    write_table(tmp_path / "t.csv", {"text": ["a\x00b\x1b[0m\x7f", "c\td\r\ne"]})
    assert texts_of(read_corpus(tmp_path / "t.csv", text="text")) == ["a\ufffdb\ufffd[0m\ufffd", "c\td\r\ne"]
    write_table(tmp_path / "t.jsonl", {"text": ["a\x00b"]})
    assert json.loads((tmp_path / "t.jsonl").read_text()) == {"text": "a\x00b"}


def test_an_unknown_ending_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"\.parquet, \.csv, \.tsv or \.jsonl"):
        write_table(tmp_path / "t.xlsx", {"t": []})
