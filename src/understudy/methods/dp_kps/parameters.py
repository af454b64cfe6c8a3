"""What a user may choose in DP-KPS: for the release (it costs), and for the drawing of sequences (it is free)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from understudy.parameters import Parameters, public_file
from understudy.privacy.noise import NoiseKind
from understudy.vocabulary.terms import BUILT_IN

SMALLEST_BANDWIDTH = 0.001


class SequenceParameters(Parameters):
    """How keyphrase sequences are drawn from a Release: post-processing, free, changeable at every ``generate``."""

    length: int = Field(10, ge=1, le=100)
    """Terms a sequence (L)."""
    temperature: float = Field(1.0, ge=1e-6, le=1000)
    """Terms are drawn from scores^(1/temperature)."""
    contrast: float = Field(1.0, ge=0, le=100)
    """How strongly terms that other labels share are avoided (gamma). 0: not at all."""
    coherence: float = Field(0.0, ge=0, le=1000)
    """How strongly a term is drawn to those before it (kappa, on cosines). 0: not at all."""
    top_k: int | None = Field(None, ge=1, le=10_000_000)
    """Iterative mode: draw among the best-scoring terms only."""


class ReleaseParameters(Parameters):
    """What DP-KPS releases, and how its budget is split."""

    noise: NoiseKind = "gaussian"
    """``gaussian``: (epsilon, delta)-DP. ``laplace``: pure DP, as published."""
    mode: Literal["independent", "iterative"] = "independent"
    """Whether terms are drawn from a density of terms, or grown against densities of sequences."""
    ensemble: Literal["log", "linear"] = "log"
    """Iterative mode: structures of 1, 2, 4, ... terms, or of 1, 2, 3, ... terms."""
    vocabulary: str = public_file(BUILT_IN)
    """A public list of terms: a file, or the built-in English word list."""
    vocabulary_is_public: bool = False
    """Your word that your own vocabulary, stop words or embeddings were not made from private data."""
    vocabulary_size: int | None = Field(None, ge=1)
    """Keep only the most frequent terms of the vocabulary."""
    stop_words: str | None = public_file(None)
    """A file of words to leave out, or ``none``. Default: a built-in English list."""
    top_terms: int = Field(1000, ge=1)
    """Size of the privatised vocabulary (N)."""
    terms_per_record: int = Field(10, ge=1, le=100)
    """Contribution bound: the first distinct terms of a record that count (S)."""
    bandwidth: float = Field(0.0, ge=0, le=1000)
    """Bandwidth of the kernel on unit vectors (h), 0.2 to 0.5. 0: exact histogram, no smoothing, no embedder."""
    features: int = Field(2000, ge=1, le=100_000)
    """Random frequencies a sketch (I)."""
    vocabulary_share: float = Field(0.2, gt=0, lt=1)
    """Share of the budget (of mu^2 or of epsilon) that goes to the vocabulary."""


class DPKPSParameters(ReleaseParameters, SequenceParameters):
    """All parameters of DP-KPS."""

    @model_validator(mode="after")
    def _bandwidth_fits(self) -> Self:
        if self.mode == "iterative" and self.bandwidth == 0:
            raise ValueError("the iterative mode needs a bandwidth above 0")
        if 0 < self.bandwidth < SMALLEST_BANDWIDTH:  # its phases are too large for the cosines of float32
            raise ValueError(f"a bandwidth is 0 (the exact histogram) or at least {SMALLEST_BANDWIDTH}")
        return self

    @model_validator(mode="after")
    def _coherence_needs_embeddings(self) -> Self:
        if self.coherence > 0 and not needs_embeddings(self):
            raise ValueError("coherence compares embeddings, which need a bandwidth above 0")
        return self


def needs_embeddings(parameters: ReleaseParameters) -> bool:
    """False for the exact histogram, which smooths nothing."""
    return parameters.mode == "iterative" or parameters.bandwidth > 0
