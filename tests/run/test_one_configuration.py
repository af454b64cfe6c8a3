"""One configuration file serves every verb, each of which takes what it knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from clinic import settings
from run_fixtures import Said, runs_charged

from understudy.cli import options


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


def test_plan_check_run_evaluate_generate_and_report_take_one_file(
    tmp_path: Path, file: Path, understudy: Callable[..., Said]
) -> None:
    config = ("--config", str(file))
    for verb in ("plan", "check", "run"):
        said = understudy(verb, *config)
        assert said.code == 0, (verb, said.err)
    said = understudy("evaluate", *config, "--embedder", "none")
    assert said.code == 0, said.err
    assert (tmp_path / "out" / "private" / "evaluation.json").exists()
    more = tmp_path / "more"
    said = understudy("generate", *config, "--records-per-label", "2", "--output", str(more), "--json")
    assert (said.code, json.loads(said.out)["records"]) == (0, 4), said.err
    assert understudy("report", *config).code == 0
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_a_name_that_no_verb_knows_is_an_error_in_each(file: Path, understudy: Callable[..., Said]) -> None:
    file.write_text(file.read_text() + "epsilonn: 3\n")
    for words in (["plan"], ["check"], ["run"], ["evaluate"], ["audit", "run"]):
        config = [str(file)] if words[0] == "audit" else ["--config", str(file)]
        said = understudy(*words, *config)
        assert (said.code, "'epsilonn'" in said.err) == (2, True), words


def test_a_verb_that_refuses_what_it_does_not_mean_refuses_the_file(
    file: Path, understudy: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin."""
    monkeypatch.setattr(options, "known_names", lambda values: set[str]())
    assert understudy("plan", "--config", str(file)).code == 2


def test_a_run_that_ended_says_first_what_is_free_and_then_what_is_charged(
    tmp_path: Path, file: Path, understudy: Callable[..., Said]
) -> None:
    assert understudy("run", "--config", str(file)).code == 0
    said = understudy("run", "--config", str(file), "--records", "12")
    assert said.code == 0
    free = f"`understudy generate {tmp_path / 'out'} --records 12 --output ELSEWHERE`"
    assert said.err.index(free) < said.err.index("--fresh would charge the budget a second time")
    assert "Wrote 12 synthetic records" in said.err
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    said = understudy("run", "--config", str(file), "--epsilon", "2")
    assert said.code != 0
    assert said.err.index("understudy generate") < said.err.index("charge the budget a second time")


def test_help_marks_what_is_free_to_change(understudy: Callable[..., Said]) -> None:
    words: Any = " ".join(understudy("run", "--help-all").out.split())
    for name, free in {"--records INTEGER": True, "--llm TEXT": True, "--epsilon TEXT": False, "--seed": False}.items():
        about = words.partition(name)[2].partition(" --")[0]
        assert ("[free]" in about) is free, name
