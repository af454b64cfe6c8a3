"""DP-KPS as published, after the privacy boundary: sample sequences of terms from noisy kernel densities. Free.

For m unit vectors x_1..x_m and the bandwidth h, and frequencies a_ib ~ N(0, I_d),

    phi(x) = [cos p_i, sin p_i], i = 1..I,    p_i = sqrt(2) / (h sqrt(m)) sum_b a_ib . x_b

so that phi(x) . phi(y) / I estimates exp(-|x - y|^2 / (h^2 m)) for the concatenations: random Fourier features (Rahimi
and Recht 2007), as LSQ has them (Wagner et al. 2023), with embeddings scaled by 1/sqrt(m) (KPS, appendix B). Phases are
whole steps of a turn, so those of a sequence add up exactly, in any order and any batch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, ReleaseError
from understudy.methods.dp_kde.plan import GRID, DPKDEParameters, require_room
from understudy.methods.facts import GenerationTools
from understudy.methods.shared.vocabulary import REAL, public_vocabulary
from understudy.models.types import Message
from understudy.release import Release
from understudy.text.records import Seed, SyntheticRecord
from understudy.text.vocabulary.sampling import contrast_weights, gumbel, label_share, sample_independent
from understudy.text.vocabulary.shrinkage import SURE
from understudy.text.vocabulary.terms import is_unwanted
from understudy.text.writing import Writer

_STEPS = 1 << 12  # of a turn; divides 2^16, so that sums of phases may wrap
_TURN = np.arange(_STEPS) * (2 * math.pi / _STEPS)
_WAVES = np.trunc(GRID * (1 - 1e-9) * np.stack([np.cos(_TURN), np.sin(_TURN)])).astype(np.int32)
"""Cos and sin of each phase in integer steps of 1/GRID, rounded towards zero: their squares add up to at most
GRID^2."""
_PREFIXES = 1024
_SMALLEST = 1e-12

Phases = NDArray[np.uint16]
"""Phases in steps of a turn, modulo 2^16."""


@dataclass(frozen=True)
class Frequencies:
    """The random frequencies of all densities of a Release: public, sampled from a public seed."""

    seed: int
    count: int  # I
    bandwidth: float  # h
    dimension: int  # d

    def block(self, position: int) -> NDArray[np.float32]:
        """Return ``Float32[d, I]``: the frequencies for the term at ``position`` (from 0)."""
        generator = np.random.Generator(np.random.PCG64([self.seed, position]))
        return generator.standard_normal((self.dimension, self.count)).astype(np.float32)

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 of the first block. The Release stores it, to detect a NumPy that samples differently."""
        return hashlib.sha256(self.block(0).tobytes()).digest()

    def phases(self, embeddings: NDArray[np.float32], length: int) -> Phases:
        """Return the phases ``UInt16[m, N, I]`` of each term at each position of a sequence of m = ``length`` terms."""
        steps = math.sqrt(2 / length) / self.bandwidth * _STEPS / (2 * math.pi)
        found = np.empty((length, len(embeddings), self.count), dtype=np.uint16)
        for position in range(length):
            turns = np.rint(embeddings @ self.block(position) * np.float32(steps))
            found[position] = turns.astype(np.int64) & 0xFFFF
        return found


def integer_features(phases: Phases) -> NDArray[np.int32]:
    """Return GRID * [cos, sin] of the phases ``UInt16[n, I]`` as integers: ``Int32[n, 2 I]``, of L2 norm at most GRID
    sqrt(I) and L1 norm at most GRID sqrt(2) I."""
    return np.concatenate(_WAVES[:, phases & (_STEPS - 1)], axis=1)


def generate(
    parameters: DPKDEParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """Write ``counts[label]`` texts of each label around sampled sequences of terms. A language model gets only those
    terms that the private texts almost certainly contain."""
    shown = np.ones(len(release.terms), dtype=np.bool_)
    if tools.writer.chat is not None:
        shown = release.arrays[REAL] >= SURE
    if not parameters.allow_words:
        shown &= ~np.array([is_unwanted(term, parameters.tongue) for term in release.terms], dtype=np.bool_)
    seed = int(release.parameters["seed"])
    sequences = sample_sequences(parameters, release.arrays, counts, seed=seed, sampling_seed=tools.seed)
    seeds = [
        Seed(tuple(release.terms[term] for term in row if shown[term]) or tools.writer.instead_of_phrases(label), label)
        for label, rows in enumerate(sequences)
        for row in rows.tolist()
    ]
    return tools.writer.write(seeds)


def longest_prompts(parameters: DPKDEParameters, release: Release, writer: Writer) -> Iterator[tuple[Message, ...]]:
    """Return prompts around the longest terms of the public vocabulary."""
    return writer.longest_prompts(public_vocabulary(parameters).terms, count=parameters.length)


def sample_sequences(
    parameters: DPKDEParameters,
    arrays: Mapping[str, NDArray[Any]],
    counts: Sequence[int],
    *,
    seed: int,
    sampling_seed: int,
) -> list[NDArray[np.int64]]:
    """Sample sequences of distinct terms for each label: ``Int64[counts[label], length]`` term indices.

    Args:
        seed: seed of the frequencies, from the Release.
        sampling_seed: seed of these sequences.
    """
    embeddings, length = arrays["embeddings"], parameters.length
    terms, dimension = embeddings.shape
    sketches = {
        int(name.removeprefix("density-")): sums for name, sums in arrays.items() if name.startswith("density-")
    }
    iterative = parameters.mode == "iterative"
    if length > (most := max(sketches) if iterative else terms):
        raise ConfigError(f"This Release supports sequences of up to {most} terms.", f"Set length to at most {most}.")
    require_room(parameters, terms=terms, dimension=dimension, cure="Generate on a machine with more memory.")
    frequencies = Frequencies(seed, parameters.features, parameters.bandwidth, dimension)
    if arrays["frequencies"].tobytes() != frequencies.digest:
        raise ReleaseError(
            "The random frequencies of this Release cannot be sampled again by this NumPy.",
            "Generate with the NumPy version of the machine that made the Release.",
        )
    generator = np.random.default_rng([sampling_seed, seed])
    scores = density_scores(sketches[1], frequencies, embeddings)
    if not iterative:
        weights = contrast_weights(scores, contrast=parameters.contrast) ** (1 / parameters.temperature)
        pairs = zip(weights, counts, strict=True)
        return [sample_independent(row, length=length, count=count, generator=generator) for row, count in pairs]
    log_contrast = parameters.contrast * np.log(np.maximum(label_share(scores), 1e-6))
    sampled, size = [np.zeros((count, length), dtype=np.int64) for count in counts], 0
    for position in range(length):
        if position >= size:
            size = min(each for each in sketches if each > position)
            phases = frequencies.phases(embeddings, size)
        waves = _waves(phases[position]).T
        for label, rows in enumerate(sampled):
            sketch = (sketches[size][label] / parameters.features).astype(np.float32)
            for some in (rows[start : start + _PREFIXES] for start in range(0, len(rows), _PREFIXES)):
                prefix = phases[np.arange(position), some[:, :position]].sum(axis=1, dtype=np.uint16)
                found = _next_scores(sketch, prefix, waves)
                least = _SMALLEST * np.maximum(found.max(axis=1, keepdims=True), _SMALLEST)  # flat if all < 0
                logits = np.log(np.maximum(found, least)) / parameters.temperature + log_contrast[label]
                np.put_along_axis(logits, some[:, :position], -np.inf, axis=1)
                some[:, position] = np.argmax(logits + gumbel(logits.shape, generator), axis=1)
    return sampled


def density_scores(
    sketch: NDArray[np.float64], frequencies: Frequencies, embeddings: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return ``Float64[labels, N]``: the estimated kernel density of each term under each label, in records."""
    features = integer_features(frequencies.phases(embeddings, 1)[0])
    return np.asarray(sketch @ (features.T / (GRID * frequencies.count)), dtype=np.float64)


def _next_scores(sketch: NDArray[np.float32], prefix: Phases, waves: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``Float32[n, N]``: the density of each of n prefixes followed by each term, padded with zeros to m terms
    (which scales all values equally): [(C cos P + S sin P) . cos A + (S cos P - C sin P) . sin A], (C, S) the
    sketch."""
    (c, s), (cos, sin) = np.split(sketch, 2), np.split(_waves(prefix), 2, axis=1)
    return np.asarray(np.concatenate([c * cos + s * sin, s * cos - c * sin], axis=1) @ waves, dtype=np.float32)


def _waves(phases: Phases) -> NDArray[np.float32]:
    return integer_features(phases).astype(np.float32) / np.float32(GRID)
