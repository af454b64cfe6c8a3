"""One record is one row: whatever its text, it changes no other row, in any format and with any quotes."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from corpus_tables import texts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.corpus import read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.readers import MOST_NESTED, nests_within
from understudy.methods.shared.queries.counts import TermCounts
from understudy.privacy.measurement import exact_sum
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit
from understudy.text.vocabulary.matcher import TermMatcher

BREAKS = [
    "\r",
    "\n",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
    "\0",
    "\ufeff",
    "\x1a",
]
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
    counts = TermCounts(TermMatcher(words), len(words), terms_per_record=10)
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


def test_rows_given_as_dicts_may_nest_as_they_like(write):
    deep = []
    for _ in range(3000):
        deep = [deep]
    assert read_corpus([{"note": "one", "meta": deep}], text="note").identity(b"key", lines=8).contents


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
