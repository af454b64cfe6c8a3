"""Typed columns: private texts are shown behind their own rows, and texts are decoded behind rows of the released
distribution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from private_runs import predicting
from run_fixtures import simple_fit
from script_model import END, ScriptModel
from test_table_runs import COLUMNS, tables
from tiny_corpora import Row, bounded

import understudy as us
from understudy.base.errors import ConfigError, ReleaseError
from understudy.methods.additions.columns import release as columns_release
from understudy.methods.batched_prompts import sort_into_batches
from understudy.run import pipeline as running
from understudy.run.settings import run_config
from understudy.schema.columns import declared_columns

WARD = b"ward: "


def says_its_ward(text: bytes, drawn: bytes) -> int:
    """The ward of the row that the answer stands behind, once; a text without its own row would say otherwise."""
    row, newline, answer = drawn.partition(b"\n")
    if text and b"beds: " not in text.partition(b"\n")[0]:
        return ord("!")
    if answer or not newline:
        return END
    return row[row.index(WARD) + len(WARD)] if WARD in row else ord("-")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_release, "fit", simple_fit)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptModel:
    model = ScriptModel(says_its_ward)
    monkeypatch.setattr("understudy.models.catalog.load_causal", lambda *_, **__: model)
    return model


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    tables(folder)  # writes the notes
    few = {"tokens_per_batch": 12, "private_text_tokens": 200, "epsilon": "60", "max_tokens": 4}
    return predicting(folder, folder, columns=COLUMNS, insecure_noise_seed=1, **{**few, **changes})


def run(values: dict[str, Any]) -> us.Result:
    return running.run(run_config(values))


@pytest.mark.usefixtures("scripted")
def test_a_text_is_decoded_behind_the_row_that_it_gets(tmp_path: Path) -> None:
    result = run(settings(tmp_path))
    assert len(result.records) > 4
    told = [(record.text, record.columns[0]) for record in result.records if record.columns]
    assert {text for text, _ in told} >= {"A", "B"}
    right = sum(text == (ward or "-") for text, ward in told)
    assert right >= 0.9 * len(told)  # a token is sampled
    columns = result.release.schema.columns
    cells = sorted(tuple(row) for row in result.release.arrays["rows"].tolist())
    written = [record.columns for record in result.records if record.columns]
    assert cells == sorted(
        tuple(column.cell(value) for column, value in zip(columns, row, strict=True)) for row in written
    )
    names = [charge.name for charge in result.release.statement.charges]
    assert {"tokens", "columns", "column-pairs"} <= set(names)


@pytest.mark.usefixtures("scripted")
def test_a_release_that_is_continued_keeps_its_rows_and_gets_others(tmp_path: Path) -> None:
    values = settings(tmp_path)
    few = running.release(run_config({**values, "texts_per_batch": 1})).release
    more = running.release(run_config({**values, "texts_per_batch": 3}), resume=True).release
    rows = {}
    for made in (few, more):
        arrays = made.arrays
        keys = zip(arrays["label"].tolist(), arrays["batch"].tolist(), arrays["number"].tolist(), strict=True)
        found = dict(zip(keys, arrays["rows"].tolist(), strict=True))
        assert all(found[key] == row for key, row in rows.items())
        rows |= found
    assert len(rows) > len(few.arrays["rows"])


@pytest.mark.usefixtures("scripted")
def test_a_condition_cannot_be_met_later(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with pytest.raises(ConfigError, match="already contains the texts and their rows"):
        run({**values, "where": "ward=A"})
    made = running.release(run_config(values)).release
    with pytest.raises(ConfigError, match="already contains the texts and their rows"):
        us.generate(made, where="ward=A")


@pytest.mark.usefixtures("scripted")
def test_rows_that_do_not_fit_the_columns_are_refused(tmp_path: Path) -> None:
    made = running.release(run_config(settings(tmp_path))).release
    made.arrays["rows"] = np.where(np.arange(5) == 0, 4, made.arrays["rows"]).astype(np.int32)  # wards have three cells
    with pytest.raises(ReleaseError, match="do not fit its columns"):
        us.generate(made)


def test_a_private_text_is_shown_behind_its_own_cells_alone() -> None:
    columns = declared_columns("ward=A|B; beds=1..4")
    seen: list[str] = []

    def tokenise(text: str, _label: int) -> tuple[list[int], bool]:
        seen.append(text)
        return [1], False

    corpus = bounded([Row("a note", 1, cells=(1, 1)), Row("another", 0, cells=(2, 4))])
    sort_into_batches(corpus, tokenise, labels=2, batches=1, columns=columns)
    assert seen == ["ward: B; beds: 2\na note", "\nanother"]  # both values are missing
    seen.clear()
    sort_into_batches(corpus, tokenise, labels=2, batches=1)
    assert seen == ["a note", "another"]
