"""A job: what public facts tell is told when it is made, the same for a plan and for its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.run import job as job_module
from understudy.run.job import Job, Wanted
from understudy.run.settings import RunConfig, run_config

VALUES = {"data": "notes.csv", "text": "note", "label": "ward", "labels": "a,b", "epsilon": 4, "delta": "1e-6"}
COLUMNS = "age=0..9/3"


def config(**changes: Any) -> RunConfig:
    return run_config({**VALUES, "records": 10, "llm": "none", **changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"records_per_label": 3}, "Not exactly one option says how many records"),
        ({"where": "age=3"}, "no typed columns"),
        ({"guide_candidates": 2}, "about the guide"),
        ({"column_pairs": "tree"}, "and no columns"),
        ({"method": "guided-evolution"}, "needs a language model"),
        ({"llm": "builtin", "llm_batch": True}, "has no batches"),
        ({"epsilon": None, "delta": None}, "No privacy budget"),
        ({"secret_detectors": "email"}, "no protection of them"),
        ({"labels": None}, "not declared"),
        ({"text": "note,label"}, "as a column that is written besides"),
    ],
)
@pytest.mark.parametrize("verb", [{}, {"charges": True, "generates": True}], ids=["plan", "run"])
def test_what_a_run_refuses_its_plan_refuses(changes: dict[str, Any], problem: str, verb: dict[str, bool]) -> None:
    assert Job(config(), **verb).promise.dataset == "notes"
    with pytest.raises(ConfigError, match=problem):
        Job(config(**changes), **verb)


def test_a_release_does_not_ask_what_is_to_be_generated() -> None:
    assert not Job(config(records=None), charges=True, generates=False).wanted.said


@pytest.mark.parametrize(("labels", "each"), [("a,b", 50), (",".join("abcdefghijklm"), 10)])
def test_what_nobody_says_about_the_texts_is_decided(labels: str, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Job(config(records=None, labels=labels), charges=True, generates=True)
    assert made.wanted.records_per_label == each
    assert made.decided == (
        f"Texts to write: {each} per label, since no number is given (--records, --records-per-label).",
    )
    assert not Job(config(), charges=True, generates=True).decided
    columns = Job(config(records=None, columns=COLUMNS), charges=True, generates=True)
    assert columns.wanted.records == 100

    unnamed = {**VALUES, "records": 10}
    for missing, llm in ([], "builtin"), (["torch"], "none"):
        monkeypatch.setattr(job_module, "missing_packages", lambda missing=missing: missing)
        found = Job(run_config(unnamed), charges=True, generates=True)
        assert (found.chat.llm, "understudy[local]" in " ".join(found.decided)) == (llm, bool(missing))
        assert Job(config(llm="builtin"), charges=True, generates=True).chat.llm == "builtin"  # as it was said
    with pytest.raises(ConfigError, match="how many records"):
        Job(config(records_per_label=3), charges=True, generates=True)


@pytest.mark.parametrize("data", [("a.csv", "b.csv"), ("-",), ()])
def test_only_what_is_charged_needs_a_name(data: tuple[str, ...]) -> None:
    assert not Job(config(data=data)).promise.dataset
    with pytest.raises(ConfigError, match="name for the ledger") as told:
        Job(config(data=data), charges=True)
    assert "--dataset NAME" in told.value.cure


def test_the_parts_of_a_job_are_frozen() -> None:
    job = Job(config())
    assert isinstance(job.wanted, Wanted)
    for part in (job.wanted, job.chat, job.promise, job.table, job.engine, job.place):
        with pytest.raises(ValueError, match="frozen"):
            part.__setattr__(next(iter(type(part).model_fields)), None)


def test_what_was_decided_for_a_run_holds_when_it_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of a model are not replaced by phrases because the model is not on the machine that resumes."""
    unnamed = {**VALUES, "output": str(tmp_path / "out")}
    begun: dict[str, Any] = {}
    monkeypatch.setattr(job_module, "begun_settings", lambda *_: begun)
    monkeypatch.setattr(job_module, "missing_packages", lambda: ["torch"])
    assert Job(run_config(unnamed), generates=True).chat.llm == "none"
    begun |= {"llm": "builtin", "records": 7, "records_per_label": None}
    resumed = Job(run_config(unnamed), generates=True)
    assert (resumed.chat.llm, resumed.wanted.records, resumed.wanted.records_per_label) == ("builtin", 7, None)
    assert not resumed.decided
    begun["llm"] = "openai:mine"
    assert Job(run_config(unnamed), generates=True).chat.llm == "none", "with an address that nobody gave now"
    assert Job(run_config({**unnamed, "llm": "none", "records": 3}), generates=True).wanted.records == 3
    assert Job(run_config({**unnamed, "fresh": True}), generates=True).chat.llm == "none"
