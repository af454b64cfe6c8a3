"""How far a record, or all of an owner's, moves the integers that tokens are drawn from; and the printed variants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.privacy.tokens import PrivateTokens, TokenTest

pytest.importorskip("torch")

from understudy.audit.mechanisms.models import ScriptedLogits
from understudy.methods.shared.decoding.sums import Sums, TokenSums, distance_from_public


def sums_of(rows: NDArray[np.float64], how: TokenSums, *, divisors: list[int] | None = None) -> Sums:
    """The real sums over private ``rows`` of logits."""
    scripted: Any = ScriptedLogits(np.concatenate([np.zeros((1, rows.shape[1])), rows]))
    return how.over(scripted, scripted.candidates, divisors)


def distance(
    rows: NDArray[np.float64], size: int, *, public: list[float] | None = None, divisors: list[int] | None = None
) -> int:
    """The real distance that the sparse vector tests."""
    scripted: Any = ScriptedLogits(np.concatenate([[public or [0.0] * rows.shape[1]], rows]))
    divisors = divisors or [1] * len(rows)
    return distance_from_public(scripted, scripted.candidates, grid=TokenTest.grid, batch_size=size, divisors=divisors)


MECHANISM = PrivateTokens(clip=10, batch_size=20, temperature=2, tokens=1)
HOW = TokenSums("recenter", MECHANISM.clip, MECHANISM.grid)


def neighbours(count: int = 200) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Random batches with and without their last row, extreme and empty ones among them."""
    generator = np.random.default_rng(5)
    for _ in range(count):
        rows = generator.normal(0, 10.0 ** generator.uniform(-1, 3), (generator.integers(1, 30), 5))
        yield rows, rows[:-1]


def actual_size(sums: Sums, rows: int) -> NDArray[np.float64]:
    """The broken twin: the mean over the rows that happen to be there, times the declared size."""
    return np.asarray(sums.clipped * (MECHANISM.batch_size / max(rows, 1)))


def test_one_row_moves_the_utilities_by_one_grid_at_most_and_with_the_actual_size_as_divisor_by_more() -> None:
    ours, broken = 0.0, 0.0
    for rows, fewer in neighbours():
        a, b = sums_of(rows, HOW), sums_of(fewer, HOW)
        size = MECHANISM.batch_size
        ours = max(ours, np.abs(a.utilities(size) - b.utilities(size)).max())
        broken = max(broken, np.abs(actual_size(a, len(rows)) - actual_size(b, len(fewer))).max())
    assert 0.9 * MECHANISM.grid < ours <= MECHANISM.grid
    assert broken > 5 * MECHANISM.grid


def test_one_row_moves_the_distance_by_one_grid_at_most_and_with_the_actual_size_as_divisor_by_more() -> None:
    moves = [abs(distance(rows, 20) - distance(fewer, 20)) for rows, fewer in neighbours()]
    assert 0.9 * TokenTest.grid < max(moves) <= TokenTest.grid
    first, second, size = [99.0, 0.0], [0.0, 99.0], 20
    broken = [distance(np.array(rows), len(rows), public=first) / len(rows) for rows in ([first], [first, second])]
    assert abs(broken[0] - broken[1]) * size > 5 * TokenTest.grid


@pytest.mark.parametrize("size", [50, 250])
def test_a_distance_of_averaged_clipped_logits_moves_by_about_c_times_what_is_charged(size: int) -> None:
    clip = 10.0
    rows = np.array([[0.0, clip], [clip * 2, 0.0]])  # the second token by c, then the first by the whole range

    def averaged(rows: NDArray[np.float64]) -> float:
        weights = np.exp(np.maximum(-clip, rows - rows.max(axis=1, keepdims=True) + clip).sum(axis=0) / size)
        return float(np.abs(weights / weights.sum() - [1.0, 0.0]).sum())

    moved = abs(averaged(rows) - averaged(rows[:1]))
    assert moved == pytest.approx(2 * math.tanh(clip / (2 * size)), rel=1e-9)
    assert moved > 0.98 * clip / size
    ours = [distance(chosen, size, public=[99.0, 0.0]) for chosen in (rows, rows[:1])]
    assert abs(ours[0] - ours[1]) <= TokenTest.grid  # 1 / size, of the mean


@pytest.mark.parametrize("owned", [2, 3, 7])
def test_an_owners_rows_together_move_no_more_than_one_row(owned: int) -> None:
    generator = np.random.default_rng(6)
    for _ in range(30):
        others, theirs = generator.normal(0, 30, (4, 5)), np.tile(generator.normal(0, 30, 5), (owned, 1))
        a = sums_of(np.concatenate([others, theirs]), HOW, divisors=[1] * 4 + [owned] * owned)
        b = sums_of(others, HOW)
        divided = distance(np.concatenate([others, theirs]), 20, divisors=[1] * 4 + [owned] * owned)
        assert abs(divided - distance(others, 20)) <= TokenTest.grid
        assert np.abs(a.utilities(20) - b.utilities(20)).max() <= MECHANISM.grid
