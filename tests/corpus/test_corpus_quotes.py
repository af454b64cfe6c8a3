"""What quotes mean in CSV and TSV; a row that is too long or wrongly quoted changes no other row."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc

import pytest
from corpus_tables import everything_in, rows_of, texts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.config import run_config
from understudy.corpus import read_corpus
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.delimited import _records
from understudy.errors import CorpusError
from understudy.run.releasing import _open_corpus

STRAY = 'note,ward\none,a\n"Zebra-quux,a\ntwo,b\n5"" nail",a\nthree,b\n'


def read(path, **more):
    return read_corpus(path, **{"text": "note", "label": "ward", "labels": ["a", "b"], "on_bad_row": "skip", **more})


def test_a_stray_quote_swallows_no_row_where_quotes_end_on_their_line(write, private):
    path = write("t.csv", STRAY)
    corpus = read(path, quotes="line", private_dir=private)
    assert rows_of(corpus) == [("one", "a"), ("two", "b"), ('5"" nail"', "a"), ("three", "b")]
    (line,) = (private / "bad_rows.jsonl").read_text().splitlines()
    assert json.loads(line) == {"file": str(path), "row": 2, "kind": BadRow.QUOTES.value}
    with pytest.raises(CorpusError, match="A row's quotes do not pair up") as caught:
        rows_of(read(path, quotes="line", on_bad_row="error"))
    assert "Zebra" not in everything_in(caught.value)


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
def test_without_quoting_every_line_is_a_row_and_quotes_are_characters(write, name):
    tab = "\t" if name == "t.tsv" else ","
    path = write(name, STRAY.replace(",", tab))
    texts = ["one", '"Zebra-quux', "two", '5"" nail"', "three"]
    assert texts_of(read(path, **({} if name == "t.tsv" else {"quotes": "none"}))) == texts


def test_tsv_with_quotes_is_read_when_it_is_asked_for(write):
    path = write("t.tsv", 'note\tward\n"one\tand ""two"""\ta\n"three\nfour"\tb\n')
    assert rows_of(read(path, quotes="multiline")) == [('one\tand "two"', "a"), ("three\nfour", "b")]
    assert rows_of(read(path, quotes="line"))[:1] == [('one\tand "two"', "a")]


def test_a_run_hands_its_choice_of_quotes_to_the_corpus(write, private):
    config = run_config({"data": str(write("t.csv", STRAY)), "text": "note", "quotes": "none"})
    assert len(texts_of(_open_corpus(config, private))) == 5


@pytest.mark.parametrize("quotes", ["line", "none"])
def test_a_lone_carriage_return_ends_no_line_where_a_row_is_a_line(write, quotes):
    path = write("t.csv", b"note,ward\r\none\rtwo,a\r\n\r\n\nthree,b")
    assert rows_of(read(path, quotes=quotes)) == [("one\rtwo", "a"), ("three", "b")]


@pytest.mark.parametrize("quotes", ["line", "none", "multiline"])
@pytest.mark.parametrize("header", ['"' + "x" * 70_000 + '"', '"note'])
def test_a_header_row_that_cannot_be_read_is_one_clear_error(write, quotes, header):
    with pytest.raises(CorpusError):
        read(write("t.csv", f"{header},ward\none,a\n"), quotes=quotes, max_cell_bytes=1000)


LONG = "Zebra " * 50_000
LONG_ROWS = {
    "without quotes": f"{LONG},a\n",
    "without quotes, then a quoted line break": f'{LONG},"a\nb"\n',
    "a quote within a cell without quotes": f'{LONG}5" nail,"a\nb"\n',
    "in quotes": f'"{LONG}",a\n',
    "in quotes with line breaks": '"' + "Zebra\n" * 50_000 + '",a\n',
    "many quotes": '"' + '""' * 200_000 + '",a\n',
    "many cells": "a," * 100_000 + "a\n",
    "quotes, breaks and commas": '"' + '"",\n' * 100_000 + '",a\n',
}


@pytest.mark.parametrize("row", LONG_ROWS)
def test_a_row_that_is_too_long_is_skipped_alone_wherever_its_line_is_cut(write, private, row):
    path = write("t.csv", f"note,ward\none,a\n{LONG_ROWS[row]}two,b\n{LONG_ROWS[row]}")
    corpus = read(path, max_cell_bytes=1000, private_dir=private)
    assert rows_of(corpus) == [("one", "a"), ("two", "b")]
    lines = (private / "bad_rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == [2, 4]
    assert {json.loads(line)["kind"] for line in lines} == {BadRow.LONG_CELL.value}


def test_a_row_that_is_too_long_is_skipped_alone_where_a_row_is_a_line(write):
    path = write("t.csv", f'note,ward\none,a\n{LONG},a\n"{LONG}",a\ntwo,b\n{LONG}')
    for quotes in ("line", "none"):
        assert texts_of(read(path, quotes=quotes, max_cell_bytes=1000)) == ["one", "two"]


def test_quotes_that_are_never_closed_end_the_reading_however_long_the_rest_is_and_fill_no_memory(write):
    path = write("t.csv", 'note,ward\none,a\n"open,a\n' + "Zebra,a\n" * 200_000)
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match="do not pair up") as caught:
            rows_of(read(path, max_cell_bytes=1000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert "Zebra" not in everything_in(caught.value)


ALPHABET = st.sampled_from(['"', '""', ",", "\n", "\r\n", "a", "bcd", '",', ',"', '"\n'])


def records_of(text: str, limit: int) -> list[object]:
    records: list[object] = []
    try:
        records.extend(record for record in _records(io.StringIO(text, newline=""), ",", limit) if record)
    except csv.Error:
        records.append("error")
    return records


@given(text=st.lists(ALPHABET, max_size=30).map("".join), limit=st.integers(1, 12))
@settings(max_examples=400, deadline=None)
def test_a_limit_moves_no_boundary_between_rows(text, limit):
    whole, limited = records_of(text, 10_000), records_of(text, limit)
    assert len(limited) == len(whole)
    assert all(cut in (BadRow.LONG_CELL, row) for cut, row in zip(limited, whole, strict=True))
