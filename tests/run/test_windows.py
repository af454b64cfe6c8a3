"""A local language model's window is known before the charge; after it, another model goes on where one cannot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import FakeChat, settings
from evolution_fixtures import evolving, varied
from local_fixtures import make_llama
from run_fixtures import UseChat, runs_charged, stops_after_the_charge
from test_copies import run, stopped

import understudy as us
from understudy.base.errors import ConfigError, ResumeError
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.models.types import Completion
from understudy.run import pipeline as running
from understudy.run.door import Measurements
from understudy.run.settings import run_config

pytestmark = pytest.mark.usefixtures("embedder")
SMALL = {"population": 2, "variations": 2, "records_per_label": 1, "max_words": 30, "max_tokens": 12}


def local(folder: Path, window: int) -> str:
    return f"hf:{make_llama(folder / f'llama-{window}', window=window)}"


def named(use_chat: UseChat, name: str) -> FakeChat:
    """Let every ``llm`` mean a chat model of this name, which signs what it writes."""
    chat = FakeChat(lambda request: Completion(f"{varied(request).text} By {name}.", "stop"))
    chat.model_id = f"fake:{name}"
    return use_chat(chat)


# -- before the charge ------------------------------------------------------------------------------------------------

FEW_SHOT = {
    **{"method": "few-shot", "epsilon": "6", "sampling_rate": 0.5, "subsets": 2, "tokens": 4, "exemplars": 2},
    **{"examples_per_subset": 1, "exemplar_tokens": 3, "private_text_tokens": 8, "max_tokens": 8},
    **dict.fromkeys(("vocabulary", "vocabulary_is_public", "top_terms", "length")),
}


def values_of(method: str, folder: Path, llm: str) -> dict[str, Any]:
    if method in ("aug-pe", "guided-evolution"):
        return evolving(folder, **SMALL, method=method, llm=llm)
    own = FEW_SHOT | {"private_model": local(folder, 2048)} if method == "few-shot" else {"max_tokens": 8}
    return settings(folder, **own, llm=llm, records_per_label=1)


@pytest.mark.parametrize("method", ["aug-pe", "guided-evolution", "dp-kps", "few-shot"])
def test_a_prompt_that_fills_the_window_is_told_before_the_charge_and_one_that_does_not_runs(
    tmp_path: Path, method: str
) -> None:
    values = values_of(method, tmp_path, local(tmp_path, 96))
    with pytest.raises(ConfigError, match=r"may fill the context window of hf:.*larger window \(llm\)"):
        run(values)
    assert runs_charged(values["ledger"]) == 0
    run(values, llm=local(tmp_path, 4096))  # the folder is free for another one
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize("window", [1250])
def test_an_evolution_in_a_narrow_window_is_refused_before_the_charge_or_ends(tmp_path: Path, window: int) -> None:
    """About where prompts for new texts fit, and prompts for variations do not."""
    values = values_of("aug-pe", tmp_path, local(tmp_path, window))
    try:
        run(values)
    except ConfigError:
        assert runs_charged(values["ledger"]) == 0
    else:
        assert runs_charged(values["ledger"]) == 1


# -- after the charge -------------------------------------------------------------------------------------------------

STORED = ("population-0", "votes-1", "population-1", "votes-2", "population-2", "votes-3")


def stored(values: dict[str, Any]) -> dict[str, dict[str, bytes]]:
    with RunStore.open(Path(values["output"]) / "private", noise="system") as store:
        found = {name: store.value(name) for name in STORED}
    return {name: {key: each.tobytes() for key, each in arrays.items()} for name, arrays in found.items() if arrays}


def resumed_with_another(
    folder: Path, use_chat: UseChat, stop: tuple[type, str, str]
) -> tuple[dict[str, Any], set[str], us.Result]:
    """A run of three rounds that A began and B ends: its settings, what was stored in between, and its end."""
    values = evolving(folder, rounds=3, population=2, variations=2, label=None, labels=None, records_per_label=2)
    named(use_chat, "A")
    stopped({**values, "llm": "a", "max_tokens": 20}, *stop[:2], name=stop[2])
    before = stored(values)
    named(use_chat, "B")
    result = run(values, llm="b", max_tokens=30)
    after = stored(values)
    assert before.items() <= after.items(), "a stored value or population was made again"
    return values, set(before), result


def authors(made: us.Release, number: int) -> set[str]:
    """Who signed the candidates of a round (from 0) that are new in it."""
    places = np.flatnonzero(made.arrays["round"] == number)
    return {made.strings["texts"][place][-2] for place in places if made.strings["prompts"][place] != "kept"}


@pytest.mark.parametrize(
    ("stop", "by_a"),
    [
        ((RunStore, "keep", "votes-1"), 1),
        ((RunStore, "keep", "population-1"), 1),
        ((RunStore, "keep", "votes-2"), 2),
        ((Ledger, "confirm", "votes-3"), 3),
    ],
    ids=["before its votes", "after its votes", "between population and votes", "at the end"],
)
def test_an_unfinished_evolution_goes_on_with_another_model_on_the_stored_candidates_and_one_charge(
    tmp_path: Path, use_chat: UseChat, stop: tuple[type, str, str], by_a: int
) -> None:
    values, _, result = resumed_with_another(tmp_path, use_chat, stop)
    assert runs_charged(values["ledger"]) == 1
    assert [authors(result.release, number) for number in range(3)] == [{"A"}] * by_a + [{"B"}] * (3 - by_a)
    kept = stored(values)
    votes = [np.frombuffer(kept[f"votes-{number}"]["value"]) for number in (1, 2, 3)]
    assert result.release.arrays["votes"].tolist() == np.concatenate(votes).tolist()
    named_ = result.statement.public_inputs["language model"]["source"]
    numbers = "1, 2, 3"
    both = f"fake:A (rounds {numbers[: by_a * 3 - 2]}); fake:B (rounds {numbers[by_a * 3 :]})"
    assert named_ == (both if by_a < 3 else "fake:A")


def test_candidates_that_are_made_again_for_stored_votes_are_noticed(
    tmp_path: Path, use_chat: UseChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: a resume that asks the new model for populations which votes are about already."""
    monkeypatch.setattr(Measurements, "keep", lambda door, name, make: make())
    with pytest.raises(AssertionError):
        test_an_unfinished_evolution_goes_on_with_another_model_on_the_stored_candidates_and_one_charge(
            tmp_path, use_chat, (RunStore, "keep", "votes-2"), 2
        )


def test_that_votes_depend_on_the_model_is_told_before_the_charge_and_once(tmp_path: Path, use_chat: UseChat) -> None:
    named(use_chat, "A")
    values, told = evolving(tmp_path), list[str]()
    listener = running.Listener(told.append)
    running.run(run_config(values), listener=listener)
    places = [
        next(at for at, line in enumerate(told) if word in line)
        for word in ("private records vote on", "The ledger charged")
    ]
    assert places == sorted(places)
    told.clear()
    (tmp_path / "out" / "release" / "aug-pe.release").unlink()
    running.run(run_config({**values, "llm": "b"}), listener=listener)
    assert not [line for line in told if "private records vote on" in line]
    assert [line for line in told if re.search(r'changed settings, at no charge: llm: "fake" became "b"\.', line)]
    assert runs_charged(values["ledger"]) == 1


def test_an_evolution_keeps_the_prompts_that_its_statement_names(tmp_path: Path, use_chat: UseChat) -> None:
    named(use_chat, "A")
    values = evolving(tmp_path)
    stopped(values, RunStore, "keep", name="votes-2")
    with pytest.raises(ResumeError, match='document_type: "document" became "note"'):
        run(values, llm="b", document_type="note")


PROMPT = """
user: "Use: {phrases}"
settings: {examples_per_prompt: 1, prompt_terms: 1, repair: 1, label_in_prompt: true}
examples_are_public: true
examples: ["chest pain, heart, pulse, oedema, skin, rash, eczema, itch"]
document_type: note
"""
CHANGES: dict[str, dict[str, Any]] = {
    "model": {"llm": "other", "llm_extra_body": {"top_k": 4}, "max_tokens": 5, "samples": 2},
    "none": {"llm": "none"},
    "more": {"records_per_label": 6},
    "prompt": {"document_type": "note", "prompt": "prompt.yaml"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_only_writes_may_change_after_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_chat: UseChat, name: str
) -> None:
    use_chat(FakeChat())
    (tmp_path / "prompt.yaml").write_text(PROMPT, "utf-8")
    changes = {each: str(tmp_path / value) if each == "prompt" else value for each, value in CHANGES[name].items()}
    values = settings(tmp_path, llm="fake")
    with stops_after_the_charge(monkeypatch):
        run(values)
    first = run(values, **changes).release  # unfinished, finished, and back
    assert run(values).release.digest == run(values, **changes).release.digest == first.digest
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize(
    ("method", "free", "fixed"),
    [
        ("dp-kps", {"llm", "max_tokens", "prompt", "json_schema", "records", "where"}, {"length", "seed", "epsilon"}),
        ("aug-pe", {"llm", "max_tokens", "samples"}, {"prompt", "document_type", "rounds"}),
        ("few-shot", {"llm", "max_tokens", "samples"}, {"prompt", "private_model"}),
        ("dp-finetune", {"max_tokens", "llm_temperature"}, {"prompt", "private_model", "private_text_tokens"}),
        ("private-prediction", {"llm", "records_per_label"}, {"max_tokens", "prompt", "examples"}),
    ],
)
def test_what_released_values_rest_on_may_never_change(method: str, free: set[str], fixed: set[str]) -> None:
    changeable = run_config({"method": method}).changeable
    assert free <= changeable
    assert not fixed & changeable
