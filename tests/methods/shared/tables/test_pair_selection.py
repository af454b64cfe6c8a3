"""Pairs and threes are selected where more is to be learnt of them than noise costs, and the model stays narrow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from understudy.methods.additions.columns.distribution import numbers_of
from understudy.methods.additions.columns.fitting import MOST_NUMBERS, Worth, select_sets, shares
from understudy.methods.additions.columns.variables import MOST_THREES, SELECTED, TREE, Variables
from understudy.schema.columns import declared_columns
from understudy.schema.labels import LabelSet

SIZES = (4, 4, 4, 4)
PAIRS = tuple(combinations(range(4), 2))
# What independence gives: so much that noise costs its mean in each of 16 cells.
FULL = [np.full((4, 4), 1000.0)] * 6
SCORES = np.array([500.0, 400.0, -200.0, 450.0, -900.0, -300.0])


def selected(scores: Sequence[float], std: float, *, tree: bool = False) -> tuple[tuple[int, ...], ...]:
    return select_sets(SIZES, PAIRS, [Worth(*each) for each in zip(scores, FULL, strict=True)], std=std, tree=tree)


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
    assert selected([1000.0, 900.0, 800.0, 2 * cost + 5, 0.0, 0.0], std) == ((0, 1), (0, 2), (0, 3))
    assert selected([1000.0, 900.0, 800.0, 4 * cost, 0.0, 0.0], std) == ((0, 1), (0, 2), (0, 3), (1, 2))


def test_wider_pairs_get_more_of_what_a_record_adds() -> None:
    found = shares((2, 4, 50), [(0, 1), (0, 2), (1, 2)])
    assert np.linalg.norm(found) == pytest.approx(1)
    np.testing.assert_allclose(found / found[0], np.cbrt([1, 100 / 8, 200 / 8]))


@pytest.mark.parametrize(("size", "least", "most"), [(90, 7, 7), (9, 8, 27)])
def test_circles_stay_narrow_and_wide_columns_are_still_connected(size: int, least: int, most: int) -> None:
    pairs = tuple(combinations(range(8), 2))
    worths = [Worth(1e5 + place, np.full((size, size), 1e3)) for place in range(28)]
    found = select_sets((size,) * 8, pairs, worths, std=1e-3)
    assert least <= len(found) <= most
    assert numbers_of((size,) * 8, found) <= MOST_NUMBERS


def test_a_wide_pair_of_empty_cells_costs_what_it_holds_and_a_full_one_its_noise() -> None:
    empty, full = np.full((100, 100), 0.01), np.full((2, 2), 1000.0)
    assert Worth(0, empty).cost(50.0) == pytest.approx(1)
    assert Worth(0, full).cost(50.0) == pytest.approx(4 * 50 * np.sqrt(2 / np.pi) / 8000)
    assert Worth(4000, full).cost(50.0) == pytest.approx(Worth(0, full).cost(50.0) / 2)
    assert Worth(0, full).cost(0.0) == 0


# -- sets of three ----------------------------------------------------------------------------------------------------

THREE = (*combinations(range(3), 2), (0, 1, 2))


def of_three(scores: Sequence[float], *, score_std: float = 0.0, std: float = 5.0, labelled: bool = False) -> object:
    expected = [*[np.full((4, 4), 1000.0)] * 3, np.full((4, 4, 4), 250.0)]
    worths = [Worth(*each, score_std) for each in zip(scores, expected, strict=True)]
    return select_sets((4, 4, 4), THREE, worths, std=std, labelled=labelled)


def test_three_columns_whose_pairs_show_nothing_are_measured_together() -> None:
    assert of_three([50.0, 50.0, 50.0, 16_000.0]) == ((0, 1, 2),)


def test_a_pair_is_not_measured_with_a_column_that_it_has_nothing_to_do_with() -> None:
    assert of_three([6_000.0, 50.0, 50.0, 6_200.0]) == ((0, 1),)


def test_a_three_takes_the_place_of_its_pairs() -> None:
    assert of_three([3_000.0, 3_000.0, 3_000.0, 20_000.0]) == ((0, 1, 2),)


def test_a_three_that_noise_on_its_score_could_have_made_is_not_taken() -> None:
    assert of_three([500.0, 0.0, 0.0, 3_500.0]) == ((0, 1, 2),)
    assert (0, 1, 2) not in of_three([500.0, 0.0, 0.0, 3_500.0], score_std=1_500.0)  # type: ignore[operator]


def test_what_goes_with_the_label_is_worth_more() -> None:
    scores = [300.0, 310.0, 320.0, 0.0]
    assert of_three(scores, std=22.0) == ((1, 2),)
    assert of_three(scores, std=22.0, labelled=True) == ((0, 2),)


def variables(columns: str, labels: int) -> Variables:
    names = tuple(f"l{place}" for place in range(labels))
    return Variables("label" if labels else None, LabelSet(names), declared_columns(columns))


def test_threes_are_scored_with_the_label_first_and_within_bounds() -> None:
    few = variables("a=1..4; b=x|y; c=1..90/90", 3)
    assert few.scored(SELECTED) == (*few.all_pairs, (0, 1, 2), (0, 2, 3), (0, 1, 3), (1, 2, 3))
    assert few.scored(TREE) == few.all_pairs
    many = variables(";".join(f"c{place}=1..9/9" for place in range(40)), 3)
    threes = many.scored(SELECTED)[len(many.all_pairs) :]
    assert len(threes) <= MOST_THREES
    assert sum(0 in each for each in threes) > 0
    wide = variables(";".join(f"c{place}=1..900/900" for place in range(4)), 3)
    assert wide.scored(SELECTED) == wide.all_pairs
