"""Guided evolution: one guide is released, and texts evolve against it, free and any number of times."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LABELS, TERMS, FakeChat, flags
from evolution_fixtures import DIMENSION, WordEmbedder, evolving, varied
from run_fixtures import Command, UseChat, release, run, runs_charged

import understudy as us
from understudy.base.errors import ConfigError, ModelError, ReleaseError
from understudy.ledger import Ledger
from understudy.methods.additions.guide.guide import guide_of
from understudy.methods.facts import GenerationTools
from understudy.models.types import ChatRequest, Completion
from understudy.text.prompts.template import WritingParameters, load_template
from understudy.text.writing import Writer

pytestmark = pytest.mark.usefixtures("embedder")
SEEDED = {"insecure_noise_seed": 1}


def configured(folder: Path, **changes: Any) -> dict[str, Any]:
    return evolving(folder, **{"method": "guided-evolution", **changes})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> us.Release:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.models.catalog.load_embedder", lambda spec: WordEmbedder())
        values = configured(tmp_path_factory.mktemp("made"), records_per_label=None, epsilon="20", **SEEDED)
        return release(values)


def by_label(result: us.Result) -> Counter[int]:
    return Counter(record.label for record in result.records)


def test_the_release_holds_the_guide_and_nothing_else(tmp_path: Path, varied_chat: FakeChat) -> None:
    made = release(configured(tmp_path, records_per_label=None))
    again = us.load_release(tmp_path / "out" / "release" / "guided-evolution.release")
    assert again.digest == made.digest
    assert {name: array.shape for name, array in again.arrays.items()} == {"guide": (2, 1 + DIMENSION)}
    assert (again.terms, again.strings) == ([], {})
    assert [charge.name for charge in again.statement.charges] == ["guide"]
    assert 2.99 < again.statement.epsilon_at[1e-6] <= 3
    assert again.statement.public_inputs == {"embedder": {"source": "fake:words", "sha256": "1" * 64}}
    assert varied_chat.asked == [], "the release asks no language model"
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_a_run_evolves_texts(tmp_path: Path, varied_chat: FakeChat, understudy: Command) -> None:
    said = understudy("run", *flags(configured(tmp_path)), code=0)
    assert "Round 2 of 2: 24 candidates, 8 chosen." in said.err
    assert "Wrote 8 synthetic records" in said.err
    shown = understudy("show", str(tmp_path / "out" / "release" / "guided-evolution.release"))
    assert (shown.code, "guide" in shown.out) == (0, True)
    file = str(tmp_path / "out" / "release" / "guided-evolution.release")
    more = ("--llm", "fake", "--records-per-label", "2", "--rounds", "3", "--output", str(tmp_path / "more"))
    said = understudy("generate", file, *more, code=0)
    assert "Round 3 of 3" in said.err
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_generating_is_free_any_number_of_times(
    made: us.Release, varied_chat: FakeChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "__init__", lambda *_, **__: pytest.fail("a ledger was opened"))
    for count, rounds in ((1, 1), (3, 4), (9, 2)):
        result = us.generate(made, llm="fake", records_per_label=count, rounds=rounds)
        assert by_label(result) == {0: count, 1: count}
        assert result.missing == 0
    options: dict[str, Any] = {"llm": "fake", "records_per_label": 3}
    assert by_label(us.generate(made, llm="fake", records=7)) == {0: 4, 1: 3}
    first = us.generate(made, **options)
    assert us.generate(made, **options).columns == first.columns
    assert us.generate(made, **options, seed=1).columns != first.columns


def test_texts_come_to_speak_for_their_label(made: us.Release, varied_chat: FakeChat, embedder: WordEmbedder) -> None:
    """The model writes of anything: what is there after some rounds was chosen by the guide."""

    def right(rounds: int) -> int:
        """Terms of the own label less those of the other."""
        records = us.generate(made, llm="fake", records_per_label=20, rounds=rounds, population=20).records
        told = [sum(term in record.text for term in TERMS[:8]) for record in records]
        return sum((2 * each - 5) * (1 - 2 * record.label) for each, record in zip(told, records, strict=True))

    assert right(5) > right(1) > 0


@pytest.mark.parametrize(
    "changes",
    [{"rounds": 4, "population": 5}, {"records_per_label": 9, "harvest": "variations"}, {"records_per_label": 1}],
    ids=str,
)
def test_the_calls_are_those_that_were_forecast(tmp_path: Path, varied_chat: FakeChat, changes: dict[str, Any]) -> None:
    own = {"rounds": 2, "population": 4, "variations": 3, **changes}
    asked = {"llm": "fake", "records_per_label": own.pop("records_per_label", 4)}
    public = {"label": "department", "labels": LABELS}
    foretold = us.plan(us.GuidedEvolution(**own), us.Budget(3, "1e-6"), **public, **asked)
    run(configured(tmp_path, **changes))
    (calls,) = (entry.value for entry in foretold.calls.entries if entry.name == "calls")
    assert len(varied_chat.asked) == calls


def test_there_must_be_a_language_model_and_the_embedder_of_the_release(
    tmp_path: Path, made: us.Release, varied_chat: FakeChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="needs a language model"):
        us.generate(made, llm="none", records=2)
    for changes in ({"llm": "none"}, {"delta": "0"}, {"population": 10_000_000}):
        with pytest.raises(ConfigError):
            run(configured(tmp_path, **changes))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    tools = GenerationTools(Writer(None, load_template("note"), WritingParameters(), labels=LABELS), WordEmbedder())
    with pytest.raises(ModelError, match="needs a language model"):
        us.GuidedEvolution().generate(made, [1, 1], tools=tools)
    with pytest.raises(ReleaseError, match="no guide made of this embedder's vectors"):
        us.generate(replace(made, arrays={"guide": np.ones((2, DIMENSION + 4))}), llm="fake", records=2)

    class Other(WordEmbedder):
        model_id, fingerprint = "fake:others", "2" * 64

    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: Other())
    with pytest.raises(ReleaseError, match="made of embeddings of fake:words, not of fake:others"):
        us.generate(made, llm="fake", records=2)
    assert varied_chat.asked == []


def test_calls_that_fail_are_made_up_for(made: us.Release, use_chat: UseChat) -> None:
    def sometimes(request: ChatRequest) -> Completion:
        return varied(request) if int(request.key("x")[:8], 16) % 3 else Completion("", "stop", 9, 9)

    use_chat(FakeChat(sometimes))
    result = us.generate(made, llm="fake", records_per_label=5, rounds=3)
    assert sum(by_label(result).values()) + result.missing == 10
    assert len(result.records) >= 8


def test_without_noise_the_guide_is_exact(tmp_path: Path, varied_chat: FakeChat, embedder: WordEmbedder) -> None:
    result = run(configured(tmp_path, insecure_no_noise=True, owner="clinician"))
    guide = guide_of(result.release, embedder, cure="")
    assert guide.noise_std == 0
    assert guide.counts.sum() == pytest.approx(5, abs=1e-3)
    assert len(result.records) == 8
