"""Random features: they estimate the kernel, their norms are bounded, their phases add up."""

from __future__ import annotations

import math
from dataclasses import replace

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
