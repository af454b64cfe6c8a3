"""The top of noisy counts, and the level that noise alone reaches."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.vocabulary.top_terms import noise_floor, top_terms


def test_the_largest_counts_come_first_and_ties_by_index() -> None:
    assert top_terms(np.array([1.0, 5.0, -2.0, 5.0, 3.0]), 4).tolist() == [1, 3, 4, 0]
    assert top_terms(np.array([0.0, 0.0, 0.0]), 2).tolist() == [0, 1]


def test_asking_for_all_terms_gives_a_permutation() -> None:
    counts = np.random.default_rng(0).normal(size=100)
    assert sorted(top_terms(counts, 100).tolist()) == list(range(100))
    assert top_terms(counts, 100).dtype == np.int64


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_pure_noise_passes_the_floor_at_about_one_term(size: int) -> None:
    generator = np.random.default_rng(1)
    above = [np.sum(generator.normal(0, 3.0, size) > noise_floor(3.0, size)) for _ in range(50)]
    assert 0.05 < np.mean(above) < 2


def test_a_single_term_has_a_floor_too() -> None:
    assert 0 < noise_floor(1.0, 1) < 2
