"""Sampling sequences: against slow references, in distribution and term by term."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tiny_corpora import LABELS, WORDS, HashEmbedder, Row, bounded

from understudy.methods.dp_kps.density import SequenceDensity
from understudy.methods.dp_kps.sequences import (
    GRID,
    Frequencies,
    _next_scores,
    contrast_weights,
    cut_to_lengths,
    integer_features,
    label_share,
    sample_independent,
    sample_iterative,
    structures,
    term_scores,
)
from understudy.methods.shared.queries.counts import TermRows
from understudy.privacy.measurement import exact_sum
from understudy.text.vocabulary.words import TermMatcher

ALPHA = 1e-6


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_structures_double_up_to_the_length() -> None:
    assert [list(structures(length)) for length in (1, 3, 8)] == [[1], [1, 2, 3], [1, 2, 4, 8]]


def test_term_scores_are_the_kernel_density_without_noise() -> None:
    embeddings = HashEmbedder(16).embed(WORDS)
    features = integer_features(Frequencies(1, 1, 20_000, 0.8, 16).phases(embeddings)[0])
    histogram = generator().integers(0, 9, (LABELS, len(WORDS))).astype(np.float64)
    found = term_scores(histogram @ (features / GRID), features)
    squares = np.sum((embeddings[:, None] - embeddings[None]) ** 2, axis=2)
    exact = histogram @ np.exp(-squares / 0.8**2)
    assert np.max(np.abs(found - exact)) < 0.5


def test_contrast_is_the_printed_formula() -> None:
    scores = np.array([[4.0, 1.0, -2.0, 0.0], [4.0, 3.0, 5.0, 0.0]])
    share = label_share(scores)
    assert np.allclose(share, [[0.5, 0.25, 0.0, 0.0], [0.5, 0.75, 1.0, 0.0]])
    for contrast in (0.0, 1.0, 2.0, 0.5):
        found = contrast_weights(scores, contrast=contrast)
        exact = np.maximum(scores, 0) * share**contrast
        assert np.allclose(found, exact / exact.max(axis=1, keepdims=True))


def test_a_label_of_negative_scores_is_given_equal_weights_and_is_sampled_to_the_end() -> None:
    weights = contrast_weights(np.array([[-1.0, -2.0, -3.0], [1.0, 0.0, -1.0]]))
    assert np.array_equal(weights, [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    sampled = sample_independent(weights[0], length=3, count=2_000, generator=generator())
    assert stats.chisquare(np.bincount(sampled[:, 0])).pvalue > ALPHA


def successive(weights: NDArray[np.float64], length: int) -> dict[tuple[int, ...], float]:
    """Probability of every ordered draw without replacement, term by term."""
    chances = {}
    for order in itertools.permutations(range(len(weights)), length):
        left, chance = float(weights.sum()), 1.0
        for term in order:
            chance *= float(weights[term]) / left
            left -= float(weights[term])
        chances[order] = chance
    return chances


def sample_p_value(sampled: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    chances = successive(weights, sampled.shape[1])
    found = dict.fromkeys(chances, 0)
    for row in sampled.tolist():
        found[tuple(row)] += 1
    likely = [order for order, chance in chances.items() if chance * len(sampled) >= 5]
    expected = np.array([chances[order] for order in likely] + [sum(chances.values()) - sum(map(chances.get, likely))])  # type: ignore[arg-type]
    observed = np.array([found[order] for order in likely] + [len(sampled) - sum(found[order] for order in likely)])
    used = expected > 1e-9
    return float(stats.chisquare(observed[used], expected[used] / expected[used].sum() * observed[used].sum()).pvalue)


WEIGHTS = np.array([8.0, 4.0, 1.0, 0.5, 2.0])


@pytest.mark.parametrize("length", [1, 2, 3])
def test_independent_draws_are_successive_draws_without_replacement(length: int) -> None:
    sampled = sample_independent(WEIGHTS, length=length, count=20_000, generator=generator())
    assert sample_p_value(sampled, WEIGHTS) > ALPHA
    assert sample_p_value(sampled, WEIGHTS**1.3) < ALPHA  # the test would see a wrong exponent


def test_all_terms_of_a_tiny_vocabulary_can_be_sampled() -> None:
    sampled = sample_independent(np.array([1.0, 0.0, 0.0]), length=3, count=50, generator=generator())
    assert all(sorted(row) == [0, 1, 2] for row in sampled.tolist())
    assert np.all(sampled[:, 0] == 0)


def test_lengths_are_uniform_and_what_is_left_is_the_beginning() -> None:
    whole = sample_independent(WEIGHTS, length=5, count=8_000, generator=generator())
    cut = cut_to_lengths(whole, shortest=2, generator=generator())
    lengths = (cut >= 0).sum(axis=1)
    assert stats.chisquare(np.bincount(lengths, minlength=6)[2:]).pvalue > ALPHA
    assert lengths.min() == 2
    for row, full, length in zip(cut.tolist(), whole.tolist(), lengths.tolist(), strict=True):
        assert row == full[:length] + [-1] * (5 - length)
    assert np.array_equal(cut_to_lengths(whole, shortest=9, generator=generator()), whole)


# -- iterative --------------------------------------------------------------------------------------------------------

DIMENSION, COUNT, BANDWIDTH = 8, 300, 0.8
EMBEDDINGS = HashEmbedder(DIMENSION).embed(WORDS)
ROWS = [Row(" ".join(np.random.default_rng(n).choice(WORDS, 5, replace=False)), n % LABELS) for n in range(40)]


def frequencies(length: int, count: int = COUNT) -> Frequencies:
    return Frequencies(5, length, count, BANDWIDTH, DIMENSION)


def sketches(sizes: list[int], count: int = COUNT) -> dict[int, NDArray[np.float64]]:
    rows = TermRows(TermMatcher(WORDS), 4)
    queries = {m: SequenceDensity(rows, LABELS, frequencies(m, count).phases(EMBEDDINGS)) for m in sizes}
    return {m: exact_sum(query, bounded(ROWS)) / query.sensitivity.grid for m, query in queries.items()}


def slow_scores(sketch: NDArray[np.float64], size: int, prefix: list[int]) -> NDArray[np.float64]:
    """Embed prefix + candidate, zero-padded to ``size`` terms, and ask the sketch for the concatenation's density."""
    matrix = np.concatenate([frequencies(size).block(b) for b in range(size)], axis=1).astype(np.float64)
    scores = []
    for candidate in range(len(WORDS)):
        joined = np.zeros(size * DIMENSION)
        terms = [*prefix, candidate]
        joined[: len(terms) * DIMENSION] = EMBEDDINGS[terms].ravel()
        phase = matrix @ joined
        scores.append(np.concatenate([np.cos(phase), np.sin(phase)]) @ sketch / COUNT)
    return np.array(scores)


@pytest.mark.parametrize(("size", "prefix"), [(1, []), (2, [3]), (4, [3, 0]), (4, [3, 0, 7])])
def test_scores_are_those_of_explicitly_embedded_concatenations(size: int, prefix: list[int]) -> None:
    sketch = sketches([size])[size][1]
    phases = frequencies(size).phases(EMBEDDINGS)
    candidate = phases[len(prefix)]
    cos_sin = np.concatenate([np.cos(candidate), np.sin(candidate)], axis=1).T
    phase = phases[np.arange(len(prefix)), prefix].sum(axis=0, dtype=np.float32)[None]
    found = _next_scores(sketch, phase, cos_sin)[0]
    assert np.allclose(found, slow_scores(sketch, size, prefix), atol=1e-3)


def slow_greedy(
    kept: dict[int, NDArray[np.float64]], label: int, length: int, log_contrast: NDArray[np.float64]
) -> list[int]:
    prefix: list[int] = []
    for position in range(length):
        size = min(m for m in kept if m >= position + 1)
        scores = np.maximum(slow_scores(kept[size][label], size, prefix), 1e-12) * np.exp(log_contrast[label])
        scores[prefix] = -1
        prefix.append(int(np.argmax(scores)))
    return prefix


@pytest.mark.parametrize("contrast", [False, True])
def test_the_best_candidate_at_every_step_is_the_slow_references(
    contrast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "understudy.methods.dp_kps.sequences._gumbel", lambda shape, _generator: np.zeros(shape, np.float32)
    )
    kept = sketches([1, 2, 4])
    log_contrast = generator(3).normal(0, 0.5, (LABELS, len(WORDS))) * contrast
    sampled = sample_iterative(
        kept,
        {m: frequencies(m).phases(EMBEDDINGS) for m in kept},
        log_contrast,
        length=4,
        count=3,
        generator=generator(),
    )
    for label in range(LABELS):
        expected = slow_greedy(kept, label, 4, log_contrast)
        assert sampled[label].tolist() == [expected] * 3


def test_the_first_grown_term_is_sampled_in_proportion_to_its_score() -> None:
    kept = sketches([1])
    sampled = sample_iterative(
        kept,
        {1: frequencies(1).phases(EMBEDDINGS)},
        np.zeros((LABELS, len(WORDS))),
        length=1,
        count=20_000,
        generator=generator(),
    )
    scores = np.maximum(slow_scores(kept[1][2], 1, []), 0)
    found = np.bincount(sampled[2][:, 0], minlength=len(WORDS))
    expected = scores / scores.sum() * found.sum()
    used = expected > 5
    assert found[~used].sum() < 100
    assert stats.chisquare(found[used], expected[used] * found[used].sum() / expected[used].sum()).pvalue > ALPHA


# -- random features: they estimate the kernel, their norms are bounded, their phases add up --------------------------


VECTORS = HashEmbedder(16).embed([f"term {number}" for number in range(12)])


def kernel(first: np.ndarray, second: np.ndarray, bandwidth: float) -> float:
    return math.exp(-float(np.sum((first - second) ** 2)) / bandwidth**2)


@pytest.mark.parametrize("bandwidth", [0.35, 1.0, 3.0])
def test_the_features_estimate_the_kernel_of_two_terms(bandwidth: float) -> None:
    count = 20_000
    features = integer_features(Frequencies(1, 1, count, bandwidth, 16).phases(VECTORS)[0]) / GRID
    estimate = features @ features.T / count
    exact = [[kernel(x, y, bandwidth) for y in VECTORS] for x in VECTORS]
    assert np.max(np.abs(estimate - exact)) < 5 / math.sqrt(count)


@pytest.mark.parametrize("length", [2, 3])
def test_the_features_estimate_the_kernel_of_concatenations_with_a_longer_bandwidth(length: int) -> None:
    """Sequences of m terms are compared with bandwidth h sqrt(m)."""
    count, bandwidth = 20_000, 0.8
    phases = Frequencies(1, length, count, bandwidth, 16).phases(VECTORS)
    sequences = np.random.default_rng(0).integers(0, len(VECTORS), (6, length))
    features = integer_features(phases[np.arange(length), sequences].sum(axis=1)) / GRID
    joined = VECTORS[sequences].reshape(6, -1)
    exact = [[kernel(x, y, bandwidth * math.sqrt(length)) for y in joined] for x in joined]
    assert np.max(np.abs(features @ features.T / count - exact)) < 5 / math.sqrt(count)


@given(st.lists(st.floats(-1e5, 1e5, width=32), min_size=1, max_size=40))
def test_truncated_features_are_never_longer_than_declared(phases: list[float]) -> None:
    row = integer_features(np.array([phases], dtype=np.float32))[0].astype(object)
    assert sum(int(x) ** 2 for x in row) <= GRID**2 * len(phases)
    assert sum(abs(int(x)) for x in row) <= GRID * math.sqrt(2) * len(phases)


def test_features_are_drawn_again_from_their_seed_and_named_by_their_digest() -> None:
    same = Frequencies(1, 2, 10, 0.5, 16)
    assert same.digest == Frequencies(1, 2, 10, 0.5, 16).digest
    assert len(same.digest) == 32
    changes: list[dict[str, float]] = [{"seed": 2}, {"length": 3}, {"count": 11}, {"bandwidth": 0.6}, {"dimension": 17}]
    assert len({same.digest, *(replace(same, **change).digest for change in changes)}) == 6  # type: ignore[arg-type]


def test_the_first_frequencies_are_what_they_were_when_this_test_was_written() -> None:
    """If this fails, this NumPy draws other frequencies: Releases made before it can't be generated from."""
    block = Frequencies(0, 1, 2, 1.0, 2).block(0)
    assert block.dtype == np.float32
    assert np.allclose(block, [[0.14561829, -1.3866749], [-1.156089, -1.4536445]], atol=1e-6)
