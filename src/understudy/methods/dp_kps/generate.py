"""DP-KPS, after the privacy boundary: keyphrase sequences out of a Release. Free, any number of times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, ReleaseError
from understudy.methods.dp_kps.features import Frequencies, integer_features
from understudy.methods.dp_kps.lifts import Lifts
from understudy.methods.dp_kps.plan import (
    COLUMN_DENSITY,
    DPKPSParameters,
    known_column_noise,
    known_score_noise,
    needs_embeddings,
    phrase_columns,
    require_memory_for_features,
)
from understudy.methods.dp_kps.sequences import (
    contrast_weights,
    cut_to_lengths,
    label_share,
    sample_independent,
    sample_iterative,
    term_scores,
)
from understudy.methods.shared.tables.released import variables_of
from understudy.privacy.events import GaussianEvent, PureEvent
from understudy.privacy.sealed import NoiseOrigin
from understudy.release import Release
from understudy.release.statement import Statement
from understudy.text.vocabulary.shrinkage import KnownNoise, Posterior, shrink


def scores(parameters: DPKPSParameters, arrays: Mapping[str, NDArray[Any]], seed: int) -> NDArray[np.float64]:
    """``Float64[labels, N]``: of each term under each label (independent mode)."""
    sketch = arrays["density"]
    if parameters.bandwidth == 0:
        return np.asarray(sketch, dtype=np.float64)
    return term_scores(sketch, _features(parameters, arrays, seed))


def released_noise(parameters: DPKPSParameters, statement: Statement) -> KnownNoise:
    """The noise on one term's score in a Release with this statement; none in the iterative mode, which uses no such
    scores."""
    multiplier = _multiplier(statement, "density")
    return (
        KnownNoise("gaussian", 0.0)
        if multiplier is None
        else known_score_noise(parameters, multiplier, _origin(statement))
    )


def lifts_of(parameters: DPKPSParameters, release: Release) -> tuple[tuple[int, ...], Lifts] | None:
    """The places of the typed columns that phrases depend on, and the lifts of terms under their values.

    None where the Release holds none.
    """
    multiplier = _multiplier(release.statement, COLUMN_DENSITY)
    if multiplier is None:
        return None
    columns = variables_of(release).columns
    places = phrase_columns(parameters, columns)
    noise = known_column_noise(parameters, multiplier, _origin(release.statement), columns=len(places))
    return places, Lifts.of(release.arrays[COLUMN_DENSITY], [columns[place].size for place in places], noise)


def _multiplier(statement: Statement, name: str) -> float | None:
    event = next((charge.event for charge in statement.charges if charge.name == name), None)
    if isinstance(event, GaussianEvent):
        return event.noise_multiplier
    return 1 / event.epsilon if isinstance(event, PureEvent) else None


def _origin(statement: Statement) -> NoiseOrigin:
    return statement.sealed.noise if statement.sealed else "none"


def sampling_scores(found: NDArray[np.float64], noise: KnownNoise) -> Posterior:
    """What sequences are sampled by, and how probably each score is real (independent mode).

    The posterior of the noisy scores ``found`` of all labels and terms together; where there is no noise, the scores
    themselves, of which those above 0 are real.
    """
    if noise.std > 0:
        return shrink(found, noise)
    return Posterior((found > 0).astype(np.float64), found)


def sample_sequences(
    parameters: DPKPSParameters,
    arrays: Mapping[str, NDArray[Any]],
    counts: Sequence[int],
    *,
    seed: int,
    sampling_seed: int,
    noise: KnownNoise,
    log_lifts: Sequence[Callable[[slice], NDArray[np.float32]]] | None = None,
) -> list[NDArray[np.int64]]:
    """Per label ``Int64[counts[label], length]`` of distinct term indices, padded with -1.

    Args:
        seed: of the frequencies, from the Release; ``sampling_seed`` is that of these sequences.
        noise: on a term's score, in the independent mode.
        log_lifts: per label, of some of its sequences ``Float32[sequences, N]``: by which their rows change the
            terms' logarithmic weights; None: by none.

    Raises:
        ConfigError: if the sequences are longer than the structures or the vocabulary, or the features do not fit into
            memory.
    """
    if parameters.length > len(arrays["counts"]):
        raise ConfigError("The sequences are longer than the Release's vocabulary.", "Lower length.")
    if needs_embeddings(parameters):
        terms, dimension = _embeddings(arrays).shape
        cure = "Generate on a machine with more memory."
        require_memory_for_features(parameters, terms=terms, dimension=dimension, cure=cure)
    generator = np.random.default_rng([sampling_seed, seed])
    if parameters.mode == "iterative":
        sampled = _iterative(parameters, arrays, counts, seed, generator)
        return [cut_to_lengths(rows, shortest=parameters.shortest, generator=generator) for rows in sampled]
    found = sampling_scores(scores(parameters, arrays, seed), noise)
    weights = contrast_weights(found.mean, contrast=parameters.contrast)
    real = (found.probability > _REAL).sum(axis=1).tolist()
    sequences = []
    for row, count, terms, lifts in zip(weights, counts, real, log_lifts or repeat(None, len(counts)), strict=True):
        length = min(parameters.length, max(terms, 1))
        rows = sample_independent(row, length=length, count=count, generator=generator, log_lifts=lifts)
        rows = cut_to_lengths(rows, shortest=parameters.shortest, generator=generator)
        sequences.append(np.pad(rows, ((0, 0), (0, parameters.length - length)), constant_values=-1))
    return sequences


_REAL = 0.5
"""A label's terms that are real with a greater probability bound the length of its sequences."""


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
    sampled = sample_iterative(
        {m: sketches[m] for m in wanted},
        phases,
        parameters.contrast * np.log(np.maximum(label_share(single), 1e-6)),
        length=parameters.length,
        count=max(counts, default=0),
        generator=generator,
    )
    return [rows[:count] for rows, count in zip(sampled, counts, strict=True)]


def _features(parameters: DPKPSParameters, arrays: Mapping[str, NDArray[Any]], seed: int) -> NDArray[np.int32]:
    embeddings = _embeddings(arrays)
    return integer_features(_frequencies(parameters, arrays, 1, embeddings.shape[1], seed).phases(embeddings)[0])


def _embeddings(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    if "embeddings" not in arrays:
        raise ReleaseError("This Release holds no embeddings.", "Get the file again from its maker.")
    return np.asarray(arrays["embeddings"], dtype=np.float32)


def _frequencies(
    parameters: DPKPSParameters, arrays: Mapping[str, NDArray[Any]], length: int, dimension: int, seed: int
) -> Frequencies:
    frequencies = Frequencies(seed, length, parameters.features, parameters.bandwidth, dimension)
    stored = arrays.get(f"frequencies-{length}")
    if stored is None or bytes(stored) != frequencies.digest:
        raise ReleaseError(
            "The random frequencies of this Release cannot be sampled again by this NumPy.",
            "Generate with the NumPy version of the machine that made the Release.",
        )
    return frequencies
