"""Frames of other libraries: pandas, Polars, DuckDB, pyarrow and Hugging Face datasets, each read as its file would be.

The libraries are no dependencies: a test skips where its own is not installed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import texts_of

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import Corpus, read_corpus
from understudy.corpus.verified import contents

ROWS = {
    "note": ["Chest pain, stent.", "Itchy mole.", None, "Palpitations, pulse 40."],
    "ward": ["cardiology", "skin", "skin", "cardiology"],
    "patient": [1, 2, None, 1],
}
WARDS = ("cardiology", "skin", "other")


def as_reader(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(2))


def as_pandas(table: pa.Table) -> Any:
    pytest.importorskip("pandas")
    return table.to_pandas()


def as_pandas_categories(table: pa.Table) -> Any:
    return as_pandas(table).astype({"ward": "category"})


def as_polars(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def as_polars_categories(table: pa.Table) -> Any:
    polars = pytest.importorskip("polars")
    return as_polars(table).with_columns(polars.col("ward").cast(polars.Categorical))


def as_duckdb(table: pa.Table) -> Any:
    return pytest.importorskip("duckdb").from_arrow(table)


def as_dataset(table: pa.Table) -> Any:
    return pytest.importorskip("datasets").Dataset(table)


def as_dataset_with_class_labels(table: pa.Table) -> Any:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return as_dataset(table).cast_column("ward", datasets.ClassLabel(names=["skin", "other", "cardiology"]))


def as_shuffled_dataset(table: pa.Table) -> Any:
    return as_dataset(table).shuffle(seed=3)


FRAMES: Sequence[Callable[[pa.Table], Any]] = (
    *(as_reader, as_pandas, as_pandas_categories, as_polars, as_polars_categories, as_duckdb),
    *(as_dataset, as_dataset_with_class_labels, as_shuffled_dataset),
)


def opened(source: Any, **options: Any) -> Corpus:
    return read_corpus(source, text="note", label="ward", labels=WARDS, owner="patient", on_bad_row="skip", **options)


def records(corpus: Corpus) -> set[tuple[Any, ...]]:
    return {
        (text, corpus.labels[label], owner)
        for batch in corpus.batches()
        for text, label, owner in zip(batch.texts, batch.labels, batch.owners or (), strict=True)
    }


@pytest.mark.parametrize("make", FRAMES)
def test_a_frame_holds_the_records_of_its_file_and_is_known_as_the_same_data(
    make: Callable[[pa.Table], Any], tmp_path: Path
) -> None:
    table = pa.table(ROWS)
    pq.write_table(table, tmp_path / "notes.parquet")
    file, frame = opened(tmp_path / "notes.parquet"), opened(make(table))
    assert records(frame) == records(file)
    assert len(records(frame)) == 3
    assert frame.fingerprint(b"key") == file.fingerprint(b"key")
    known = [corpus.identity(b"key") for corpus in (file, frame)]
    assert known[0].contents[0] == known[1].contents[0]
    assert contents(file, b"key").cells == contents(frame, b"key").cells


@pytest.mark.parametrize("make", FRAMES)
def test_a_frame_is_read_once_and_passes_over_it_are_alike(make: Callable[[pa.Table], Any]) -> None:
    corpus = opened(make(pa.table(ROWS)))
    assert texts_of(corpus) == texts_of(corpus)


def test_numbers_times_and_categories_of_a_frame_are_kept_as_they_were() -> None:
    pandas = pytest.importorskip("pandas")
    frame = as_pandas_categories(pa.table({**ROWS, "patient": [1, 2, 3, 4], "fee": [0.5, 1.5, 2.5, 3.5]}))
    frame["seen"] = pandas.to_datetime(["2024-01-01"] * 4)
    corpus = opened(frame, columns="fee=0.0..4.0/4; seen=2024-01-01..2024-01-02")
    before = [(batch.labels.tolist(), batch.owners, batch.cells.tolist()) for batch in corpus.batches()]
    frame.loc[0, "patient"], frame.loc[0, "fee"], frame.loc[0, "ward"] = 4, 3.5, "skin"
    frame.loc[0, "seen"] = pandas.Timestamp("2024-01-02")
    assert [(batch.labels.tolist(), batch.owners, batch.cells.tolist()) for batch in corpus.batches()] == before


def test_numbers_in_memory_that_arrow_shares_are_kept_as_they_were() -> None:
    owners = np.array([1, 2, 3, 4])
    corpus = opened(pa.table({**ROWS, "patient": owners}))
    before = records(corpus)
    owners[0] = 4
    assert records(corpus) == before


def test_a_reader_that_has_been_read_is_no_empty_table() -> None:
    reader = as_reader(pa.table(ROWS))
    opened(reader)
    with pytest.raises(CorpusError, match="or was read before") as caught:
        opened(reader)
    assert "keep it" in caught.value.cure


def test_a_reader_that_fails_shows_nothing_of_what_it_read() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"note": ["a"]})
        raise ValueError("Zebra")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("note", pa.string())]), batches())
    with pytest.raises(CorpusError, match="cannot be read as an Arrow table") as caught:
        read_corpus(reader, text="note")
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_class_names_are_declared_by_who_knows_where_they_come_from() -> None:
    dataset = as_dataset_with_class_labels(pa.table(ROWS))
    with pytest.raises(ConfigError, match="is not declared") as caught:
        read_corpus(dataset, text="note", label="ward")
    assert "labels=dataset.features['ward'].names" in caught.value.cure
    assert "class_encode_column" in caught.value.cure
    names = dataset.features["ward"].names
    assert read_corpus(dataset, text="note", label="ward", labels=names).labels == ("skin", "other", "cardiology")


def test_an_example_without_a_class_is_a_row_without_a_label() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"note": datasets.Value("string"), "ward": datasets.ClassLabel(names=["a", "b"])})
    dataset = datasets.Dataset.from_dict({"note": ["x", "y"], "ward": [-1, 1]}, features=features)
    corpus = read_corpus(dataset, text="note", label="ward", labels=["a", "b"], on_bad_row="skip")
    assert texts_of(corpus) == ["y"]


def no_table(what: str) -> Any:
    table = pa.table(ROWS)
    if what == "DatasetDict":
        return pytest.importorskip("datasets").DatasetDict(train=as_dataset(table))
    if what == "IterableDataset":
        return as_dataset(table).to_iterable_dataset()
    return as_polars(table).lazy()


@pytest.mark.parametrize(
    ("what", "cure"),
    [("DatasetDict", r"dataset\['train'\]"), ("IterableDataset", "without streaming"), ("LazyFrame", r"collect\(\)")],
)
def test_what_is_nearly_a_table_is_refused_with_the_cure(what: str, cure: str) -> None:
    with pytest.raises(ConfigError, match=f"type {what}.*{cure}"):
        read_corpus(no_table(what), text="note")


@pytest.mark.parametrize("of", ["pandas", "polars"])
def test_a_single_column_is_a_table_of_texts(of: str) -> None:
    column = pytest.importorskip(of).DataFrame({"note": ["Zebra"]})["note"]
    assert texts_of(read_corpus(column, text="note")) == ["Zebra"]


def test_a_column_of_several_types_is_an_error_where_it_is_needed() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"note": ["Zebra", 7], "more": ["a", 7], "plain": ["a", "b"]}, dtype=object)
    with pytest.raises(CorpusError, match="'note' holds values of several types") as caught:
        read_corpus(frame, text="note")
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert texts_of(read_corpus(frame, text="plain")) == ["a", "b"]


@pytest.mark.parametrize("make", [as_pandas, as_polars, as_dataset])
def test_a_column_that_is_not_there_is_named_and_no_other(make: Callable[[pa.Table], Any]) -> None:
    with pytest.raises(CorpusError, match="has no column 'nothing'") as caught:
        read_corpus(make(pa.table(ROWS)), text="nothing")
    assert "note" not in str(caught.value)


def test_numbers_are_no_texts() -> None:
    with pytest.raises(CorpusError, match="is not of a string type"):
        read_corpus(as_polars(pa.table(ROWS)), text="patient")


def test_reading_a_file_imports_none_of_these_libraries(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("note\na\n", "utf-8")
    code = "import sys, understudy as us; list(us.read_corpus('a.csv', text='note').batches()); "
    code += "assert not {'pandas', 'polars', 'duckdb', 'datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_what_happens_to_a_frame_after_it_was_opened_does_not_matter() -> None:
    frame = as_pandas(pa.table(ROWS))
    corpus = opened(frame)
    frame.loc[0, "note"] = "Another text."
    assert "Another text." not in texts_of(corpus)


@pytest.mark.parametrize("make", ["pandas", "numpy"])
def test_a_series_holds_texts_and_no_paths_whatever_they_look_like(make: str, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("text\nof a file\n", "utf-8")
    texts = ["Ann-Smith.csv", str(tmp_path / "there.csv"), "a sore knee", "/etc/host*"]
    source = pytest.importorskip("pandas").Series(texts) if make == "pandas" else np.array(texts)
    read = read_corpus(source, text="note")
    assert [text for batch in read.batches() for text in batch.texts] == texts


def test_a_time_that_pandas_calls_missing_is_missing_in_its_rows_too() -> None:
    """``to_dict`` keeps NaT, which is a ``datetime`` that has no day."""
    pd = pytest.importorskip("pandas")
    rows = pd.DataFrame({"note": ["a", "b"], "at": [pd.Timestamp(2024, 2, 1), None]}).to_dict("records")
    for kind in ("date", "datetime"):
        columns = {"at": {"kind": kind, "range": ["2024-01-01", "2024-12-31"], "bins": 12}}
        (batch,) = read_corpus(rows, text="note", columns=columns).batches()
        assert batch.cells is not None
        assert batch.cells.tolist() == [[1], [12]]
    assert texts_of(read_corpus(rows, record_columns=["note", "at"]))[1] == '{"note": "b", "at": null}'
