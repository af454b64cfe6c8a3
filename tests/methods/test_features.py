"""Random features: they estimate the kernel, their norms are bounded, their phases add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_corpora import HashEmbedder

from understudy.methods.dp_kps.sequences import GRID, Frequencies, integer_features

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


def test_phases_add_over_blocks_as_those_of_the_concatenation() -> None:
    frequencies = Frequencies(3, 3, 50, 0.5, 16)
    joined = np.concatenate([VECTORS[0], VECTORS[4], VECTORS[2]])
    matrix = np.concatenate([frequencies.block(position) for position in range(3)], axis=1)
    table = frequencies.phases(VECTORS)
    assert np.allclose(table[0, 0] + table[1, 4] + table[2, 2], matrix @ joined, atol=1e-4)


@given(st.lists(st.floats(-1e5, 1e5, width=32), min_size=1, max_size=40))
def test_truncated_features_are_never_longer_than_declared(phases: list[float]) -> None:
    row = integer_features(np.array([phases], dtype=np.float32))[0].astype(object)
    assert sum(int(x) ** 2 for x in row) <= GRID**2 * len(phases)
    assert sum(abs(int(x)) for x in row) <= GRID * math.sqrt(2) * len(phases)


def test_truncation_costs_less_than_a_percent_of_the_norm() -> None:
    phases = np.random.default_rng(0).uniform(-10, 10, (5, 2_000)).astype(np.float32)
    norms = np.linalg.norm(integer_features(phases), axis=1)
    assert np.all(norms > 0.99 * GRID * math.sqrt(2_000))


def test_features_are_drawn_again_from_their_seed_and_named_by_their_digest() -> None:
    same = Frequencies(1, 2, 10, 0.5, 16)
    assert same.digest == Frequencies(1, 2, 10, 0.5, 16).digest
    assert len(same.digest) == 32
    others = [
        Frequencies(2, 2, 10, 0.5, 16),
        Frequencies(1, 3, 10, 0.5, 16),
        Frequencies(1, 2, 11, 0.5, 16),
        Frequencies(1, 2, 10, 0.6, 16),
        Frequencies(1, 2, 10, 0.5, 17),
    ]
    assert len({same.digest, *(other.digest for other in others)}) == 6


def test_blocks_of_one_structure_are_independent() -> None:
    frequencies = Frequencies(1, 2, 2_000, 1.0, 16)
    first, second = frequencies.block(0), frequencies.block(1)
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.03
    assert np.std(first) == pytest.approx(1.0, rel=0.02)  # sqrt(2) / (1 * sqrt(2))


def test_frequencies_do_not_depend_on_numpys_global_seed() -> None:
    np.random.seed(0)  # noqa: NPY002
    first = Frequencies(1, 1, 10, 0.5, 16).digest
    np.random.seed(1)  # noqa: NPY002
    assert Frequencies(1, 1, 10, 0.5, 16).digest == first


def test_the_first_frequencies_are_what_they_were_when_this_test_was_written() -> None:
    """If this fails, this NumPy draws other frequencies: Releases made before it can't be generated from."""
    block = Frequencies(0, 1, 2, 1.0, 2).block(0)
    assert block.dtype == np.float32
    assert np.allclose(block, [[0.14561829, -1.3866749], [-1.156089, -1.4536445]], atol=1e-6)
