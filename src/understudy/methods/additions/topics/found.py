"""The topics of a Release, with their names and noisy sizes. Post-processing, free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ReleaseError
from understudy.methods.additions.topics.centres import first_ones, nearest_centres
from understudy.methods.additions.topics.labelling import (
    BESIDE,
    SIZES,
    TERMS_OF_TOPIC,
    TOPIC_CENTRES,
    TOPIC_SIZES,
    TOPIC_TERMS,
)
from understudy.methods.additions.topics.plan import NAME, sample_of
from understudy.methods.shared.evolution.embeddings import private_vectors
from understudy.models.embedder_checks import require_trusted
from understudy.models.types import Embedder
from understudy.release import Release

_NAMED, _PHRASES = 3, 5
_NORMAL, _CLEAR = 1.96, 3.0
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Topic:
    """One topic of a Release.

    Args:
        number: from 0, the largest first in the Release that found them.
        terms: public terms that distinguish it from the others, the best first.
        size: noisy number of records (or of owners, if these are protected), from 0 to the total of all topics.
        low, high: the range that contains the number of records nearest to the topic's released centre in 95 of 100
            cases, whatever that number is. It covers only the noise on the size and the chance of sampling: not how
            well the centre represents its records, nor how topics would differ in another run.
        clear: whether its size is above the noise, and records surely used one of its terms. If not, the topic or its
            terms may be nothing but noise.
    """

    number: int
    terms: tuple[str, ...]
    size: float
    low: float
    high: float
    clear: bool
    title: str = ""
    """The name that a language model gave it, from its terms only."""

    @property
    def name(self) -> str:
        """Return the first of its terms; ``topic 7`` if no record surely used any of them."""
        return ", ".join(self.terms[:_NAMED]) or f"topic {self.number + 1}"

    def some_terms(self, generator: np.random.Generator) -> tuple[str, ...]:
        """Sample a few of its terms, in their order, the best ones more often."""
        weights = 1.0 / (1 + np.arange(len(self.terms)))
        chosen = generator.choice(
            len(self.terms), min(_PHRASES, len(self.terms)), replace=False, p=weights / weights.sum()
        )
        return tuple(self.terms[place] for place in np.sort(chosen).tolist())


def topics_of(release: Release) -> tuple[Topic, ...]:
    """Return the topics of a Release by their numbers: the largest first, if it found them itself.

    Raises ReleaseError if it has none, or a topic has no centre.
    """
    held = held_of(release)
    stds, sizes, read = held.stds(), held.sizes / held.rate, 1 / held.rate
    stds *= read
    shown = np.clip(sizes, 0.0, max(0.0, float(sizes.sum())))
    lows, _ = _ranges(shown, stds, held.rate)
    _, highs = _ranges(np.maximum(sizes, shown), stds, held.rate)  # of the released size
    return tuple(
        Topic(
            number,
            tuple(filter(None, held.terms[number * TERMS_OF_TOPIC : (number + 1) * TERMS_OF_TOPIC])),
            size,
            max(0.0, low),
            high,
            bool(said) and size >= max(read, _CLEAR * std),
        )
        for number, (size, std, low, high, said) in enumerate(
            zip(shown.tolist(), stds.tolist(), lows.tolist(), highs.tolist(), held.said.tolist(), strict=True)
        )
    )


def by_share(topics: Sequence[Topic]) -> list[tuple[Topic, float]]:
    """Return the topics, the largest first, each with its share of the total size."""
    whole = sum(each.size for each in topics) or 1.0
    return [(each, each.size / whole) for each in sorted(topics, key=lambda each: -each.size)]


def _ranges(sizes: Floats, stds: Floats, rate: float) -> tuple[Floats, Floats]:
    """Return the range of N from which a noisy size differs by at most 1.96 standard deviations. The variance is N (1 -
    rate) / rate, of the sample, plus that of the noise (a score interval, Wilson 1927). Records of one owner are
    sampled together, but weigh 1 in total: they vary no more."""
    half = _NORMAL**2 * (1 - rate) / rate / 2
    width = np.sqrt(half**2 + 2 * half * sizes + (_NORMAL * stds) ** 2)
    return sizes + half - width, sizes + half + width


def called_by(terms: Sequence[str]) -> list[tuple[str, ...]]:
    """Return, for each topic, the terms in its name (in any order), or its number if it has none."""
    rows = [terms[first : first + _NAMED] for first in range(0, len(terms), TERMS_OF_TOPIC)]
    return [tuple(sorted(filter(None, row))) or (str(number),) for number, row in enumerate(rows)]


def names_of(terms: Sequence[str]) -> tuple[str, ...]:
    """Return distinct names of the topics, each made of a topic's first terms; ``other`` for a topic without terms.

    ``terms`` has TERMS_OF_TOPIC entries per topic, in order. The writer does not use ``other`` as a subject.
    """
    found: list[str] = []
    for first in range(0, len(terms), TERMS_OF_TOPIC):
        name = ", ".join(filter(None, terms[first : first + _NAMED])) or "other"
        found.append(name if name not in found else f"{name} ({len(found) + 1})")
    return tuple(found)


def topic_counts(release: Release) -> tuple[list[float], float] | None:
    """Return each label's noisy number of records, and the standard deviation of the noise; None if labels are not
    topics."""
    if not release.schema.topics:
        return None
    held = held_of(release)
    return held.sizes.tolist(), held.noise


@dataclass(frozen=True)
class HeldTopics:
    """The arrays and terms of the topics in a Release."""

    centres: NDArray[np.int16]
    topic: NDArray[np.int32]
    sizes: NDArray[np.float64]
    terms: Sequence[str]
    said: NDArray[np.int8]
    noise: float  # on the number of records at a centre
    rate: float = 1.0  # at which records were sampled: sizes and noise are those of the sample

    def stds(self) -> NDArray[np.float64]:
        """Return the standard deviation of the noise on each size. Raises ReleaseError if it is missing, or a topic has
        no centre."""
        counted = first_ones(self.centres)
        if np.array_equal(self.topic, np.arange(len(self.centres))):  # each label has a centre and a size
            counted[:] = True
        parts = np.bincount(self.topic[counted], minlength=len(self.sizes))
        if not len(self.sizes) or len(parts) > len(self.sizes) or parts.min() == 0:
            raise ReleaseError(
                "The Release was changed: it has topics without a centre.", "Ask the sender for a new copy."
            )
        return self.noise * np.sqrt(parts)


def held_of(release: Release) -> HeldTopics:
    """Return the topics' arrays and terms. Raises ReleaseError if the Release contains no topics."""
    if release.method != NAME and not release.schema.topics:
        raise ReleaseError(f"A Release of {release.method} contains no topics.", "Make one with `understudy topics`.")
    arrays, strings, own = release.arrays, release.strings, release.method == NAME
    noise = release.statement.noise_multiplier(SIZES if own else BESIDE + SIZES) or 0.0
    if own:
        found = arrays["centres"], arrays["topic"], arrays["sizes"], strings["terms"], arrays["said"]
        if (sampled := sample_of(release.statement.charges)) is None:
            return HeldTopics(*found, noise)
        bare = release.statement.noise_multiplier(NAME) == 0
        return HeldTopics(*found, 0.0 if bare else dict(sampled.sums)[SIZES].noise_std, sampled.rate)
    centres = arrays[TOPIC_CENTRES]
    topic = np.arange(len(centres), dtype=np.int32)
    return HeldTopics(centres, topic, arrays[TOPIC_SIZES], strings[TOPIC_TERMS], np.ones(len(topic), np.int8), noise)


def assign(
    release: Release, embedder: Embedder, texts: Sequence[str], *, trust_endpoint: bool = False
) -> NDArray[np.int64]:
    """Return the number of the topic nearest to each text, ``Int64[n]``, as the release assigns records; -1 for a text
    without a vector of length 1.

    Raises:
        ReleaseError: the Release is of another method, or the embedder is not the one that it names.
        ModelError: the embedder sends texts away from this machine, and ``trust_endpoint`` is not set.
    """
    held = held_of(release)
    require_trusted(embedder, trust_endpoint=trust_endpoint)
    require_embedder(release, embedder, held.centres.shape[1])
    if not texts:
        return np.zeros(0, dtype=np.int64)
    vectors = private_vectors(embedder.embed(texts))
    require_embedder(release, embedder, vectors.shape[1])
    centres = nearest_centres(held.centres, vectors)
    return np.where(centres >= 0, held.topic[centres], -1)


def require_embedder(release: Release, embedder: Embedder, dimension: int) -> None:
    """Raise ReleaseError if the topics were found with another embedder or another number of dimensions."""
    named = release.statement.public_inputs["embedder"]
    if embedder.fingerprint != named["sha256"]:
        raise ReleaseError(
            f"The topics were found with the embedder {named['source']}, not with {embedder.model_id}.",
            "Use the embedder that they were found with.",
        )
    if held_of(release).centres.shape[1] != dimension:
        raise ReleaseError(
            "The Release was changed: its centres do not fit its embedder.", "Ask the sender for a new copy."
        )
