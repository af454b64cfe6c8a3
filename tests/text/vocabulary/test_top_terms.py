"""The top of noisy counts, those above the noise, and the level that noise alone reaches."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.privacy.noise import NoiseKind
from understudy.text.vocabulary.shrinkage import (
    FEWEST_TERMS,
    MOST_TERMS,
    KnownNoise,
    noise_floor,
    terms_above_noise,
    top_terms,
)


def test_the_largest_counts_come_first_and_ties_by_index() -> None:
    assert top_terms(np.array([1.0, 5.0, -2.0, 5.0, 3.0]), 4).tolist() == [1, 3, 4, 0]
    assert top_terms(np.array([0.0, 0.0, 0.0]), 2).tolist() == [0, 1]
    counts = np.random.default_rng(0).normal(size=100)
    assert sorted(top_terms(counts, 100).tolist()) == list(range(100))
    assert top_terms(counts, 100).dtype == np.int64


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_pure_noise_passes_the_floor_at_about_one_term(size: int) -> None:
    assert 0 < noise_floor(1.0, 1) < 2
    generator = np.random.default_rng(1)
    above = [np.sum(generator.normal(0, 3.0, size) > noise_floor(3.0, size)) for _ in range(50)]
    assert 0.05 < np.mean(above) < 2


def noise_of(kind: NoiseKind, size: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=size) if kind == "gaussian" else generator.laplace(scale=0.5**0.5, size=size)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_terms_that_are_real_are_found_and_few_others(kind: NoiseKind) -> None:
    true = np.zeros(40_000)
    true[:300] = np.geomspace(400, 5, 300)
    found = terms_above_noise(true * 3 + noise_of(kind, 40_000) * 3, KnownNoise(kind, 3.0), fewest=1)
    assert np.mean(np.isin(found, np.arange(300))) > 0.9
    assert np.mean(np.isin(np.arange(250), found)) > 0.9
    assert found[:10].tolist() == list(range(10)), "the largest first"


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_where_nothing_is_real_the_fewest_terms_are_kept(kind: NoiseKind) -> None:
    for seed in range(5):
        found = terms_above_noise(noise_of(kind, 20_000, seed), KnownNoise(kind, 1.0), fewest=1)
        assert FEWEST_TERMS <= len(found) <= FEWEST_TERMS + 40
        assert len(terms_above_noise(noise_of(kind, 20_000, seed), KnownNoise(kind, 1.0), fewest=70)) == 70
    assert sorted(terms_above_noise(noise_of(kind, 7), KnownNoise(kind, 1.0), fewest=10).tolist()) == list(range(7))


def test_a_vocabulary_has_no_more_than_the_most_terms() -> None:
    everything = np.full(3 * MOST_TERMS, 1e6) + noise_of("gaussian", 3 * MOST_TERMS)
    found = terms_above_noise(everything, KnownNoise("gaussian", 1.0), fewest=1)
    assert len(found) == len(set(found.tolist())) == MOST_TERMS


def test_a_frequent_term_needs_a_smaller_count_than_a_rare_one() -> None:
    counts = noise_of("gaussian", 60_000)
    counts[:500] += 8.0
    counts[59_000] = 3.5
    found = terms_above_noise(counts, KnownNoise("gaussian", 1.0), fewest=1).tolist()
    assert len(found) < 1_000
    assert 59_000 not in found
    counts[200] = 3.0
    assert 200 in terms_above_noise(counts, KnownNoise("gaussian", 1.0), fewest=1).tolist()


def test_without_noise_the_terms_above_0_are_kept() -> None:
    counts = np.zeros(1_000)
    counts[10:60] = np.arange(50, 0, -1)
    found = terms_above_noise(counts, KnownNoise("gaussian", 0.0), fewest=1)
    assert found.tolist() == list(range(10, 60))
