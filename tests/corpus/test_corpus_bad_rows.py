"""A bad row is one clear error, or is skipped by a look at itself alone; nothing private is in any message."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import stat

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import everything_in, rows_of, texts_of

from understudy.base.errors import CorpusError
from understudy.corpus import read_corpus
from understudy.corpus.bad_rows import BadRow

SECRET = "Zebra-quux"
OPTIONS = {"text": "note", "label": "ward", "labels": ["a", "b"], "owner": "who"}
HEADER = b"note,ward,who\n"
GOOD = [("good one", "a", "anna"), ("good two", "b", "bert")]

BAD_CSV = {
    BadRow.EMPTY_TEXT: [b",a,x\n", b'" \t",a,x\n', "\u2003,a,x\n".encode()],
    BadRow.ENCODING: [b"Zebra-quux \xff,a,x\n", b"t,a,Zebra-quux\xc3\n", b"Zebra-quux \xed\xa0\x80,a,x\n"],
    BadRow.LONG_CELL: [b"Zebra-quux" * 200 + b",a,x\n", b"t,a," + b"Zebra-quux" * 200 + b"\n"],
    BadRow.NULL_LABEL: [b"Zebra-quux,,x\n"],
    BadRow.UNKNOWN_LABEL: [b"t,Zebra-quux,x\n", b"t,A,x\n", b"t, a,x\n"],
    BadRow.NULL_OWNER: [b"Zebra-quux,a,\n", b"Zebra-quux,a, \n"],
    BadRow.FIELD_COUNT: [b"Zebra-quux,a\n", b"Zebra-quux,a,x,y\n", b"Zebra-quux\n"],
}
BAD_JSON = {
    BadRow.EMPTY_TEXT: [{"note": ""}, {"note": None}, {"text": SECRET, "note": None}],
    BadRow.TEXT_TYPE: [{"note": 5}, {"note": [SECRET]}, {"note": {SECRET: 1}}, {"note": True}],
    BadRow.ENCODING: [b'{"note": "Zebra-quux \\ud800", "ward": "a", "who": "x"}', {"who": "\udfff" + SECRET}],
    BadRow.LONG_CELL: [{"note": SECRET * 200}, {"note": "é" * 600}, {"more": SECRET * 30_000}],
    BadRow.NULL_LABEL: [{"ward": None, "note": SECRET}, {"ward": ""}],
    BadRow.UNKNOWN_LABEL: [{"ward": SECRET}, {"ward": 1}, {"ward": [SECRET]}, {"ward": {}}],
    BadRow.NULL_OWNER: [{"who": None, "note": SECRET}, {"who": [SECRET]}],
    BadRow.INEXACT_OWNER: [{"who": 9007199254740992.0}, {"who": -1e17}],
    BadRow.INVALID_JSON: [
        b'{"note": "Zebra-quux", "ward"', b"Zebra-quux", b'{"note": "Zebra-quux", "note": "x", "ward": "a"}',
        b'{"note": "Zebra-quux", "x": NaN}', b"[" * 50_000, b'{"note": "Zebra-quux", "x": ' + b"9" * 5000 + b"}",
    ],
    BadRow.NOT_AN_OBJECT: [b'"Zebra-quux"', b'["Zebra-quux"]', b"7", b"null"],
}  # fmt: skip


def csv_bytes(bad: bytes) -> bytes:
    return HEADER + b"good one,a,anna\n" + bad + b"good two,b,bert\n"


def jsonl_bytes(bad: dict[str, object] | bytes) -> bytes:
    if isinstance(bad, dict):
        bad = json.dumps({"note": "t", "ward": "a", "who": "x", **bad}).encode()
    good = [json.dumps(dict(zip(("note", "ward", "who"), row, strict=True))).encode() for row in GOOD]
    return b"\n".join([good[0], bad, good[1], b""])


# Not of a format that is declared otherwise than the table is, for which skipping rows is no cure.
OF_ONE_ROW = {
    *(BadRow.EMPTY_TEXT, BadRow.LONG_CELL, BadRow.VALUE_TYPE, BadRow.SECRETS_TYPE, BadRow.EMPTY_TURN),
    *(BadRow.NULL_LABEL, BadRow.UNKNOWN_LABEL, BadRow.NULL_OWNER),
}
CASES = [("t.csv", kind, csv_bytes(bad)) for kind, rows in BAD_CSV.items() for bad in rows]
CASES += [("t.jsonl", kind, jsonl_bytes(bad)) for kind, rows in BAD_JSON.items() for bad in rows]


@pytest.mark.parametrize(("name", "kind", "content"), CASES)
def test_a_bad_row_is_one_clear_error_whose_number_is_private_or_is_skipped_alone(write, private, name, kind, content):
    path = write(name, content)
    corpus = read_corpus(path, **OPTIONS, max_cell_bytes=1000, private_dir=private)
    with pytest.raises(CorpusError, match=r"private/bad_rows\.jsonl") as caught:
        texts_of(corpus)
    assert SECRET not in everything_in(caught.value)
    assert caught.value.__context__ is None
    assert not re.search(r"\d", str(caught.value).replace(str(private), "").replace("cp1252", ""))
    assert ("max_bad_rows" in str(caught.value)) == (kind in OF_ONE_ROW)
    (line,) = (private / "bad_rows.jsonl").read_text().splitlines()
    assert json.loads(line) == {"file": str(path), "row": 2, "kind": kind.value}
    assert stat.S_IMODE((private / "bad_rows.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert not (private / "skipped_rows.json").exists()
    corpus = read_corpus(path, **OPTIONS, max_cell_bytes=1000, private_dir=private, on_bad_row="skip")
    for _ in range(2):  # counted once a pass
        assert rows_of(corpus) == GOOD
        counts = json.loads((private / "skipped_rows.json").read_text())
        assert counts == {"skipped": 1, "kinds": {kind.value: 1}}
    assert stat.S_IMODE((private / "skipped_rows.json").stat().st_mode) == 0o600
    assert {path.name for path in private.iterdir()} == {"bad_rows.jsonl", "skipped_rows.json"}


def test_without_a_private_folder_nothing_is_written_and_the_error_does_not_point_there(write, tmp_path):
    path = write("t.csv", csv_bytes(b",a,x\n"))
    with pytest.raises(CorpusError) as caught:
        texts_of(read_corpus(path, **OPTIONS))
    assert (
        str(caught.value) == "A row has an empty text (column 'note'). Fix the row or skip such rows with max_bad_rows."
    )
    assert texts_of(read_corpus(path, **OPTIONS, on_bad_row="skip")) == ["good one", "good two"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_text_that_is_a_dialogue_is_told_of_the_roles(write):
    path = write("t.jsonl", jsonl_bytes({"note": [{"role": "agent", "content": SECRET}]}))
    with pytest.raises(CorpusError, match=r'roles=\["A", "B"\]') as caught:
        texts_of(read_corpus(path, **OPTIONS))
    assert SECRET not in everything_in(caught.value)


def test_rows_before_the_first_bad_one_and_none_behind_it_are_handed_out(write, private):
    path = write("t.csv", HEADER + b"one,a,x\n,a,x\nthree,a,x\n,b,y\n")
    batches = read_corpus(path, **OPTIONS, private_dir=private).batches(1)
    assert next(batches).texts == ["one"]
    with pytest.raises(CorpusError):
        next(batches)
    rows = [json.loads(line)["row"] for line in (private / "bad_rows.jsonl").read_text().splitlines()]
    assert rows == [2, 4]  # all of them, so that they can be mended at once


def test_a_pass_that_is_broken_off_leaves_the_last_full_pass_counts(write, private):
    corpus = read_corpus(write("t.csv", csv_bytes(b",a,x\n")), **OPTIONS, private_dir=private, on_bad_row="skip")
    texts_of(corpus)
    before = {path.name: path.stat().st_mtime_ns for path in private.iterdir()}
    batches = corpus.batches(1)
    assert next(batches).texts == ["good one"]
    assert next(batches).texts == ["good two"]
    batches.close()
    assert {path.name: path.stat().st_mtime_ns for path in private.iterdir()} == before


def test_a_clean_pass_removes_the_list_of_an_earlier_one(write, private):
    options = {**OPTIONS, "private_dir": private}
    with pytest.raises(CorpusError):
        texts_of(read_corpus(write("t.csv", csv_bytes(b",a,x\n")), **options))
    assert (private / "bad_rows.jsonl").exists()
    texts_of(read_corpus(write("t.csv", csv_bytes(b"")), **options))
    assert not (private / "bad_rows.jsonl").exists()


def test_skipping_a_row_does_not_depend_on_the_other_rows(write):
    bad = [rows[0] for rows in BAD_CSV.values()]
    good = [f"text {i},a,o{i}\n".encode() for i in range(len(bad))]
    mixed = b"".join(row for pair in zip(bad, good, strict=True) for row in pair)
    apart = b"".join(good)
    options = {**OPTIONS, "on_bad_row": "skip", "max_cell_bytes": 1000}
    assert rows_of(read_corpus(write("t.csv", HEADER + mixed), **options)) == rows_of(
        read_corpus(write("u.csv", HEADER + apart), **options)
    )


def test_a_ten_megabyte_cell_is_skipped_in_every_format(write, tmp_path):
    huge = "x" * 10_000_000
    pq.write_table(pa.table({"note": ["one", huge, "two"]}), tmp_path / "t.parquet")
    write("t.csv", f"note\none\n{huge}\ntwo\n")
    write("q.csv", f'note\none\n"{huge}\n"\ntwo\n')
    write("t.jsonl", "".join(json.dumps({"note": text}) + "\n" for text in ("one", huge, "two")))
    for name in ("t.csv", "q.csv", "t.jsonl", "t.parquet"):
        assert texts_of(read_corpus(tmp_path / name, text="note", on_bad_row="skip")) == ["one", "two"]
        with pytest.raises(CorpusError, match="longer than the limit"):
            texts_of(read_corpus(tmp_path / name, text="note"))


def test_what_other_columns_hold_does_not_matter(write):
    path = write("t.csv", b"other,note\n\xff" + b"x" * 2000 + b",one\n")
    assert texts_of(read_corpus(path, text="note", max_cell_bytes=1000)) == ["one"]


def test_null_characters_and_odd_unicode_are_text(write):
    odd = ["nul \x00 byte", "line\u2028sep\u0085", "\u200b", "🏳️‍🌈", "א\u202eב", "\ufeffx"]
    path = write("t.jsonl", "".join(json.dumps({"note": text}) + "\n" for text in odd))
    assert texts_of(read_corpus(path, text="note")) == odd
    assert texts_of(read_corpus(write("t.csv", "note\n" + "\n".join(odd) + "\n"), text="note")) == odd


def test_parquet_strings_that_are_not_utf8_are_bad_rows(tmp_path, private):
    broken = pa.array([b"one", b"Zebra-quux \xff", b"three"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"note": broken, "tags": [["a"], ["b"], ["c"]]}), tmp_path / "t.parquet")
    options = {"text": "note", "secrets": "tags", "private_dir": private}
    assert texts_of(read_corpus(tmp_path / "t.parquet", **options, on_bad_row="skip")) == ["one", "three"]
    with pytest.raises(CorpusError, match="encoding") as caught:
        texts_of(read_corpus(tmp_path / "t.parquet", **options))
    assert SECRET not in everything_in(caught.value)


@pytest.mark.parametrize("secrets", [5, [5], {"a": 1}, ["ok", None], ["\ud800"]])
def test_secrets_that_are_not_strings_make_a_bad_row(secrets):
    rows = [{"note": "one", "hidden": secrets}, {"note": "two", "hidden": None}]
    (batch,) = read_corpus(rows, text="note", secrets="hidden", on_bad_row="skip").batches()
    assert (batch.texts, batch.secrets) == (["two"], [[]])


def test_a_record_that_json_cannot_hold_is_a_bad_row(tmp_path):
    pq.write_table(pa.table({"a": [b"Zebra-quux", None], "b": [1.5, 2.5]}), tmp_path / "t.parquet")
    options = {"record_columns": ["a", "b"]}
    assert texts_of(read_corpus(tmp_path / "t.parquet", **options, on_bad_row="skip")) == ['{"a": null, "b": 2.5}']
    rows = [{"a": "\ud800"}, {"a": "x" * 2000}, {"a": float("inf")}, {"a": {1, 2}}, {"a": None}, {"a": 1}]
    corpus = read_corpus(rows, record_columns=["a"], on_bad_row="skip", max_cell_bytes=1000)
    assert texts_of(corpus) == ['{"a": 1}']


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"k": value}, lambda value: (value,)])
def test_a_value_is_nested_64_deep_at_most_whoever_calls(wrap):
    deep = 1
    for _ in range(64):
        deep = wrap(deep)
    rows = [{"a": deep}, {"a": wrap(deep)}, {"a": "last"}]

    def texts(frames: int) -> list[str]:
        if frames:
            return texts(frames - 1)
        return texts_of(read_corpus(rows, record_columns=["a"], on_bad_row="skip"))

    assert texts(0) == texts(300) == [json.dumps({"a": deep}), '{"a": "last"}']
    with pytest.raises(CorpusError, match="neither Python nor JSON can represent"):
        texts_of(read_corpus(rows, record_columns=["a"]))


def test_a_nested_list_in_a_file_is_held_or_not_by_its_depth_alone(write):
    path = write("t.jsonl", "".join(f'{{"a": {"[" * depth}{"]" * depth}}}\n' for depth in (63, 64, 65, 490)))
    texts = texts_of(read_corpus(path, record_columns=["a"], on_bad_row="skip"))
    assert [text.count("[") for text in texts] == [63, 64]


UNFIT = {
    "a time beyond the year 9999": pa.array([0, 10**15], pa.timestamp("s")),
    "a date beyond the year 9999": pa.array([0, 10**8], pa.date32()),
    "a duration": pa.array([None, 2**62], pa.duration("s")),
    "a time in a list": pa.array([[0], [10**15]], pa.list_(pa.timestamp("s"))),
    "bytes": pa.array([None, b"Zebra-quux"]),
}


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("column", UNFIT)
def test_an_arrow_value_that_python_cannot_hold_makes_its_own_row_bad(tmp_path, column, in_memory):
    table = pa.table({"n": [1, 2], "v": UNFIT[column]})
    pq.write_table(table, tmp_path / "t.parquet")
    source = table if in_memory else tmp_path / "t.parquet"
    assert len(texts_of(read_corpus(source, record_columns=["n", "v"], on_bad_row="skip"))) == 1
    with pytest.raises(CorpusError, match="neither Python nor JSON can represent") as caught:
        texts_of(read_corpus(source, record_columns=["n", "v"]))
    assert caught.value.__context__ is None
    assert "Zebra" not in everything_in(caught.value)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("ns")])
def test_nanoseconds_never_end_the_reading_with_or_without_pandas(tmp_path, kind, in_memory):
    table = pa.table({"n": [1, 2, 3], "v": pa.array([0, 12_345_678_901, 1000], kind)})
    pq.write_table(table, tmp_path / "t.parquet")
    source = table if in_memory else tmp_path / "t.parquet"
    records = [json.loads(text) for text in texts_of(read_corpus(source, record_columns=["n", "v"], on_bad_row="skip"))]
    assert [record["n"] for record in records if record["n"] != 2] == [1, 3]


def test_an_item_that_is_no_dict_is_a_bad_row():
    assert texts_of(read_corpus([{"note": "one"}, "Zebra-quux"], text="note", on_bad_row="skip")) == ["one"]


TRUNCATED = {
    "open.csv": b'note\ngood\n"Zebra-quux and never closed\nmore\n',
    "stray.csv": b'note,ward\n"Zebra" quux,a\n',
    "cut.csv.gz": gzip.compress(b"note\n" + b"Zebra-quux\n" * 9999)[:-20],
    "cut.jsonl.xz": lzma.compress(b'{"note": "Zebra-quux"}\n' * 9999)[:-20],
    "cut.csv.bz2": bz2.compress(b"note\n" + b"Zebra-quux\n" * 9999)[:-20],
    "cut.csv.zst": pa.compress(b"note\n" + bytes(range(48, 58)) * 9999, codec="zstd", asbytes=True)[:-5],
    "garbage.csv.gz": b"Zebra-quux is not gzip",
    "garbage.csv.zst": b"Zebra-quux is not zstd",
    "garbage.csv.xz": b"Zebra-quux is not xz",
    "garbage.parquet": b"Zebra-quux is not parquet",
    "flipped.csv.gz": bytes(b ^ 0x55 if i > 20 else b for i, b in enumerate(gzip.compress(b"note\nZebra-quux\n" * 50))),
}


@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
@pytest.mark.parametrize("name", TRUNCATED)
def test_a_damaged_file_is_one_clear_error_also_when_bad_rows_are_skipped(tmp_path, private, name, on_bad_row):
    (tmp_path / name).write_bytes(TRUNCATED[name])
    with pytest.raises(CorpusError, match=name) as caught:
        texts_of(read_corpus(tmp_path / name, text="note", private_dir=private, on_bad_row=on_bad_row))
    assert SECRET not in everything_in(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.99])
def test_a_truncated_parquet_file_is_one_clear_error(tmp_path, kept):
    pq.write_table(pa.table({"note": [f"{SECRET} {i}" for i in range(999)]}), tmp_path / "whole.parquet")
    data = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(CorpusError, match="truncated") as caught:
        read_corpus(tmp_path / "t.parquet", text="note")
    assert SECRET not in everything_in(caught.value)


def test_a_parquet_file_with_damaged_pages_is_one_clear_error(tmp_path, private):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"note": [f"{SECRET} {i}" for i in range(9999)]}), path, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[100:2000] = bytes(1900)
    path.write_bytes(data)
    corpus = read_corpus(path, text="note", private_dir=private, on_bad_row="skip")
    with pytest.raises(CorpusError, match="truncated") as caught:
        texts_of(corpus)
    assert SECRET not in everything_in(caught.value)
    (line,) = (private / "bad_rows.jsonl").read_text().splitlines()
    assert json.loads(line) == {"file": str(path), "row": None, "kind": "unreadable file"}


def test_an_endless_line_does_not_fill_the_memory(write):
    line = "x" * 70_000
    path = write("t.jsonl", f'{{"note": "{line}"}}\n{{"note": "one"}}\n{{"note": "{line}')
    assert texts_of(read_corpus(path, text="note", max_cell_bytes=1000, on_bad_row="skip")) == ["one"]


def test_the_first_row_of_a_file_without_a_header_is_not_quoted(write):
    for content in (f"{SECRET},a\nx,b\n", f"note,{SECRET},{SECRET}\n"):
        with pytest.raises(CorpusError) as caught:
            read_corpus(write("t.csv", content), text="note")
        assert SECRET not in everything_in(caught.value)


@pytest.mark.parametrize("content", ['note\n"open\n', 'note\nfirst\n"open\n', "other\n"])
def test_an_error_names_the_pattern_and_not_the_file_that_it_found(write, tmp_path, private, content):
    path = write(f"{SECRET}.csv", content)
    with pytest.raises(CorpusError, match=r"\*\.csv") as caught:
        texts_of(read_corpus(str(tmp_path / "*.csv"), text="note", private_dir=private))
    assert SECRET not in everything_in(caught.value)
    (line,) = (private / "bad_rows.jsonl").read_text().splitlines()
    assert json.loads(line) == {"file": str(path), "row": None, "kind": "unreadable file"}


def test_a_parquet_file_with_damaged_bytes_anywhere_is_read_or_is_a_corpus_error(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"note": [f"{SECRET} {i % 50}" for i in range(99)], "tags": [["a"]] * 99}), path)
    data = path.read_bytes()
    for position in range(0, len(data), 5):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0xA5]) + data[position + 1 :])
        try:
            texts_of(read_corpus(path, text="note", secrets="tags", on_bad_row="skip"))
        except CorpusError as error:
            message = everything_in(error)
        else:
            message = ""
        assert SECRET not in message


def test_a_table_in_memory_that_arrow_cannot_read_is_one_clear_error():
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["Zebra-quux"]), safe=False)
    with pytest.raises(CorpusError) as caught:
        texts_of(read_corpus(pa.table({"note": broken}), text="note", on_bad_row="skip"))
    assert SECRET not in everything_in(caught.value)
    assert caught.value.__context__ is None


def test_a_file_that_goes_away_between_passes_is_one_clear_error(write):
    path = write("t.csv", "note\none\n")
    corpus = read_corpus(path, text="note")
    path.unlink()
    with pytest.raises(CorpusError, match="cannot be opened"):
        texts_of(corpus)
