"""Typed columns in the prompts of methods that ask a language model for texts: the row that is shown is the row that is
written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clinic import FakeChat
from evolution_fixtures import evolving
from test_table_runs import COLUMNS, simple_fit, tables

import understudy as us
from understudy.run import pipeline as running
from understudy.run import tabling
from understudy.run.settings import run_config
from understudy.text.writing.records import SyntheticRecord, shown

pytestmark = pytest.mark.usefixtures("embedder")


@pytest.fixture(autouse=True)
def _quick_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabling, "fit", simple_fit)


def run(folder: Path, method: str, **changes: Any) -> us.Result:
    tables(folder)  # writes the notes
    values = evolving(folder, method=method, columns=COLUMNS, insecure_noise_seed=1, **changes)
    return running.run(run_config(values))


def details(record: SyntheticRecord) -> str:
    assert record.columns is not None
    names = [part.split("=")[0] for part in COLUMNS.split("; ")]
    named = zip(names, record.columns, strict=True)
    return "; ".join(f"{name}: {shown(value)}" for name, value in named if value is not None)


@pytest.mark.parametrize("method", ["aug-pe", "guided-evolution"])
def test_variations_are_asked_to_fit_the_row_that_they_get(tmp_path: Path, varied_chat: FakeChat, method: str) -> None:
    result = run(tmp_path, method, harvest="variations", where="ward=A")
    asked = [request.messages[-1].content for request in varied_chat.asked]
    rows = [prompt.split("\n\n")[0] for prompt in asked if prompt.startswith("Details: ")]
    assert len(result.records) == len(rows) > 0
    assert rows == [f"Details: {details(record)}." for record in result.records]
    assert all("ward: A" in row for row in rows)


@pytest.mark.parametrize("method", ["aug-pe", "guided-evolution"])
def test_texts_that_evolved_without_rows_are_given_one_by_their_label(
    tmp_path: Path, varied_chat: FakeChat, method: str
) -> None:
    result = run(tmp_path, method, harvest="population")
    assert {record.provenance["source"] for record in result.records} == {"population"}
    assert all(record.columns is not None for record in result.records)
    assert not [request for request in varied_chat.asked if "Details:" in request.messages[-1].content]
