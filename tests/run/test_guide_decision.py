"""Whether a run has a guide where nobody said so: decided from public facts, and said in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clinic import settings
from run_fixtures import run

import understudy as us
from understudy.methods.additions.guide import addition as guide_addition
from understudy.run import defaults as decisions
from understudy.run import pipeline as running
from understudy.run.forecast import forecast
from understudy.run.job import Job
from understudy.run.session import Listener
from understudy.run.settings import run_config


@pytest.fixture(autouse=True)
def embedder_here(monkeypatch: pytest.MonkeyPatch, embedder: Any) -> None:
    monkeypatch.setattr(decisions, "embedder_here", lambda _name: True)


def decided(folder: Path, **changes: Any) -> tuple[bool, str]:
    found = Job(run_config(settings(folder, **{"epsilon": "6", "expected_records": 20_000, **changes}))).guide_decision
    return found.on, found.why


def test_it_is_on_where_it_pays(tmp_path: Path) -> None:
    on, why = decided(tmp_path)
    assert on
    assert "30 %" in why
    planned = forecast(run_config(settings(tmp_path, epsilon="6", expected_records=20_000)))
    assert "guide" in [charge.name for charge in planned.plan.charges]
    assert str(planned.plan.forecast["guide"]).startswith("Guide on: ")


def test_without_a_declared_size_it_is_decided_for_a_typical_table_and_said_so(tmp_path: Path) -> None:
    on, why = decided(tmp_path, expected_records=None)
    assert on
    assert "--expected-records" in why


def test_of_a_large_table_a_sample_is_read_and_said_how_long_it_takes(tmp_path: Path) -> None:
    on, why = decided(tmp_path, expected_records=1_000_000)
    assert on
    assert "a random sample of the records at rate 0.03125 (about 31,000 texts: 7 minutes on one core)" in why
    assert "sample" not in decided(tmp_path)[1]


@pytest.mark.parametrize(("changes", "why"), [({"expected_records": 40, "epsilon": "0.5"}, "mostly noise")])
def test_where_it_does_not_pay_it_is_off_and_said_why(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    on, said = decided(tmp_path, **changes)
    assert not on
    assert why in said


def test_without_an_embedder_it_is_off_and_the_cure_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "embedder_here", lambda _name: False)
    on, why = decided(tmp_path)
    assert not on
    assert "understudy models pull builtin" in why


@pytest.mark.parametrize(
    "changes",
    [{"noise": "laplace"}, {"delta": "0", "noise": "laplace"}, {"guide": False}, {"label": None, "labels": None}],
)
def test_it_is_off_in_silence_where_there_can_be_none_or_it_was_said(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert decided(tmp_path, **changes) == (False, "")


def test_a_run_resumes_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedder that was installed since changes nothing: the charges are those that were booked."""
    lines: list[str] = []
    config = run_config(settings(tmp_path, epsilon="20"))
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "embedder_here", lambda _name: False)
        first = running.run(config, listener=Listener(say=lines.append)).release
    assert any(line.startswith("Guide off: the embedder is not on this machine") for line in lines)
    again = running.run(config).release
    assert again.digest == first.digest
    assert "guide" not in again.arrays


def test_a_guided_release_is_written_without_its_embedder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run(settings(tmp_path, epsilon="20")).release
    assert "guide" in made.arrays
    monkeypatch.setattr(guide_addition, "embedder_here", lambda _name: False)
    lines: list[str] = []
    found = us.generate(made, llm="none", records_per_label=3, listener=Listener(say=lines.append))
    assert len(found.records) == 6
    assert any("guide of this Release is not used" in line for line in lines)
