"""Settings for a quick private evolution, and an embedder and a chat model made of words alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import TERMS, FakeChat, settings
from numpy.typing import NDArray

from understudy.models.types import ChatRequest, Completion

DIMENSION = 16
OF_KPS = ("length", "bandwidth", "top_terms", "vocabulary", "vocabulary_is_public")


class WordEmbedder:
    """A text's vector is the sum of its words' vectors, of length 1, whatever stands beside it."""

    model_id = "fake:words"
    fingerprint = "1" * 64
    local = True
    longest, batch_tokens = 8, 64  # so that it is quickly tried

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [sum(_vector(word) for word in [*text.lower().split(), "."]) for text in texts]
        vectors = np.array(rows, dtype=np.float64).reshape(len(texts), DIMENSION)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@cache
def _vector(word: str) -> NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(word.strip(".,").encode()).digest()[:8])
    return np.random.default_rng(seed).normal(size=DIMENSION)


def varied(request: ChatRequest) -> Completion:
    """Five of the clinic's terms, chosen by everything that the request says, its sample number too."""
    draw = np.random.default_rng(int(request.key("varied")[:12], 16))
    return Completion(f"Seen: {', '.join(draw.choice(TERMS, 5))}.", "stop", 9, 9)


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> WordEmbedder:
    """Let every ``embedder`` mean this one."""
    made = WordEmbedder()
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: made)
    return made


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
