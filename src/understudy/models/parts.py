"""Embeddings of texts that have parts: of what these say, since their names are the same in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.base.transcript import TextForm
from understudy.models.types import Embedder, WrappedEmbedder
from understudy.models.vectors import uncached


@dataclass(frozen=True)
class ContentsEmbedder(WrappedEmbedder):
    """An embedder of transcripts; other texts, such as terms, are embedded as they are."""

    form: TextForm

    @property
    def uncached(self) -> Embedder:
        """As :func:`~understudy.models.vectors.uncached`."""
        return ContentsEmbedder(uncached(self.embedder), self.form)

    def __getattr__(self, name: str) -> object:
        if name in ("longest", "batch_tokens"):  # which not every embedder has
            return getattr(self.embedder, name)
        raise AttributeError(name)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embedder.embed([self.form.contents(text) for text in texts])
