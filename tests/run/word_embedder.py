"""An embedder made of words alone, without a library that takes long to import in other processes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

DIMENSION = 16


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


class Counting(WordEmbedder):
    """It remembers which texts it was given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.seen += texts
        return super().embed(texts)


@cache
def _vector(word: str) -> NDArray[np.float64]:
    seed = int.from_bytes(hashlib.sha256(word.strip(".,").encode()).digest()[:8])
    return np.random.default_rng(seed).normal(size=DIMENSION)
