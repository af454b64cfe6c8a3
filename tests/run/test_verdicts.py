"""One verdict on the budget everywhere: of public facts before the charge, of released values after it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from clinic import flags, rows, settings, write_csv
from run_fixtures import Command

import understudy as us
from understudy.methods.facts import PublicFacts
from understudy.methods.registry import make_method
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.unit import Unit
from understudy.release import Release
from understudy.release.statement import load_statement
from understudy.report import write_reports
from understudy.run import generating
from understudy.run import pipeline as running
from understudy.run.job import Job
from understudy.run.outputs import OutputFolder
from understudy.run.session import Listener
from understudy.run.settings import run_config
from understudy.schema.labels import LabelSet
from understudy.text.gate import Reading
from understudy.text.records import SyntheticRecord

TWO = LabelSet(("a", "b"))
METHODS: dict[str, dict[str, Any]] = {
    "dp-kps": {},
    "aug-pe": {},
    "guided-evolution": {},
    "few-shot": {"sampling_rate": 1e-4, "subsets": 100, "tokens": 100},
    "private-prediction": {"batch_size": 255},
    "dp-finetune": {"declared_records": 0},
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("records", "epsilon", "level"), [(3, 1, "noise"), (1_000_000, 6, "good")])
def test_it_is_right_in_the_extremes(name: str, records: int, epsilon: int, level: str) -> None:
    own = {**METHODS[name], **({"declared_records": records} if "declared_records" in METHODS[name] else {})}
    plan = make_method(name, own).plan(us.Budget(epsilon, "1e-7"), PublicFacts(Unit(), TWO, records))
    assert plan.forecast.verdict is not None
    assert plan.forecast.verdict.level == level


def test_a_run_says_it_before_the_charge_and_states_it_by_what_was_released(tmp_path: Path) -> None:
    """Another declared size is another forecast, and the same statement."""
    write_csv(tmp_path / "notes.csv", rows(2000))
    statements = []
    for records in (3, 1_000_000):
        said: list[str] = []
        changes = {"insecure_noise_seed": 1, "expected_records": records, "output": str(tmp_path / str(records))}
        made = running.run(run_config(settings(tmp_path, guide=False, **changes)), listener=Listener(said.append))
        before, after = (
            ("Noise: the result would", "Good: common themes come")
            if records == 3
            else ("Good: common themes will", "Good")
        )
        told = [line for line in said if line.startswith(("Noise:", "Good:"))]
        assert [line.startswith(each) for line, each in zip(told, (before, after), strict=True)] == [True, True]
        assert said.index(told[0]) < said.index("Reading the private records.") < said.index(told[1])
        assert made.release.noise_check.verdict is None
        statements.append(load_statement(tmp_path / str(records) / "release" / "statement.json"))
    assert statements[0].verdict == statements[1].verdict is not None
    assert statements[0].verdict == made.release.statement.verdict
    assert f"Usefulness: **{statements[0].usefulness}**" in statements[0].to_markdown()
    page = write_reports(OutputFolder(tmp_path / "3"), embedder=None).shareable.read_text("utf-8")
    assert f"Usefulness: <strong>{statements[0].usefulness}</strong>" in page


def test_a_plan_and_show_have_it_first(tmp_path: Path, understudy: Command) -> None:
    values = settings(tmp_path, guide=False)
    words = list(flags({**values, "expected_records": 10_000}))
    assert (
        understudy("plan", *words).out.split("\n")[1]
        == "Good: common themes will come through. This says nothing about how the texts read."
    )
    planned = json.loads(understudy("plan", *words, "--json").out)
    assert planned["forecast"]["verdict"]["level"] == "good"
    assert understudy("run", *flags(values)).code == 0
    said = understudy("show", values["output"])
    assert "Usefulness: **" in said.out
    assert json.loads(understudy("show", values["output"], "--json").out)["statement"]["verdict"]["basis"] == "topics"


@pytest.mark.parametrize(("method", "count"), [("dp-kps", 2), ("dp-kps", 77), ("aug-pe", 10), ("aug-pe", 77)])
@pytest.mark.parametrize("records", [300, 3000])
def test_labels_that_the_data_will_tell_change_a_verdict_by_one_level_at_most(
    method: str, count: int, records: int, tmp_path: Path
) -> None:
    values = settings(tmp_path, method=method, llm="builtin", expected_records=records, vocabulary=None)
    values = {
        name: value for name, value in values.items() if name not in ("top_terms", "length") or method == "dp-kps"
    }
    declared = Job(run_config({**values, "labels": [f"l{number}" for number in range(count)]})).plan().forecast.verdict
    told = Job(run_config({**values, "labels": None, "labels_from_data": True})).plan().forecast.verdict
    assert told is not None
    assert declared is not None
    levels = ("noise", "thin", "good")
    assert abs(levels.index(told.level or "") - levels.index(declared.level or "")) <= 1
    assert "10 labels" in told.sentence()
    assert (told.level == declared.level) or count != 10


def test_the_verdict_names_thin_labels_only_if_texts_have_them() -> None:
    chance = Facts((Fact("share_sampled_above_3_std", (0.9, 0.1, 0.2), ""),))
    made = cast(Release, SimpleNamespace(noise_check=chance, schema=SimpleNamespace(labels=["a", "b", "c"])))
    records = [SyntheticRecord("The strings are fine.", label, {}) for label in (0, 2, 0)]
    said = generating._verdict(made, records, Reading.of([None] * 3))
    assert said.endswith("most phrases are due to chance for c.")
    unlabelled = cast(Release, SimpleNamespace(noise_check=Facts(()), schema=SimpleNamespace(labels=[])))
    assert "Weak" not in generating._verdict(unlabelled, records, Reading.of([None] * 3))
