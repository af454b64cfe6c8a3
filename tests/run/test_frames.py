"""From a frame to a frame: runs on what other libraries hold, and results as what they read."""

from __future__ import annotations

import datetime
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clinic import LABELS, rows, settings, write_csv
from run_fixtures import run, runs_charged

import understudy as us
from understudy.corpus import read_corpus
from understudy.schema.columns import declared_columns

BUDGET = us.Budget(3, "1e-6")
COLUMNS: dict[str, Any] = {"text": "note", "label": "department", "labels": LABELS}
MEASURED: dict[str, Any] = {"metrics": "utility", "classifiers": "tf-idf", "embedder": "none"}


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"llm": "none", "records_per_label": 4, "ledger": str(tmp_path / "ledger.sqlite"), **COLUMNS}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> us.Result:
    return run(settings(tmp_path_factory.mktemp("made"), insecure_noise_seed=1, output=None))


def test_a_run_takes_a_path_or_a_frame_with_its_columns_and_one_cap_holds_for_both(
    tmp_path: Path, method: us.DPKPS, options: dict[str, Any]
) -> None:
    path = write_csv(tmp_path / "notes.csv", rows())
    assert len(us.run(path, method, BUDGET, **options).records) == 8
    table = pa.Table.from_pylist(rows())
    with pytest.raises(us.UnderstudyError, match="notes"):
        us.run(table, method, BUDGET, **options, dataset="another")
    with pytest.raises(us.UnderstudyError, match="no epsilon remains"):
        us.run(table, method, BUDGET, **options, dataset="notes")
    assert runs_charged(options["ledger"], "notes") == 1


def test_a_run_says_which_types_it_takes_from_a_table_in_memory_as_public(
    tmp_path: Path, method: us.DPKPS, options: dict[str, Any]
) -> None:
    """Some readers infer them from values."""
    more = {"stars": pa.array([3] * 40, pa.int16()), "spare": pa.array([1.5] * 40)}
    table = pa.Table.from_pylist(rows()).select(["note", "department"])
    typed = pa.table({**{name: table[name] for name in table.column_names}, **more})
    said: list[str] = []
    listener = us.Listener(said.append)
    options |= {"dataset": "v", "columns": "stars=1..5", "insecure_noise_seed": 1, "listener": listener}
    us.run(typed, method, BUDGET, **options)
    assert [each for each in said if "these types: stars (int16). If" in each], "and of no other column"
    said.clear()
    us.run(table, method, BUDGET, **{**options, "columns": None})
    assert not [each for each in said if "these types" in each]


def test_bad_rows_of_a_frame_are_kept_in_the_output(tmp_path: Path, method: us.DPKPS, options: dict[str, Any]) -> None:
    table = pa.Table.from_pylist([*rows(), {**rows(1)[0], "note": None}])
    with pytest.raises(us.UnderstudyError, match="empty text"):
        us.run(table, method, BUDGET, **options, dataset="v", output=tmp_path / "out")
    assert '"row": 41' in (tmp_path / "out/private/bad_rows.jsonl").read_text("utf-8")
    with pytest.raises(us.UnderstudyError, match="text column"):
        us.run(rows(), method, BUDGET, llm="none", records=1, dataset="v")


def test_a_result_is_a_frame_of_pandas_and_polars_and_a_dataset(result: us.Result) -> None:
    expected = result.columns
    pytest.importorskip("pandas")
    assert result.to_pandas().to_dict("list") == expected
    pytest.importorskip("polars")
    assert result.to_polars().to_dict(as_series=False) == expected
    pytest.importorskip("datasets")
    assert result.to_dataset().to_dict() == expected


def test_typed_columns_keep_their_types_beside_missing_values(method: us.DPKPS, result: us.Result) -> None:
    pandas = pytest.importorskip("pandas")
    declared = declared_columns("stars=1..5; urgent; paid=0.0..9.9/3; opened=2024-01-01..2024-12-31/12")
    release = replace(result.release, schema=replace(result.release.schema, columns=declared))
    row = (3, True, 1.5, datetime.date(2024, 2, 3))
    records = [replace(result.records[0], columns=row), replace(result.records[1], columns=(None,) * 4)]
    frame = us.Result(release, records).to_pandas()
    assert frame["stars"].dtype == pandas.Int64Dtype()
    assert frame["urgent"].dtype == pandas.BooleanDtype()
    assert frame["stars"].tolist() == [3, pandas.NA]
    assert us.Result(release, records).to_arrow().schema.field("opened").type == pa.date32()


def test_a_result_is_saved_by_the_name_s_ending(tmp_path: Path, result: us.Result) -> None:
    result.save(tmp_path / "not-private.parquet")
    assert pq.read_table(tmp_path / "not-private.parquet").to_pydict() == result.columns
    for name in ("a.csv", "a.jsonl"):
        result.save(tmp_path / name)
        corpus = read_corpus(tmp_path / name, text="note", formulas_escaped=True)
        assert [text for batch in corpus.batches() for text in batch.texts] == result.columns["note"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("s3://bucket/a.csv", "'s3://bucket/a.csv' is an address.*Give a local path"),
        ("a.xlsx", "cannot be written as 'a.xlsx'.*End its name in"),
        ("nowhere/a.csv", "'a.csv' cannot be written.*Check that its folder exists"),
    ],
)
def test_what_cannot_be_saved_is_refused_with_the_cure(
    tmp_path: Path, result: us.Result, path: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(us.UnderstudyError, match=problem):
        result.save(path)


def test_a_library_that_is_missing_is_named_with_the_cure(result: us.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, convert in {
        "pandas": result.to_pandas,
        "polars": result.to_polars,
        "datasets": result.to_dataset,
    }.items():
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(us.UnderstudyError, match=f"{name} is not installed.*pip install {name}"):
            convert()


def test_an_evaluation_takes_frames_and_results_and_tells_how_far_it_is(result: us.Result) -> None:
    pytest.importorskip("sklearn")
    frame, told = pytest.importorskip("pandas").DataFrame(rows(60)), list[tuple[str, int, int]]()
    listener = us.Listener(progress=lambda *each: told.append(each))
    by_result = us.evaluate(frame, result, **COLUMNS, **MEASURED, listener=listener)
    assert told == [("evaluation", 0, 2), ("evaluation", 1, 2), ("evaluation", 2, 2)]
    by_table = us.evaluate(pa.Table.from_pylist(rows(60)), result.to_arrow(), **COLUMNS, **MEASURED)
    without_columns = us.evaluate(frame, result, **MEASURED)  # they are those of its Release
    assert by_result.values == by_table.values == without_columns.values
    with pytest.raises(us.UnderstudyError, match="the synthetic one second"):
        us.evaluate(result, result, **MEASURED)


def test_other_tables_of_an_evaluation_may_be_in_memory(tmp_path: Path, result: us.Result) -> None:
    pytest.importorskip("sklearn")
    result.save(tmp_path / "synthetic.csv")
    real, later = rows(60), pa.Table.from_pylist(rows(20))
    beside = {"again": result, "frame": result.to_arrow(), "file": tmp_path / "synthetic.csv"}
    made = us.evaluate(real, result, holdout=later, beside=beside, **COLUMNS, **MEASURED)
    write_csv(tmp_path / "later.csv", rows(20))
    names = [f"{name}={tmp_path / 'synthetic.csv'}" for name in beside]
    files = us.evaluate(real, result, holdout=tmp_path / "later.csv", beside=names, **COLUMNS, **MEASURED)
    assert made.values == files.values
    assert {"again", "frame", "file"} <= {each.of for each in made.values}
    assert made.settings["holdout"] is True
    with pytest.raises(us.UnderstudyError, match="'real' is taken"):
        us.evaluate(real, result, beside={"real": result}, **COLUMNS, **MEASURED)
