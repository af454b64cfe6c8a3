"""Texts that have parts in methods that evolve texts: blanks, embeddings and candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import FakeChat
from evolution_fixtures import WordEmbedder, evolving
from numpy.typing import NDArray
from test_dialogue_runs import LABELS, ROLES, TALK, write_table

import understudy as us
from understudy.base.transcript import TextForm
from understudy.models.types import ChatRequest, Completion
from understudy.models.vectors import uncached
from understudy.run import pipeline as running
from understudy.run.guiding import ContentsEmbedder
from understudy.run.settings import run_config

FORM = TextForm(roles=ROLES)


class Listening(WordEmbedder):
    """Keeps what it was given to embed."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.seen.update(texts)
        return super().embed(texts)


def talks(request: ChatRequest) -> Completion:
    """A dialogue, another for every request; now and then none."""
    key = int(request.key("talks")[:8], 16)
    if key % 7 == 0:
        return Completion("No dialogue at all.", "stop", 9, 9)
    thing = ("router", "phone")[key % 2]
    return Completion(f"Customer: My {thing} {key % 1000} fails.\nAgent: Since when?", "stop", 9, 9)


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> Listening:
    made = Listening()
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: made)
    return made


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> FakeChat:
    made = FakeChat(talks)
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda spec, **options: made)
    return made


def configured(folder: Path, method: str, **changes: Any) -> dict[str, Any]:
    data = write_table(folder / "table.parquet", 60)
    table = {"data": str(data), "label": "product", "labels": LABELS, "epsilon": "20", "insecure_noise_seed": 1}
    return evolving(folder, **{"method": method, **TALK, **table, "records_per_label": 3, **changes})


@pytest.mark.parametrize("method", ["aug-pe", "guided-evolution"])
def test_dialogues_evolve_as_such(tmp_path: Path, embedder: Listening, chat: FakeChat, method: str) -> None:
    result = running.run(run_config(configured(tmp_path, method, blank_probability=0.5)))
    assert result.records
    assert all(FORM.parse(record.text) for record in result.records)
    assert {turn["role"] for turns in result.columns["messages"] for turn in turns} == set(ROLES)  # type: ignore[attr-defined]
    filled = [request.messages[-1].content for request in chat.asked if "_ " in request.messages[-1].content]
    assert filled
    assert all("\ncustomer: " in prompt and "\nagent: " in prompt for prompt in filled)
    assert not [text for text in embedder.seen if "customer:" in text.lower()], "names would be in every vector"


def test_the_texts_of_a_release_are_transcripts(tmp_path: Path, embedder: Listening, chat: FakeChat) -> None:
    made = running.release(run_config(configured(tmp_path, "aug-pe", records_per_label=None))).release
    assert all(FORM.parse(text) for text in made.strings["texts"])
    assert us.load_release(tmp_path / "out" / "release" / "aug-pe.release").schema.form == FORM


def test_an_embedder_of_contents_is_tried_and_told_like_its_own() -> None:
    inner = Listening()
    made = ContentsEmbedder(inner, FORM)
    assert np.array_equal(made.embed(["agent: Hello"]), inner.embed(["Hello"]))
    assert (made.model_id, made.fingerprint, made.local) == (inner.model_id, inner.fingerprint, True)
    assert getattr(made, "longest", None) == inner.longest
    assert getattr(made, "nothing", None) is None
    assert uncached(made) == made
