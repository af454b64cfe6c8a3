"""A folder is a table: files of one format, partition folders as columns; never a table with a log of its own."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_tables import everything_in, rows_of, texts_of

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import read_corpus
from understudy.corpus.read import proposed_name
from understudy.corpus.sources import find_files

KEY = b"key"


def put(folder: Path, name: str, content: str = "note\nhello\n") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"note": content.split()}), path)
    else:
        path.write_text(content, "utf-8")
    return path


def years(folder: Path, ending: str) -> Path:
    """A table of four notes in two partitions."""
    for year, words in (("2023", ("ache", "burn")), ("2024", ("cough", "dizzy"))):
        for part, word in enumerate(words):
            content = {"csv": f"note\n{word}\n", "jsonl": json.dumps({"note": word}) + "\n", "parquet": word}[ending]
            put(folder, f"year={year}/part-{part}.{ending}", content)
    return folder


def test_a_folder_is_all_files_of_its_format_sorted_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b/2.csv", "b/10.csv", "a/x.csv.gz", "z.csv"):
        put(tmp_path, name)
    for name in ("_SUCCESS", ".z.csv.crc", "_temporary/0.csv", "a/.old.csv", "a/_old.csv", "README.md", "a/.git/c.csv"):
        put(tmp_path, name)
    found = find_files([tmp_path], format=None)
    assert [Path(file.path).relative_to(tmp_path).as_posix() for file in found] == [
        *("a/x.csv.gz", "b/10.csv", "b/2.csv", "z.csv")
    ]
    assert {file.shown for file in found} == {str(tmp_path)}
    assert find_files([tmp_path, tmp_path / "z.csv"], format=None) == found


@pytest.mark.parametrize("folder", [".", "./", "data", "data/", "../w/data"])
def test_a_folder_is_named_as_one_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (tmp_path / "w").mkdir()
    monkeypatch.chdir(tmp_path / "w")
    put(Path("data"), "year=1/a.csv")
    assert rows_of(read_corpus(folder, text="note", label="year", labels=["1"])) == [("hello", "1")]


def test_links_are_followed_and_a_loop_of_them_ends(tmp_path: Path) -> None:
    put(tmp_path, "elsewhere/a.csv")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "elsewhere")
    assert texts_of(read_corpus(tmp_path / "data", text="note")) == ["hello"]


def test_a_folder_of_several_formats_needs_one_named(tmp_path: Path) -> None:
    put(tmp_path, "a.csv")
    put(tmp_path, "b.parquet", "there")
    with pytest.raises(ConfigError, match="files of different formats") as caught:
        read_corpus(tmp_path, text="note")
    assert "--format" in caught.value.cure
    assert texts_of(read_corpus(tmp_path, text="note", format="csv")) == ["hello"]
    assert texts_of(read_corpus(tmp_path, text="note", format="parquet")) == ["there"]


@pytest.mark.parametrize("name", [None, "_SUCCESS", "part-00000", "notes.txt", "_a.csv"])
def test_a_folder_without_a_table_is_an_error(tmp_path: Path, name: str | None) -> None:
    if name is not None:
        put(tmp_path, name)
    with pytest.raises(CorpusError, match="contains no file that is named as csv, tsv, jsonl or parquet"):
        read_corpus(tmp_path, text="note")
    put(tmp_path, "b.jsonl")
    with pytest.raises(CorpusError, match="contains no file that is named as csv"):
        read_corpus(tmp_path, text="note", format="csv")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_columns_in_the_names_of_folders_are_labels_owners_and_parts_of_records(tmp_path: Path, ending: str) -> None:
    folder = years(tmp_path, ending)
    labelled = read_corpus(folder, text="note", label="year", labels="2023,2024")
    assert rows_of(labelled) == [("ache", "2023"), ("burn", "2023"), ("cough", "2024"), ("dizzy", "2024")]
    assert labelled.labels == ("2023", "2024")
    whole = read_corpus(folder, text="note", label="year", labels=[2023, 2024], label_type="int")
    assert [label for _, label in rows_of(whole)] == [2023, 2023, 2024, 2024]
    assert read_corpus(folder, text="note", label="year", labels_from_data=True).labels == ("2023", "2024")
    assert [owner for *_, owner in rows_of(read_corpus(folder, text="note", owner="year"))] == ["2023"] * 2 + [
        "2024"
    ] * 2
    assert texts_of(read_corpus(folder, record_columns=["year", "note"]))[0] == '{"year": "2023", "note": "ache"}'
    for pattern in ("*/*", "**/part-*", "year=202*/*"):
        again = read_corpus(str(folder / pattern), text="note", label="year", labels="2023,2024")
        assert rows_of(again) == rows_of(labelled)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_how_many_files_a_folder_has_does_not_show_in_the_layout(tmp_path: Path, ending: str) -> None:
    """A record of an owner with a folder decides it; the Release stores the layout."""
    content = {"csv": "sep=;\nnote;n\n{};1\n", "jsonl": '{{"note": "{}"}}\n', "parquet": "{}"}[ending]
    only = put(tmp_path / "data", f"owner=ann/0.{ending}", content.format("ache"))
    named = [str(tmp_path / "data"), str(tmp_path / "data/*/*"), [str(only), str(tmp_path / "data/owner=*/*")]]
    before = [read_corpus(each, text="note").layout for each in named]
    put(tmp_path / "data", f"owner=bob/0.{ending}", content.format("burn"))
    assert [read_corpus(each, text="note").layout for each in named] == before
    assert {layout.columns for layout in before} == {()}
    of_file = {"csv": ("note", "n"), "jsonl": (), "parquet": ("note",)}[ending]
    assert read_corpus(only, text="note").layout.columns == of_file


def test_a_column_in_the_names_of_folders_counts_before_the_files_own(tmp_path: Path) -> None:
    path = tmp_path / "year=2023" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"note": ["ache"], "year": [1999]}), path)
    assert rows_of(read_corpus(tmp_path, text="note", label="year", labels="2023")) == [("ache", "2023")]
    assert rows_of(read_corpus(path, text="note", label="year", labels=[1999])) == [("ache", 1999)]  # a file alone


def test_names_are_decoded_and_the_null_partition_is_null(tmp_path: Path) -> None:
    put(tmp_path, "ward=A%26E%3D1/a.csv")
    assert rows_of(read_corpus(tmp_path, text="note", label="ward", labels=["A&E=1"])) == [("hello", "A&E=1")]
    put(tmp_path, "ward=__HIVE_DEFAULT_PARTITION__/b.csv")
    with pytest.raises(CorpusError, match="has no label"):
        texts_of(read_corpus(tmp_path, text="note", label="ward", labels=["A&E=1"]))
    assert len(texts_of(read_corpus(tmp_path, text="note", label="ward", labels=["A&E=1"], on_bad_row="skip"))) == 1


@pytest.mark.parametrize("name", ["year=/a.csv", "=Zebra/a.csv", "year=1/year=Zebra/a.csv", "year=%FF/a.csv"])
def test_a_malformed_name_is_an_error_that_does_not_quote_it(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    for source in (str(tmp_path), str(tmp_path / "**" / "*.csv")):
        with pytest.raises(ConfigError, match="not of the form COLUMN=VALUE") as caught:
            read_corpus(source, text="note")
        assert "Zebra" not in everything_in(caught.value)
        assert "Rename the folder" in caught.value.cure
    assert texts_of(read_corpus([tmp_path / name], text="note")) == ["hello"]


def test_a_column_that_only_some_folders_have_is_an_error_where_it_is_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "year=1/a.csv")
    put(tmp_path, "2/b.csv", "note\nthere\n")
    with pytest.raises(ConfigError, match="folders named COLUMN=VALUE, but others are not"):
        read_corpus(tmp_path, text="note", label="year", labels="1,2")
    assert len(texts_of(read_corpus(tmp_path, text="note"))) == 2


def test_something_must_stand_in_the_files_themselves(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none is in the files"):
        read_corpus(years(tmp_path, "parquet"), text="year")


@pytest.mark.parametrize("log", ["_delta_log/0.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json"])
def test_files_of_a_table_with_a_log_are_refused_however_they_are_named(tmp_path: Path, log: str) -> None:
    part = put(tmp_path, "lake/t/year=1/part-0.parquet", "deleted")
    (tmp_path / "link").symlink_to(part.parent)
    sources = ["lake", "lake/t", "lake/t/year=1", "lake/t/*/*.parquet", "lake/t/year=1/part-0.parquet", "link"]
    for source in sources:
        assert texts_of(read_corpus(tmp_path / source, text="note")) == ["deleted"]
    put(tmp_path, f"lake/t/{log}", "{}")
    for source in sources:
        with pytest.raises(ConfigError, match="Delta Lake, Iceberg or Hudi"):
            read_corpus(tmp_path / source, text="note")


def test_files_beside_such_a_table_are_not_its_own(tmp_path: Path) -> None:
    put(tmp_path, "t/_delta_log/0.json")
    put(tmp_path, "t/part-0.parquet", "deleted")
    put(tmp_path, "metadata/readme.json")
    for source in (put(tmp_path, "u/a.parquet"), put(tmp_path, "u/b.csv"), put(tmp_path, "t/c.csv")):
        assert texts_of(read_corpus(source, text="note"))


def test_equal_files_of_different_partitions_are_different_rows(tmp_path: Path) -> None:
    for year in ("1", "2"):
        put(tmp_path, f"year={year}/a.csv")
    corpus = read_corpus(tmp_path, text="note")
    assert len(corpus.identity(KEY).contents) == 2  # the texts, and the bytes once
    put(tmp_path, "year=2/copy.csv")
    with pytest.raises(CorpusError, match="Two files of the private table have the same content"):
        read_corpus(tmp_path, text="note").identity(KEY)


def test_a_copy_beside_the_partitions_is_a_copy(tmp_path: Path) -> None:
    put(tmp_path, "t/year=1/a.csv")
    for copy in ("copy.csv", "t/year=2/month=1/a.csv", "t/b.csv"):
        path = put(tmp_path, copy)
        for sources in ([tmp_path / "t", path], [path, tmp_path / "t"]):
            with pytest.raises(CorpusError, match="Two files of the private table have the same content"):
                read_corpus(sources, text="note").identity(KEY)
        path.unlink()


def test_a_file_that_comes_later_is_in_no_pass(tmp_path: Path) -> None:
    put(tmp_path, "a.csv")
    corpus = read_corpus(tmp_path, text="note")
    before = corpus.identity(KEY)
    put(tmp_path, "b.csv", "note\nlater\n")
    assert (texts_of(corpus), corpus.identity(KEY)) == (["hello"], before)
    assert texts_of(read_corpus(tmp_path, text="note")) == ["hello", "later"]


def test_which_file_of_a_folder_has_a_bad_row_stands_in_the_private_folder_alone(tmp_path: Path, private: Path) -> None:
    put(tmp_path, "data/year=1/Zebra.csv", "note\nfine\n \n")
    with pytest.raises(CorpusError, match="empty text") as caught:
        texts_of(read_corpus(tmp_path / "data", text="note", private_dir=private))
    assert "Zebra" not in everything_in(caught.value)
    assert "year=1/Zebra.csv" in (private / "bad_rows.jsonl").read_text()


def test_results_do_not_lie_in_the_folder_that_is_read(tmp_path: Path) -> None:
    put(tmp_path, "data/a.csv")
    with pytest.raises(ConfigError, match="results would be written into the folder"):
        read_corpus(tmp_path / "data", text="note", private_dir=tmp_path / "data" / "out" / "private")
    for source in ("data", "data/*.csv"):
        assert texts_of(read_corpus(tmp_path / source, text="note", private_dir=tmp_path / "out" / "private"))
    assert texts_of(read_corpus(tmp_path / "data" / "*.csv", text="note", private_dir=tmp_path / "data" / "private"))


def test_a_name_that_is_no_text_is_one_error(tmp_path: Path) -> None:
    put(tmp_path, "a.csv")
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/Zebra\xff.csv")).write_text("note\nhello\n")
    except (OSError, UnicodeError):
        pytest.skip("names are UTF-8 here")
    with pytest.raises(CorpusError, match="cannot be read") as caught:
        read_corpus(tmp_path, text="note")
    assert "Zebra" not in everything_in(caught.value)


def test_files_are_small_values_that_pickle(tmp_path: Path) -> None:
    (file,) = find_files([put(tmp_path, "year=1/a.csv").parents[1]], format=None)
    assert file.partitions == (("year", "1"),)
    assert pickle.loads(pickle.dumps(file)) == file
    assert len({file, pickle.loads(pickle.dumps(file))}) == 1


@pytest.mark.parametrize(
    ("source", "name"),
    [
        *(("data/notes", "notes"), ("data/notes/", "notes"), ("t/year=2024", "year-2024"), (".", None)),
        *(("s3://bucket/p/notes.csv.gz?region=eu-west-1", "notes"), ("gs://bucket/notes/", "notes")),
        *(("s3://bucket", "bucket"), ("s3://bucket/p/*.csv", None), ("abfs://c@a.dfs.core.windows.net/n.csv", "n")),
    ],
)
def test_a_dataset_is_proposed_the_stem_of_its_file_or_folder(source: str, name: str | None) -> None:
    assert proposed_name(source) == name
