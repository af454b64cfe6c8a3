"""A job: what public facts tell is told when it is made, the same for a plan and for its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from clinic import settings
from run_fixtures import Command, runs_charged

from understudy.base.errors import ConfigError, CorpusError
from understudy.cli import options
from understudy.run import defaults as decided
from understudy.run.job import Job
from understudy.run.parts import Wanted
from understudy.run.settings import RunConfig, run_config

VALUES = {"data": "notes.csv", "text": "note", "label": "ward", "labels": "a,b", "epsilon": 4, "delta": "1e-6"}
COLUMNS = "age=0..9/3"


@pytest.fixture(autouse=True)
def table(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    path = Path("notes.csv")
    path.write_text("note,ward,age\n")
    return path


def config(**changes: Any) -> RunConfig:
    return run_config({**VALUES, "records": 10, "llm": "none", **changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"records_per_label": 3}, "is given by two options"),
        ({"where": "age=3"}, "no typed columns"),
        ({"guide_candidates": 2}, "needs a Release with a guide"),
        ({"column_pairs": "tree"}, "but no columns"),
        ({"method": "guided-evolution"}, "needs a language model"),
        ({"llm": "builtin", "llm_batch": True}, "has no batch interface"),
        ({"epsilon": None, "delta": None}, "No privacy budget"),
        ({"secret_detectors": "email"}, "but no budget for secrets"),
        ({"labels": None}, "not declared"),
    ],
)
@pytest.mark.parametrize("verb", [{}, {"charges": True, "generates": True}], ids=["plan", "run"])
def test_what_a_run_refuses_its_plan_refuses(changes: dict[str, Any], problem: str, verb: dict[str, bool]) -> None:
    assert Job(config(), **verb).promise.dataset == "notes"
    with pytest.raises(ConfigError, match=problem):
        Job(config(**changes), **verb)


@pytest.mark.parametrize("changes", [{"labels": None}, {"records_per_label": 3}, {}])
def test_a_column_that_the_file_lacks_is_an_error_before_all_others_where_it_is_read(
    changes: dict[str, Any], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.write_text("note\n")
    with pytest.raises(CorpusError, match="no column 'ward'"):
        Job(config(**changes), charges=True, generates=True)
    assert Job(config()).promise.dataset == "notes", "a plan reads no file"
    monkeypatch.setattr(decided, "begun_settings", lambda *_: {"guide": False})
    assert Job(config(output="out"), charges=True, generates=True).table, "a run that began may not need its table"


def test_a_release_does_not_ask_what_is_to_be_generated() -> None:
    assert not Job(config(records=None), charges=True, generates=False).wanted.said


@pytest.mark.parametrize(("labels", "each"), [("a,b", 50), (",".join("abcdefghijklm"), 10)])
def test_what_nobody_says_about_the_texts_is_decided(labels: str, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Job(config(records=None, labels=labels), charges=True, generates=True)
    assert made.wanted.records_per_label == each
    assert made.decided == (
        f"Texts to write: {each} per label, because no number is given (--records, --records-per-label).",
    )
    assert not Job(config(), charges=True, generates=True).decided
    columns = Job(config(records=None, columns=COLUMNS), charges=True, generates=True)
    assert columns.wanted.records == 100

    unnamed = {**VALUES, "records": 10}
    for missing, llm in ([], "builtin"), (["torch"], "none"):
        monkeypatch.setattr(decided, "missing_packages", lambda missing=missing: missing)
        found = Job(run_config(unnamed), charges=True, generates=True)
        assert (found.chat.llm, "understudy[local]" in " ".join(found.decided)) == (llm, bool(missing))
        assert Job(config(llm="builtin"), charges=True, generates=True).chat.llm == "builtin"  # as it was said
    with pytest.raises(ConfigError, match="is given by two options"):
        Job(config(records_per_label=3), charges=True, generates=True)


@pytest.mark.parametrize("data", [("a.csv", "b.csv"), ("-",), ()])
def test_only_what_is_charged_needs_a_name(data: tuple[str, ...]) -> None:
    assert not Job(config(data=data)).promise.dataset
    with pytest.raises(ConfigError, match="ledger needs a name") as told:
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
    monkeypatch.setattr(decided, "begun_settings", lambda *_: begun)
    monkeypatch.setattr(decided, "missing_packages", lambda: ["torch"])
    assert Job(run_config(unnamed), generates=True).chat.llm == "none"
    begun |= {"llm": "builtin", "records": 7, "records_per_label": None}
    resumed = Job(run_config(unnamed), generates=True)
    assert (resumed.chat.llm, resumed.wanted.records, resumed.wanted.records_per_label) == ("builtin", 7, None)
    assert not resumed.decided
    begun["llm"] = "openai:mine"
    assert Job(run_config(unnamed), generates=True).chat.llm == "none", "with an address that nobody gave now"
    assert Job(run_config({**unnamed, "llm": "none", "records": 3}), generates=True).wanted.records == 3
    assert Job(run_config({**unnamed, "fresh": True}), generates=True).chat.llm == "none"


# -- one configuration file serves every verb -------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """With what only `evaluate`, `audit run` and `baseline` mean."""
    others = {
        "seeds": 1,
        "classifiers": ["tf-idf"],
        "metrics": ["leakage"],
        "canaries": 60,
        "keywords_are_public": True,
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**settings(tmp_path), **others}), "utf-8")
    return tmp_path / "run.yaml"


def test_plan_check_run_evaluate_and_report_take_one_file(tmp_path: Path, file: Path, understudy: Command) -> None:
    config = ("--config", str(file))
    for verb in ("plan", "check", "run"):
        said = understudy(verb, *config)
        assert said.code == 0, (verb, said.err)
    understudy("evaluate", *config, "--embedder", "none", code=0)
    assert (tmp_path / "out" / "private" / "evaluation.json").exists()
    more = tmp_path / "more"
    said = understudy("generate", *config, "--records-per-label", "2", "--output", str(more), "--json")
    assert (said.code, json.loads(said.out)["records"]) == (0, 4), said.err
    assert understudy("report", *config).code == 0
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_a_name_that_no_verb_knows_is_an_error_in_each(file: Path, understudy: Command) -> None:
    file.write_text(file.read_text() + "epsilonn: 3\n")
    for words in (["plan"], ["check"], ["run"], ["evaluate"], ["audit", "run"]):
        config = [str(file)] if words[0] == "audit" else ["--config", str(file)]
        said = understudy(*words, *config)
        assert (said.code, "'epsilonn'" in said.err) == (2, True), words


def test_a_verb_that_refuses_what_it_does_not_mean_refuses_the_file(
    file: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin."""
    monkeypatch.setattr(options, "known_names", lambda values: set[str]())
    assert understudy("plan", "--config", str(file)).code == 2


def test_a_run_that_ended_says_first_what_is_free_and_then_what_is_charged(
    tmp_path: Path, file: Path, understudy: Command
) -> None:
    assert understudy("run", "--config", str(file)).code == 0
    said = understudy("run", "--config", str(file), "--records", "12", code=0)
    free = f"`understudy generate {tmp_path / 'out'} --records 12 --output ELSEWHERE`"
    assert said.err.index(free) < said.err.index("--fresh would charge the budget a second time")
    assert "Wrote 12 synthetic records" in said.err
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    said = understudy("run", "--config", str(file), "--epsilon", "2")
    assert said.code != 0
    assert said.err.index("understudy generate") < said.err.index("charge the budget a second time")


def test_help_marks_what_is_free_to_change(understudy: Command) -> None:
    words: Any = " ".join(understudy("run", "--help-all").out.split())
    for name, free in {"--records INTEGER": True, "--llm TEXT": True, "--epsilon TEXT": False, "--seed": False}.items():
        about = words.partition(name)[2].partition(" --")[0]
        assert ("[free]" in about) is free, name
