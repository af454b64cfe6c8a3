"""The topics that a Release holds, with their names and noisy sizes. Post-processing, free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ReleaseError
from understudy.methods.shared.evolution.embeddings import private_vectors
from understudy.methods.topics.centres import TERMS_OF_TOPIC, first_ones, nearest_centres
from understudy.methods.topics.plan import NAME, SIZES
from understudy.models.trials import require_trusted
from understudy.models.types import Embedder
from understudy.release import Release

_NAMED, _PHRASES = 3, 5
_NORMAL, _CLEAR = 1.96, 3.0


@dataclass(frozen=True)
class Topic:
    """One topic.

    Args:
        number: from 0, the largest first.
        terms: public terms that tell it from the others, the most telling first.
        size: noisy number of records (of owners, where these are protected).
        low, high: the records that it has with 95 % confidence, by the noise alone.
        clear: whether its size stands clear of the noise; where it does not, the topic may be nothing but noise.
    """

    number: int
    terms: tuple[str, ...]
    size: float
    low: float
    high: float
    clear: bool

    @property
    def name(self) -> str:
        """The first of its terms."""
        return ", ".join(self.terms[:_NAMED])

    def some_terms(self, generator: np.random.Generator) -> tuple[str, ...]:
        """A few of its terms, in the order in which they tell, the more telling ones more often."""
        weights = 1.0 / (1 + np.arange(len(self.terms)))
        chosen = generator.choice(
            len(self.terms), min(_PHRASES, len(self.terms)), replace=False, p=weights / weights.sum()
        )
        return tuple(self.terms[place] for place in np.sort(chosen).tolist())


def topics_of(release: Release) -> tuple[Topic, ...]:
    """The topics of a Release, the largest first. Raises ReleaseError if it is of another method, or a topic has no
    centre."""
    require_topics(release)
    sizes, terms = release.arrays["sizes"], release.strings["terms"]
    counted = first_ones(release.arrays["centres"])
    parts = np.bincount(release.arrays["topic"][counted], minlength=len(sizes))
    if not len(sizes) or len(parts) > len(sizes) or parts.min() == 0:
        raise ReleaseError("The Release has topics without a centre.", "Make it again: it was changed.")
    stds = (release.statement.noise_multiplier(SIZES) or 0.0) * np.sqrt(parts)
    return tuple(
        Topic(
            number,
            tuple(filter(None, terms[number * TERMS_OF_TOPIC : (number + 1) * TERMS_OF_TOPIC])),
            float(size),
            max(0.0, float(size - _NORMAL * std)),
            max(0.0, float(size + _NORMAL * std)),
            bool(size >= max(1.0, _CLEAR * std)),
        )
        for number, (size, std) in enumerate(zip(sizes, stds, strict=True))
    )


def assign(
    release: Release, embedder: Embedder, texts: Sequence[str], *, trust_endpoint: bool = False
) -> NDArray[np.int64]:
    """``Int64[n]``: the number of the topic that each text is nearest to, as records were assigned when topics were
    counted; -1 for a text that the embedder has no vector of length 1 for.

    Raises:
        ReleaseError: the Release is of another method, or the embedder is not the one that it names.
        ModelError: the embedder sends texts away from this machine, and ``trust_endpoint`` is not set.
    """
    require_topics(release)
    require_trusted(embedder, trust_endpoint=trust_endpoint)
    named = release.statement.public_inputs["embedder"]
    if embedder.fingerprint != named["sha256"]:
        raise ReleaseError(
            f"The topics were found with the embedder {named['source']}, not with {embedder.model_id}.",
            "Use the embedder that they were found with.",
        )
    if not texts:
        return np.zeros(0, dtype=np.int64)
    vectors = private_vectors(embedder.embed(texts))
    if vectors.shape[1] != release.arrays["centres"].shape[1]:
        raise ReleaseError("The Release's centres have another dimension than the embedder.", "It was changed.")
    centres = nearest_centres(release.arrays["centres"], vectors)
    return np.where(centres >= 0, release.arrays["topic"][centres], -1)


def require_topics(release: Release) -> None:
    """Raises ReleaseError if the Release holds no topics."""
    if release.method != NAME:
        raise ReleaseError(f"A Release of {release.method} holds no topics.", "Make one with `understudy topics`.")
