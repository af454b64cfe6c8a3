"""Which candidates are chosen, and how a population is shared out among labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from understudy.methods.shared.evolution.loop import select
from understudy.methods.shared.evolution.parameters import share_out

LABELS = np.array([0, 1, 0, 1, 0], dtype=np.int32)


def choose(votes: list[float], sizes: list[int], *, labels: Any = LABELS, seed: int = 0, **more: Any) -> list[int]:
    options = {"selection": "rank", "threshold": 0.0, **more}
    generator = np.random.default_rng(seed)
    return select(np.array(votes, dtype=np.float64), labels, sizes=sizes, generator=generator, **options).tolist()


def test_rank_takes_the_most_votes_of_each_label_in_order() -> None:
    assert choose([1, 5, 3, 6, 2], [2, 1]) == [2, 4, 3]


def test_ties_and_votes_below_the_threshold_go_by_index() -> None:
    assert choose([2, 0, 2, 0, 2], [2, 2]) == [0, 2, 1, 3]
    assert choose([-3, 0, -1, 0, 4], [3, 0]) == [4, 0, 2]
    assert choose([5, 0, 7, 0, 9], [2, 0], threshold=8.0) == [4, 0]


def test_rank_takes_all_where_there_are_fewer_than_wanted_and_none_of_an_empty_label() -> None:
    assert choose([1, 5, 3, 6, 2], [9, 9, 9]) == [2, 4, 0, 3, 1]
    assert choose([], [3, 3], labels=np.empty(0, dtype=np.int32)) == []


def test_proportional_draws_in_proportion_to_what_is_above_the_threshold() -> None:
    labels = np.zeros(3, dtype=np.int32)
    found = choose([1, 3, 5], [30_000], labels=labels, selection="proportional", threshold=1.0)
    assert len(found) == 30_000
    shares = np.bincount(found, minlength=3) / len(found)
    assert shares[0] == 0
    assert shares[1] == pytest.approx(1 / 3, abs=0.02)
    assert found == sorted(found, reverse=True)  # best first


def test_proportional_without_any_vote_is_uniform_and_repeats_where_there_are_too_few() -> None:
    found = choose([-1, -1, -2, -1, -3], [30_000, 4], selection="proportional")
    assert np.bincount(found[:30_000], minlength=5)[[0, 2, 4]] / 30_000 == pytest.approx([1 / 3] * 3, abs=0.02)
    assert set(found[30_000:]) <= {1, 3}
    assert len(found) == 30_004


@pytest.mark.parametrize(
    ("total", "weights", "shares"),
    [
        (100, [90, 10], [90, 10]),
        (10, [6, 3, 0], [6, 3, 1]),
        (7, [-1, -2], [4, 3]),
        (2, [5, 1, 1], [1, 1, 1]),
        (4, [1000, 0, 0, -5], [1, 1, 1, 1]),
    ],
)
def test_a_population_is_shared_out_by_largest_remainder_and_no_label_goes_empty(
    total: int, weights: list[float], shares: list[int]
) -> None:
    assert share_out(total, weights) == shares


def test_shares_always_add_up() -> None:
    generator = np.random.default_rng(5)
    for _ in range(200):
        weights = generator.normal(1, 2, size=int(generator.integers(1, 12)))
        total = int(generator.integers(1, 400))
        shares = share_out(total, list(weights))
        assert min(shares) >= 1
        assert sum(shares) == max(total, len(weights))
