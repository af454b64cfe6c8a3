"""DP-KPS, after the privacy boundary: keyphrase sequences out of a Release. Free, any number of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError, ReleaseError
from understudy.methods.dp_kps.features import Frequencies, integer_features
from understudy.methods.dp_kps.plan import DPKPSParameters, needs_embeddings, require_memory_for_features
from understudy.methods.dp_kps.sequences import (
    contrast_weights,
    draw_coherent,
    draw_independent,
    draw_iterative,
    label_share,
    term_scores,
)


def scores(parameters: DPKPSParameters, arrays: Mapping[str, NDArray[Any]], seed: int) -> NDArray[np.float64]:
    """``Float64[labels, N]``: of each term under each label (independent mode)."""
    sketch = arrays["density"]
    if parameters.bandwidth == 0:
        return np.asarray(sketch, dtype=np.float64)
    return term_scores(sketch, _features(parameters, arrays, seed))


def draw_sequences(
    parameters: DPKPSParameters, arrays: Mapping[str, NDArray[Any]], counts: Sequence[int], *, seed: int, draw_seed: int
) -> list[NDArray[np.int64]]:
    """Per label ``Int64[counts[label], length]`` of distinct term indices.

    Args:
        seed: of the frequencies, from the Release; ``draw_seed`` is that of these sequences.

    Raises:
        ConfigError: if the sequences are longer than the structures or the vocabulary, coherence has no embeddings, or
            the features do not fit into memory.
    """
    if parameters.length > len(arrays["counts"]):
        raise ConfigError("The sequences are longer than the Release's vocabulary.", "Lower length.")
    if needs_embeddings(parameters):
        terms, dimension = _embeddings(arrays).shape
        cure = "Generate on a machine with more memory."
        require_memory_for_features(parameters, terms=terms, dimension=dimension, cure=cure)
    generator = np.random.default_rng([draw_seed, seed])
    if parameters.mode == "iterative":
        return _iterative(parameters, arrays, counts, seed, generator)
    weights = contrast_weights(
        scores(parameters, arrays, seed), temperature=parameters.temperature, contrast=parameters.contrast
    )
    if parameters.coherence == 0:
        return [
            draw_independent(row, length=parameters.length, count=count, generator=generator)
            for row, count in zip(weights, counts, strict=True)
        ]
    embeddings = _embeddings(arrays)
    return [
        draw_coherent(
            row, embeddings, length=parameters.length, count=count, coherence=parameters.coherence, generator=generator
        )
        for row, count in zip(weights, counts, strict=True)
    ]


def _iterative(
    parameters: DPKPSParameters,
    arrays: Mapping[str, NDArray[Any]],
    counts: Sequence[int],
    seed: int,
    generator: np.random.Generator,
) -> list[NDArray[np.int64]]:
    sketches = {int(name.split("-")[1]): sums for name, sums in arrays.items() if name.startswith("sequences-")}
    if parameters.length > max(sketches):
        raise ConfigError(
            f"This Release holds sequences of up to {max(sketches)} terms.",
            f"Choose a length of {max(sketches)} or less.",
        )
    embeddings = _embeddings(arrays)
    single = term_scores(sketches[1], _features(parameters, arrays, seed))
    wanted = {min(m for m in sketches if m >= length) for length in range(1, parameters.length + 1)}
    phases = {
        m: _frequencies(parameters, arrays, m, embeddings.shape[1], seed).phases(embeddings) for m in sorted(wanted)
    }
    drawn = draw_iterative(
        {m: sketches[m] for m in wanted},
        phases,
        parameters.contrast * np.log(np.maximum(label_share(single), 1e-6)),
        length=parameters.length,
        count=max(counts, default=0),
        temperature=parameters.temperature,
        top_k=parameters.top_k,
        generator=generator,
    )
    return [rows[:count] for rows, count in zip(drawn, counts, strict=True)]


def _features(parameters: DPKPSParameters, arrays: Mapping[str, NDArray[Any]], seed: int) -> NDArray[np.int32]:
    embeddings = _embeddings(arrays)
    return integer_features(_frequencies(parameters, arrays, 1, embeddings.shape[1], seed).phases(embeddings)[0])


def _embeddings(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    if "embeddings" not in arrays:
        raise ConfigError("This Release holds no embeddings.", "Choose coherence 0, or release with an embedder.")
    return np.asarray(arrays["embeddings"], dtype=np.float32)


def _frequencies(
    parameters: DPKPSParameters, arrays: Mapping[str, NDArray[Any]], length: int, dimension: int, seed: int
) -> Frequencies:
    frequencies = Frequencies(seed, length, parameters.features, parameters.bandwidth, dimension)
    stored = arrays.get(f"frequencies-{length}")
    if stored is None or bytes(stored) != frequencies.digest:
        raise ReleaseError(
            "The random frequencies of this Release cannot be drawn again by this NumPy.",
            "Generate with the NumPy version of the machine that made the Release.",
        )
    return frequencies
