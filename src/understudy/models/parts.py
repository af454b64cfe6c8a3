"""Embeddings of texts that have parts: of what these say, since their names are the same in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.models.types import Embedder
from understudy.models.vectors import uncached
from understudy.transcript import TextForm


@dataclass(frozen=True)
class ContentsEmbedder:
    """An embedder of transcripts; other texts, such as terms, are embedded as they are."""

    form: TextForm
    embedder: Embedder

    @property
    def model_id(self) -> str:
        return self.embedder.model_id

    @property
    def local(self) -> bool:
        return self.embedder.local

    @property
    def fingerprint(self) -> str:
        return self.embedder.fingerprint

    @property
    def uncached(self) -> Embedder:
        """As :func:`~understudy.models.vectors.uncached`."""
        return ContentsEmbedder(self.form, uncached(self.embedder))

    def __getattr__(self, name: str) -> object:
        if name in ("longest", "batch_tokens"):  # which not every embedder has
            return getattr(self.embedder, name)
        raise AttributeError(name)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embedder.embed([self.form.contents(text) for text in texts])
