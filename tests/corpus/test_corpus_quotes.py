"""What quotes mean in CSV and TSV; a row that is too long or wrongly quoted changes no other row."""

from __future__ import annotations

import csv
import io
import json
import math
import tracemalloc

import numpy as np
import pytest
from corpus_tables import everything_in, rows_of, texts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.base.errors import CorpusError
from understudy.corpus import read_corpus
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.readers import MOST_NESTED, _records, nests_within
from understudy.methods.shared.queries.counts import TermCounts
from understudy.methods.shared.specs import TermCountsSpec
from understudy.privacy.measurement import exact_sum
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit
from understudy.run.parts import Table
from understudy.run.settings import run_config
from understudy.text.vocabulary.words import TermMatcher

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
    assert len(texts_of(Table.of(config).open(private))) == 5


def test_without_quoting_a_lone_carriage_return_is_a_character(write):
    path = write("t.csv", b"note,ward\r\none\rtwo,a\r\n\r\n\nthree,b")
    assert rows_of(read(path, quotes="none")) == [("one\rtwo", "a"), ("three", "b")]


@pytest.mark.parametrize("quotes", ["line", "multiline"])
def test_a_lone_carriage_return_is_content_within_quotes_and_spoils_its_row_outside_of_them(write, private, quotes):
    path = write(
        "t.csv", b'note,ward\r\none\rtwo,a\r\n"one\rtwo",a\r\n"one"\r,a\r\n\n"a,""\r",b\nx\r"y,a\n\r\r\nend,b\nz,b\r'
    )
    corpus = read(path, quotes=quotes, private_dir=private)
    assert rows_of(corpus) == [("one\rtwo", "a"), ('a,"\r', "b"), ("end", "b")]
    lines = [json.loads(line) for line in (private / "bad_rows.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [1, 3, 5, 6, 8]
    assert {line["kind"] for line in lines} == {BadRow.BARE_RETURN.value}
    with pytest.raises(CorpusError, match="carriage return outside quotes") as caught:
        rows_of(read(path, quotes=quotes, on_bad_row="error"))
    assert "rows end at LF or CRLF" in caught.value.cure


@pytest.mark.parametrize("quotes", ["line", "multiline"])
def test_a_header_row_with_a_lone_carriage_return_is_an_error_that_names_the_line_ends(write, quotes):
    with pytest.raises(CorpusError, match="not a header row") as caught:
        read(write("t.csv", "note,ward\rone,a\rtwo,b\r"), quotes=quotes)
    assert "LF or CRLF" in caught.value.cure


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


@pytest.mark.parametrize("quotes", ["line", "multiline"])
def test_a_long_cell_is_good_whatever_the_process_read_before(write, quotes):
    csv.field_size_limit(131_072)  # as in a new process
    path = write("t.csv", 'note,ward\none,a\n"' + "long " * 40_000 + '",b\n')
    assert [len(text) for text in texts_of(read(path, quotes=quotes, on_bad_row="error"))] == [3, 200_000]


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


ALPHABET = st.sampled_from(['"', '""', ",", "\n", "\r\n", "\r", "a", "bcd", '",', ',"', '"\n', '"\r', '\r"'])
FILES = st.lists(ALPHABET, max_size=30).map("".join)


def records_of(text: str, limit: int, delimiter: str = ",") -> list[object]:
    records: list[object] = []
    try:
        records.extend(record for record in _records(io.StringIO(text, newline="\n"), delimiter, limit) if record)
    except csv.Error:
        records.append("error")
    return records


def by_the_letter(text: str) -> list[object]:
    """RFC 4180, a character at a time: rows end at LF or CRLF outside quotes."""
    records, cells, cell, state, bad = [], [], "", "start", False
    text = text if not text or text.endswith("\n") else text + "\n"
    for place, character in enumerate(text):
        if state == "quotes":
            state = "closed" if character == '"' else state
            cell += character if state == "quotes" else ""
        elif state == "closed" and character == '"':
            cell, state = cell + '"', "quotes"
        elif character in ",\n":
            if character == "\n" and not cells and state == "start":
                continue
            cells, cell, state = [*cells, cell], "", "start"
            if character == "\n":
                records.append(BadRow.BARE_RETURN if bad else cells)
                cells, bad = [], False
        elif character == "\r":
            if text[place : place + 2] != "\r\n" or place + 2 > len(text):
                bad, state = True, "cell"
        elif state == "start" and character == '"':
            state = "quotes"
        elif state == "closed":
            return [*records, "error"]
        else:
            cell, state = cell + character, "cell"
    return [*records, "error"] if state != "start" else records


@given(text=FILES.filter(lambda text: not text.endswith("\r")))
@settings(max_examples=600, deadline=None)
def test_rows_end_where_the_letter_of_the_rule_ends_them(text):
    assert records_of(text, 10_000) == by_the_letter(text)


@given(text=FILES, delimiter=st.sampled_from("x;y"))
@settings(max_examples=100, deadline=None)
def test_any_letter_may_separate_cells(text, delimiter):
    same = records_of(text.replace(",", delimiter), 5, delimiter)
    same = [[cell.replace(delimiter, ",") for cell in row] if isinstance(row, list) else row for row in same]
    assert same == records_of(text, 5)


@given(text=FILES, limit=st.integers(1, 12))
@settings(max_examples=400, deadline=None)
def test_a_limit_moves_no_boundary_between_rows(text, limit):
    whole, limited = records_of(text, 10_000), records_of(text, limit)
    assert len(limited) == len(whole)
    assert all(cut in (BadRow.LONG_CELL, row) for cut, row in zip(limited, whole, strict=True))


# -- one record is one row --------------------------------------------------------------------------------------------


BREAKS = ["\r", "\n", "\r\n", *"\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\0\ufeff\x1a"]
TEXTS = st.lists(
    st.sampled_from([*BREAKS, '"', '""', ",", "\t", "\\", "a", "b c", "note"]) | st.text(max_size=3), max_size=20
).map("".join)
TEXTS = TEXTS.filter(lambda text: not any("\ud800" <= character <= "\udfff" for character in text))


def as_csv(text: str, **how: object) -> str:
    """One row with one cell, as Python's writer and pandas write it; pandas quotes no carriage return."""
    stream = io.StringIO(newline="")
    csv.writer(stream, **{"lineterminator": "\n", **how}).writerow([text])
    return stream.getvalue()


def as_pandas(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"\n' if not text or any(character in text for character in ',"\n') else f"{text}\n"


def one_line(text: str) -> str:
    return text.replace("\n", " ") + "\n"


def in_json(text: str) -> str:
    return json.dumps({"note": text}, ensure_ascii=False) + "\n"


WRITERS = {
    "csv, quoted where pandas quotes": ("csv", None, as_pandas),
    "csv, quoted where Python quotes": ("csv", None, as_csv),
    "csv, all quoted": ("csv", None, lambda text: as_csv(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")),
    "csv, quotes end on their line": ("csv", "line", one_line),
    "csv, without quoting": ("csv", "none", one_line),
    "tsv": ("tsv", None, one_line),
    "tsv, quotes end on their line": ("tsv", "line", one_line),
    "tsv, quoted": ("tsv", "multiline", lambda text: as_csv(text, delimiter="\t")),
    "json lines": ("jsonl", None, in_json),
    "a line that need not be JSON": ("jsonl", None, one_line),
}


def table(ending: str, rows: list[bytes]) -> bytes:
    others = {"jsonl": in_json}.get(ending, lambda text: f"{text}\n")
    first, last = others("first").encode(), others("last").encode()
    return (b"" if ending == "jsonl" else b"note\n") + first + b"".join(rows) + last


def read_others(path, content: bytes, **how: object) -> list[str]:
    """The texts of a table, whose first and last row must be there."""
    path.write_bytes(content)
    texts = texts_of(read_corpus(path, text="note", on_bad_row="skip", **how))
    assert (texts[0], texts[-1]) == ("first", "last")
    return texts[1:-1]


@pytest.mark.parametrize("writer", WRITERS)
@given(text=TEXTS)
@settings(max_examples=150, deadline=None)
def test_a_record_of_any_text_adds_itself_or_nothing(tmp_path_factory, writer, text):
    ending, quotes, write = WRITERS[writer]
    path = tmp_path_factory.mktemp("t") / f"t.{ending}"
    found = read_others(path, table(ending, [write(text).encode()]), quotes=quotes)
    assert len(found) <= 1
    if "need not be JSON" not in writer and "\r" not in text and text.strip() and '"' not in text and len(found):
        assert found[0].split() == text.split()


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "latin-1", "shift_jis", "gb18030", "big5", "euc_kr"])
@pytest.mark.parametrize(("ending", "quotes"), [("csv", "line"), ("csv", "none"), ("tsv", None), ("jsonl", None)])
@given(row=st.binary(max_size=30))
@settings(max_examples=25, deadline=None)
def test_a_line_of_any_bytes_adds_itself_or_nothing(tmp_path_factory, encoding, ending, quotes, row):
    path = tmp_path_factory.mktemp("t") / f"t.{ending}"
    content = table(ending, [row.replace(b"\n", b"") + b"\n"])
    assert len(read_others(path, content, quotes=quotes, encoding=encoding)) <= 1


@pytest.mark.parametrize("quotes", ["multiline", "line", "none"])
@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_a_carriage_return_at_the_edge_of_a_buffer_is_read_as_elsewhere(tmp_path, quotes, end):
    for size in (4096, 8192, 16384):
        for place in range(size - 8, size + 3):
            text = "x" * (place - len("note|first|"))
            found = read_others(tmp_path / "t.csv", table("csv", [f"{text}{end}after\n".encode()]), quotes=quotes)
            if end == "\r":
                assert found == ([f"{text}\rafter"] if quotes == "none" else [])
            else:
                assert found == [text, "after"]


def test_a_record_of_thirty_segments_moves_the_vocabulary_by_no_more_than_declared(tmp_path):
    """HL7 v2 ends its segments in CR, which pandas leaves unquoted."""
    words = [f"word{letter}" for letter in "abcdefghij"]
    counts = TermCounts(TermCountsSpec(len(words), terms_per_record=10), TermMatcher(words))
    message = "\r".join("PID|" + " ".join(words) for _ in range(30))

    def evaluate(rows: list[bytes], **how: str):
        path = tmp_path / "t.csv"
        path.write_bytes(table("csv", rows))
        corpus = read_corpus(path, text="note", on_bad_row="skip", **how)
        return exact_sum(counts, BoundedCorpus(corpus, Unit(), b"key"))

    for write in (as_pandas, as_csv, one_line):
        for quotes in ("multiline", "line", "none"):
            moved = evaluate([write(message).encode()], quotes=quotes) - evaluate([], quotes=quotes)
            assert np.linalg.norm(moved) / COUNT_GRID <= math.sqrt(10) + 1e-12


def _called_from(depth: int, call):
    return call() if depth == 0 else _called_from(depth - 1, call)


@pytest.mark.parametrize("nested", [1, MOST_NESTED, MOST_NESTED + 1, 400, 900, 971, 974, 978, 3000])
def test_a_nested_line_is_good_or_bad_whoever_reads_it(write, nested):
    """Python's decoder gives up by the caller's depth: such a line was good before the charge and bad after it."""
    deep = '{"note": "a visitor", "meta": ' + "[" * nested + "]" * nested + "}"
    path = write("t.jsonl", '{"note": "one"}\n' + deep + "\n")
    corpus = read_corpus(path, text="note", on_bad_row="skip")
    seen = {tuple(_called_from(frames, lambda: texts_of(corpus))) for frames in (0, 300, 600, 800)}
    assert seen == {("one", "a visitor") if nested <= MOST_NESTED else ("one",)}


def test_rows_given_as_dicts_may_have_integers_of_any_length() -> None:
    rows = [{"note": "one", "meta": 10**5000}, {"note": 10**5000, "meta": 1}]
    corpus = read_corpus(rows, text="note", on_bad_row="skip")
    assert (texts_of(corpus), len(corpus.identity(b"key").contents)) == (["one"], 2)


def test_rows_given_as_dicts_may_nest_as_they_like(write):
    deep = []
    for _ in range(3000):
        deep = [deep]
    assert read_corpus([{"note": "one", "meta": deep}], text="note").identity(b"key").contents


@pytest.mark.parametrize(
    ("line", "within"),
    [
        ("[[]]", True),
        ("[[[]]]", False),
        ('["[[[["]', True),
        ('["\\"[[[["]', True),
        ('["\\\\",[[]]]', False),
        ('{"a":{"b":[1]}}', False),
        ("[][][][]", True),
        ('"' + '\\"' * 50_000 + "[[[[", True),  # a string without an end: no bracket is outside it
    ],
)
def test_brackets_in_strings_nest_nothing(line, within):
    assert nests_within(line, 2) is within
