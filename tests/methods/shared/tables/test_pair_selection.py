"""Pairs are selected where more is to be learnt of them than their noise costs, and the model stays narrow."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from understudy.methods.shared.tables.distribution import numbers_of
from understudy.methods.shared.tables.fitting import MOST_NUMBERS, cost_of_noise, select_pairs, shares

SIZES = (4, 4, 4, 4)
PAIRS = tuple(combinations(range(4), 2))
FULL = [np.full((4, 4), 1000.0)] * 6
"""What independence gives: so much that noise costs its mean in each of 16 cells."""
SCORES = np.array([5.0, 4.0, -2.0, 4.5, -9.0, -3.0])


def selected(scores: np.ndarray, std: float, *, tree: bool = False) -> tuple[tuple[int, int], ...]:
    return select_pairs(SIZES, PAIRS, scores, FULL, std=std, tree=tree)


def test_the_tree_is_of_the_largest_scores_that_make_no_circle() -> None:
    assert selected(SCORES, 1.0, tree=True) == ((0, 1), (0, 3), (1, 2))
    assert len(selected(np.zeros(6), 1.0, tree=True)) == 3


def test_without_noise_every_pair_is_selected_that_has_a_score() -> None:
    assert selected(SCORES, 0.0) == ((0, 1), (0, 2), (1, 2))
    assert selected(np.ones(6), 0.0) == PAIRS


def test_more_noise_leaves_fewer_pairs_and_always_one() -> None:
    scores = np.array([400.0, 200.0, 100.0, 90.0, 80.0, 70.0])
    counts = [len(selected(scores, std)) for std in (0.0, 1.0, 3.0, 10.0, 100.0)]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (6, 1)
    assert selected(np.full(6, -5.0), 100.0) == (PAIRS[0],)


def test_a_weak_pair_is_left_out_as_it_would_raise_the_noise_of_the_others() -> None:
    """Alone it would gain 5 over its noise; but sqrt(4) in place of sqrt(3) on the three others costs more."""
    std = 10.0
    cost = 16 * std * np.sqrt(2 / np.pi)
    scores = np.array([1000.0, 900.0, 800.0, 2 * cost + 5, 0.0, 0.0])
    assert selected(scores, std) == PAIRS[:3]
    assert selected(np.array([1000.0, 900.0, 800.0, 4 * cost, 0.0, 0.0]), std) == PAIRS[:4]


def test_wider_pairs_get_more_of_what_a_record_adds() -> None:
    found = shares((2, 4, 50), [(0, 1), (0, 2), (1, 2)])
    assert np.linalg.norm(found) == pytest.approx(1)
    np.testing.assert_allclose(found / found[0], np.cbrt([1, 100 / 8, 200 / 8]))


def test_circles_stay_narrow_and_wide_columns_are_still_connected() -> None:
    sizes = (90,) * 8
    pairs = tuple(combinations(range(8), 2))
    found = select_pairs(sizes, pairs, np.arange(28.0) + 1e9, [np.full((90, 90), 1e3)] * 28, std=1e-3)
    assert len(found) == 7
    assert numbers_of(sizes, found) <= MOST_NUMBERS
    found = select_pairs((9,) * 8, pairs, np.arange(28.0) + 1e9, [np.full((9, 9), 1e3)] * 28, std=1e-3)
    assert 7 < len(found) < 28
    assert numbers_of((9,) * 8, found) <= MOST_NUMBERS


def test_a_wide_pair_of_empty_cells_costs_what_it_holds_and_a_full_one_its_noise() -> None:
    assert cost_of_noise(np.full((100, 100), 0.01), 50.0) == pytest.approx(200)
    assert cost_of_noise(np.full((2, 2), 1000.0), 50.0) == pytest.approx(4 * 50 * np.sqrt(2 / np.pi))
    assert cost_of_noise(np.full((2, 2), 1000.0), 0.0) == 0
