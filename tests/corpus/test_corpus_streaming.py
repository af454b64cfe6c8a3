"""A corpus is a stream that can be read again, and its fingerprint knows a copy in any guise."""

from __future__ import annotations

import csv
import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import texts_of

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import read_corpus, write_table
from understudy.corpus.readers import without_exceptions

KEY = b"a key of the dataset"
ROWS = [("one é", 1, "anna"), ("two", 2, "bert"), ("two", 2, "bert"), ("three", 1, "anna")]


def fingerprint(path, key=KEY, **more):
    return read_corpus(path, **{"text": "t", "label": "l", "labels": "1,2", "owner": "o", **more}).fingerprint(key)


def save(path, rows):
    write_table(path, {"t": [r[0] for r in rows], "l": [r[1] for r in rows], "o": [r[2] for r in rows]})
    return path


def test_renamed_reordered_recompressed_and_converted_copies_have_one_fingerprint(tmp_path, write):
    csv_file = save(tmp_path / "a.csv", ROWS)
    packed = write("b.csv.gz", csv_file.read_bytes())
    shuffled = save(tmp_path / "c.csv", ROWS[::-1])
    copies = [csv_file, packed, shuffled, save(tmp_path / "d.jsonl", ROWS), save(tmp_path / "e.parquet", ROWS)]
    copies.append([save(tmp_path / "f.csv", ROWS[:1]), save(tmp_path / "g.csv", ROWS[1:])])
    assert len({fingerprint(copy) for copy in copies}) == 1
    assert fingerprint(csv_file, labels="2,1") == fingerprint(csv_file)


def test_another_text_multiplicity_or_key_gives_another_fingerprint(tmp_path):
    changed = [ROWS, ROWS[:3], ROWS[:2] + ROWS[3:], [*ROWS, ROWS[0]], [("One é", 1, "anna"), *ROWS[1:]]]
    prints = {fingerprint(save(tmp_path / f"{i}.csv", rows)) for i, rows in enumerate(changed)}
    prints.add(fingerprint(tmp_path / "0.csv", b"another key"))
    prints.add(fingerprint(tmp_path / "0.csv", labels="1", on_bad_row="skip"))  # leaves rows out
    assert len(prints) == len(changed) + 2
    assert all(len(each) == 64 for each in prints)
    assert fingerprint(save(tmp_path / "none.csv", [])) == ""
    assert fingerprint(save(tmp_path / "bad.csv", [(" ", 1, "anna")]), on_bad_row="skip") == ""


def test_the_same_texts_are_known_again_with_other_labels_and_owners_or_without(tmp_path):
    path = save(tmp_path / "a.csv", ROWS)
    relabelled = save(tmp_path / "b.csv", [(text, 2, "nobody") for text, _, _ in ROWS])
    prints = {fingerprint(path), fingerprint(relabelled), fingerprint(path, owner=None)}
    prints.add(fingerprint(path, owner=None, label=None, labels=None))
    assert len(prints) == 1


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_every_pass_starts_anew_also_while_another_is_under_way(tmp_path, ending):
    corpus = read_corpus(save(tmp_path / f"a.{ending}", ROWS), text="t")
    first, second = corpus.batches(1), corpus.batches(1)
    assert [next(first).texts, next(second).texts, next(first).texts] == [["one é"], ["one é"], ["two"]]
    first.close()
    second.close()
    assert len(texts_of(corpus)) == len(texts_of(corpus)) == 4


def peak_bytes(path) -> int:
    corpus = read_corpus(path, text="t", label="l", labels="0,1")
    tracemalloc.start()
    try:
        for batch in corpus.batches(256):
            assert batch.texts
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path, ending):
    def make(rows):
        path = tmp_path / f"{rows}.{ending}"
        with path.open("w", newline="") as stream:
            if ending == "csv":
                csv.writer(stream).writerow(["t", "l"])
            for i in range(rows):
                if ending == "csv":
                    csv.writer(stream).writerow([f"text {i} " * 40, i % 2])
                else:
                    stream.write(json.dumps({"t": f"text {i} " * 40, "l": i % 2}) + "\n")
        return path

    peak_bytes(make(100))
    assert peak_bytes(make(20_000)) < 1.2 * peak_bytes(make(2_000)) < 3_000_000


@pytest.mark.parametrize("encoding", ["dictionary", "prefixes"])
def test_a_long_value_that_is_stored_once_and_stands_in_every_row_takes_little_memory(tmp_path, monkeypatch, encoding):
    monkeypatch.setattr("understudy.corpus.arrow.BATCH_BYTES", 1 << 20)
    monkeypatch.setattr("understudy.corpus.corpus.BATCH_CHARACTERS", 1 << 20)
    table = pa.table({"t": ["x" * 100_000] * 500})
    options = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"} if encoding == "prefixes" else {}
    pq.write_table(table, tmp_path / "t.parquet", **options)
    assert (tmp_path / "t.parquet").stat().st_size < 200_000
    del table
    before, highest, rows = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    try:
        for batch in read_corpus(tmp_path / "t.parquet", text="t").batches():
            rows += len(batch.texts)
            highest = max(highest, pa.total_allocated_bytes() - before)
        assert rows == 500
        assert highest + tracemalloc.get_traced_memory()[1] < 10_000_000  # of 50,000,000
    finally:
        tracemalloc.stop()


def test_rows_that_no_memory_can_hold_are_a_corpus_error():
    def rows():
        yield 1, ["a text"]
        raise MemoryError

    (_, good), (_, bad) = without_exceptions(rows(), "t.parquet")
    assert good == ["a text"]
    assert isinstance(bad, CorpusError)
    assert "memory" in str(bad)


def test_memory_does_not_grow_with_the_number_of_row_groups_of_a_parquet_file(tmp_path):
    def peak(groups):
        path = tmp_path / f"{groups}.parquet"
        table = pa.table({"t": [f"text {i} " * 40 for i in range(2000)], "l": [i % 2 for i in range(2000)]})
        with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
            for _ in range(groups):
                writer.write_table(table)
        del table
        before, highest = pa.total_allocated_bytes(), 0
        for batch in read_corpus(path, text="t", label="l", labels="0,1").batches(256):
            assert batch.texts
            highest = max(highest, pa.total_allocated_bytes() - before)
        return highest

    assert peak(20) < 1.5 * peak(2) + 1_000_000


def test_a_corpus_without_good_rows_has_no_fingerprint(tmp_path):
    assert fingerprint(save(tmp_path / "a.csv", [])) == ""
    assert fingerprint(save(tmp_path / "b.csv", [(" ", 1, "anna")]), on_bad_row="skip") == ""


@pytest.mark.parametrize("key", [b"", b"x" * 65])
def test_a_key_of_impossible_length_is_a_config_error(tmp_path, key):
    with pytest.raises(ConfigError):
        fingerprint(save(tmp_path / "a.csv", ROWS), key)
