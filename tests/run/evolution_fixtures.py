"""Settings for a quick private evolution, and an embedder and a chat model made of words alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import TERMS, FakeChat, settings
from word_embedder import DIMENSION, Counting, WordEmbedder  # noqa: F401

from understudy.models.types import ChatRequest, Completion

OF_KPS = ("length", "top_terms", "vocabulary", "vocabulary_is_public")


def varied(request: ChatRequest) -> Completion:
    """Five of the clinic's terms, chosen by everything that the request says, its sample number too."""
    draw = np.random.default_rng(int(request.key("varied")[:12], 16))
    return Completion(f"Seen: {', '.join(draw.choice(TERMS, 5))}.", "stop", 9, 9)


def use_embedder(patch: pytest.MonkeyPatch, embedder: Any) -> Any:
    """Let every ``embedder`` mean this one."""
    patch.setattr("understudy.models.catalog.load_embedder", lambda spec: embedder)
    return embedder


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return use_embedder(monkeypatch, Counting())


@pytest.fixture
def varied_chat(monkeypatch: pytest.MonkeyPatch) -> FakeChat:
    """Let every ``llm`` mean a chat model that answers every request differently."""
    made = FakeChat(varied)
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda spec, **options: made)
    return made


def evolving(folder: Path, **changes: Any) -> dict[str, Any]:
    """A complete configuration of aug-pe: 2 labels, 2 rounds of 12 candidates per label, of which 4 are chosen.

    A change to None takes the setting out.
    """
    clinic = {name: value for name, value in settings(folder).items() if name not in OF_KPS}
    own = {"method": "aug-pe", "llm": "fake", "rounds": 2, "population": 4, "variations": 3}
    return {name: value for name, value in {**clinic, **own, **changes}.items() if value is not None}
