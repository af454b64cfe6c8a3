"""Evaluations and reports of tables with typed columns: where the columns come from, and who sees what."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from clinic import in_format, write_csv
from test_table_runs import COLUMNS, NAMES, tables

import understudy as us
from understudy.base.errors import ConfigError, UnderstudyError
from understudy.evaluate.metrics import overview
from understudy.evaluate.metrics.results import load_evaluation
from understudy.evaluate.synthetic import SyntheticFile, read_synthetic
from understudy.report import write_reports
from understudy.report.views import recipe
from understudy.run.outputs import OutputFolder
from understudy.run.settings import run_config

FEW: dict[str, Any] = {"embedder": "none", "metrics": "fidelity"}


@pytest.fixture(autouse=True)
def _quick(quick_fit: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "place_texts", lambda *_, **__: ())  # the map takes most of the time


def measured(folder: Path, **changes: Any) -> dict[str, Any]:
    own = {"records_per_label": 40, "insecure_noise_seed": 1, "epsilon": "60"}
    return tables(folder, 120, **{**own, **changes})


@pytest.fixture
def run(finished: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., OutputFolder]:
    return lambda **changes: OutputFolder(Path(finished(tmp_path, measured, **changes)["output"]))


def distances(evaluation: us.Evaluation, of: str = "synthetic") -> dict[str, float | None]:
    return {
        str(each.settings["column"]): each.value
        for each in evaluation.values
        if each.metric.name == "column_distance" and each.of == of
    }


def rewritten(folder: Path, name: str, **changes: str | None) -> Path:
    """The synthetic CSV with other cells in every row, or, for None, without the column."""
    with (folder / "out" / "release" / "synthetic.csv").open(newline="") as file:
        found = [{**row, **changes} for row in csv.DictReader(file)]
    rows = [{key: cell for key, cell in row.items() if cell is not None} for row in found]
    return write_csv(folder / name, rows, [*rows[0]])


def test_every_format_is_the_same_table_and_measured_alike_with_the_columns_of_the_release(
    tmp_path: Path, run: Callable[..., OutputFolder]
) -> None:
    found, hashes = [], set()
    for output_format in ("parquet", "csv", "jsonl"):
        made = run()
        in_format({"output": made.root}, output_format)
        hashes.add(SyntheticFile.at(made.synthetic_file(output_format)).sha256())
        found.append(us.evaluate(tmp_path / "notes.csv", made.root, **FEW))
        shutil.rmtree(made.root)
    assert len(hashes) == 1
    first = distances(found[0])
    assert first.keys() == {"label", *NAMES}
    assert first["ward"] < 0.3  # type: ignore[operator]
    assert [distances(each) for each in found] == [first] * 3
    counts = found[0].overview.profiles["real"].columns  # type: ignore[union-attr]
    assert list(counts) == list(NAMES)
    assert counts["fee"] == {"0 to 30": 54, "30 to 60": 27, "60 to 90": 27, "missing": 12}


def test_a_table_s_columns_are_those_that_are_declared(tmp_path: Path, run: Callable[..., OutputFolder]) -> None:
    in_format({"output": run().root}, "csv")
    words = {"text": "note", "label": "department", "labels": "cardiology,dermatology"}
    real, mine = tmp_path / "notes.csv", rewritten(tmp_path, "mine.csv", night="", beds=None)
    assert not distances(us.evaluate(real, mine, **words, **FEW))
    found = distances(us.evaluate(real, mine, columns="ward=A|B; night", **words, **FEW))
    assert found.keys() == {"label", "ward", "night"}
    assert found["night"] == 1  # all are missing
    with pytest.raises(UnderstudyError, match=r"mine.csv' has no column 'beds'.*\(columns\)"):
        us.evaluate(real, mine, columns=COLUMNS, **words, **FEW)
    other = rewritten(tmp_path, "other.csv", ward="C")
    with pytest.raises(ConfigError, match="its typed column 'ward' does not declare"):
        us.evaluate(real, other, columns=COLUMNS, **words, **FEW)


def test_open_tables_need_the_same_columns(tmp_path: Path, run: Callable[..., OutputFolder]) -> None:
    made = run()
    options = {"text": "note", "label": "department", "labels": ["cardiology", "dermatology"]}
    real = us.read_corpus(tmp_path / "notes.csv", columns="ward=A|B", **options)  # type: ignore[arg-type]
    assert distances(us.evaluate(real, made.root, **FEW)).keys() == {"label", "ward"}
    bare = us.read_corpus(tmp_path / "notes.csv", **options)  # type: ignore[arg-type]
    assert not distances(us.evaluate(bare, made.root, **FEW))
    with pytest.raises(ConfigError, match="different typed columns"):
        us.evaluate(real, bare, **FEW)


def test_all_questions_are_asked_of_columns_and_another_table_may_have_none(
    tmp_path: Path, run: Callable[..., OutputFolder]
) -> None:
    made = run()
    beside = tmp_path / "floor.csv"
    rows = [{"text": "heart", "label": "cardiology"}, {"text": "rash", "label": "dermatology"}]
    write_csv(beside, rows, ["text", "label"])
    found = us.evaluate(
        tmp_path / "notes.csv",
        made.root,
        embedder="none",
        holdout=str(tmp_path / "notes.csv"),
        beside=f"floor={beside}",
        classifiers="tf-idf",
        seeds=1,
    )
    assert set(distances(found, "holdout").values()) == {0}
    names = {(each.metric.name, each.of) for each in found.values}
    copied = {each.of: each.value for each in found.values if each.metric.name == "copied_rows"}
    assert copied == {"synthetic": 0, "holdout": 1}
    told = {of for name, of in names if name == "column_accuracy"}
    assert told == {"synthetic", "real", "real (all)", "most frequent"}
    assert ("accuracy", "floor") in names


def section(page: Path) -> str:
    (found,) = re.findall(r'<section id="columns".*?</section>', page.read_text(), re.DOTALL)
    return str(found)


def test_the_shareable_report_shows_released_shares_and_the_internal_one_real_ones(
    tmp_path: Path, run: Callable[..., OutputFolder]
) -> None:
    made = run(where="ward=A")
    before = section(write_reports(made, embedder=None).shareable)
    us.evaluate(tmp_path / "notes.csv", made.root, **FEW)
    pages = write_reports(made, embedder=None)
    assert section(pages.shareable) == before
    assert ">real</th>" not in before
    assert "real, with noise" in before
    assert "30 to 60" in before
    assert pages.internal is not None
    inside = section(pages.internal)
    assert ">real</th>" in inside
    assert "Distance of a pair of columns" in inside
    assert "5 more pairs" in inside
    evaluation = load_evaluation(made.evaluation_file)
    wards = evaluation.overview.profiles["synthetic"].columns["ward"]  # type: ignore[union-attr]
    shares = [f"{100 * count / 80:.1f} %" for count in wards.values()]
    assert shares != [f"{100 * share:.1f} %" for share in (0.5, 0.5, 0)]
    row = re.findall(r'<tr><th scope="row">A</th>(.*?)<td class="bar">', inside)[0]
    assert re.findall(r"[\d.]+ %", row)[:2] == ["50.0 %", shares[0]]  # real, synthetic


@pytest.mark.parametrize(
    ("changes", "tables"),
    [
        ({"label": "beds", "labels": None, "columns": "beds=1..4"}, [["synthetic"]]),
        ({"columns": "beds=1..4; visit=identifier V-####"}, [["synthetic", "real, with noise"]]),
    ],
)
def test_the_report_explains_the_tables_that_it_shows_and_shows_every_one_that_there_is(
    run: Callable[..., OutputFolder], changes: dict[str, Any], tables: list[list[str]]
) -> None:
    found = section(write_reports(run(**changes), embedder=None).shareable)
    heads = [re.findall("</i>(.*?)</th>", head) for head in re.findall("<thead>.*?</thead>", found)]
    assert heads == tables
    assert ("“real, with noise” are" in found) is any("real, with noise" in each for each in heads)


def test_a_table_without_columns_has_a_report_of_releases(tmp_path: Path, run: Callable[..., OutputFolder]) -> None:
    made = run()
    for table in made.shareable.glob("synthetic.*"):
        table.unlink()
    found = section(write_reports(made, embedder=None).shareable)
    assert "real, with noise" in found
    assert ">synthetic</th>" not in found
    counts = us.load_release(made.shareable / "dp-kps.release").arrays["columns"]
    assert np.isfinite(counts).all()


def test_a_table_with_other_cells_is_another_table(tmp_path: Path, run: Callable[..., OutputFolder]) -> None:
    made = run()
    in_format({"output": made.root}, "csv")
    us.evaluate(tmp_path / "notes.csv", made.root, **FEW)
    same = rewritten(tmp_path, "same.csv")
    other = rewritten(tmp_path, "other.csv", beds="4")
    made.synthetic_file("csv").write_bytes(same.read_bytes())
    write_reports(made, embedder=None)
    made.synthetic_file("csv").write_bytes(other.read_bytes())
    with pytest.raises(ConfigError, match="measured on a synthetic table that is no longer"):
        write_reports(made, embedder=None)


def test_classifiers_of_columns_can_be_left_out(tmp_path: Path, run: Callable[..., OutputFolder]) -> None:
    made = run()
    found = us.evaluate(
        tmp_path / "notes.csv", made.root, embedder="none", metrics="utility", classifiers="tf-idf", seeds=1,
        column_classifiers=False,
    )  # fmt: skip
    assert {each.metric.name for each in found.values} == {"accuracy", "macro_f1"}


def test_a_result_in_memory_is_read_as_its_table_writes_dates() -> None:
    dates = [f"{day:02d}.{month:02d}.2024" for day, month in zip(range(1, 29), list(range(1, 13)) * 3, strict=False)]
    table = pa.table({"note": ["a sore knee", "a warm hand"] * 14, "opened": dates})
    columns: dict[str, Any] = {"columns": "opened=2024-01-01..2024-12-31/12", "formats": "de", "language": "en"}
    options: dict[str, Any] = {"llm": "none", "records": 5, "insecure_noise_seed": 1, "dataset": "knees", **columns}
    made = us.run(table, us.Budget(3, "1e-6"), text="note", **options)
    assert made.to_arrow().schema.field("opened").type == pa.string()
    assert us.evaluate(table, made, text="note", **FEW).values
    assert us.evaluate(table, made, text="note", columns=columns["columns"], formats="de", **FEW).values


@pytest.mark.parametrize("label", ["department", "ward*night"])
def test_the_recipe_declares_the_columns(run: Callable[..., OutputFolder], label: str) -> None:
    crossed = {} if label == "department" else {"label": label, "labels": None, "records_per_label": 10}
    made = run(**crossed)
    release = us.load_release(made.release_file("dp-kps"))
    written = yaml.safe_load(recipe(release, read_synthetic(made.shareable, release.schema.columns)))
    assert run_config(written).all_columns == release.schema.columns
    assert ("labels" in written) == (not crossed)
