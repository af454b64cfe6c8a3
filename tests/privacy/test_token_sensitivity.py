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

from understudy.audit.mechanisms.tokens import ScriptedLogits
from understudy.methods.shared.decoding.sums import Sums, TokenSums


def sums_of(
    rows: NDArray[np.float64], how: TokenSums, *, public: list[float] | None = None, divisors: list[int] | None = None
) -> Sums:
    """The real sums over private ``rows`` of logits."""
    first = np.zeros((1, rows.shape[1])) if public is None else np.array([public])
    scripted: Any = ScriptedLogits(np.concatenate([first, rows]))
    return how.over(scripted, scripted.candidates, divisors)


MECHANISM = PrivateTokens(clip=10, batch_size=20, temperature=2, tokens=1, test=TokenTest(0.5, 0.2))
HOW = TokenSums("recenter", MECHANISM.clip, MECHANISM.grid, MECHANISM.distance_grid)


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
    ours, broken, distances = 0.0, 0.0, 0
    for rows, fewer in neighbours():
        a, b = sums_of(rows, HOW), sums_of(fewer, HOW)
        size = MECHANISM.batch_size
        ours = max(ours, np.abs(a.utilities(size) - b.utilities(size)).max())
        broken = max(broken, np.abs(actual_size(a, len(rows)) - actual_size(b, len(fewer))).max())
        distances = max(distances, abs(a.distance(size) - b.distance(size)))
    assert 0.9 * MECHANISM.grid < ours <= MECHANISM.grid
    assert broken > 5 * MECHANISM.grid
    assert 0.9 * MECHANISM.distance_grid < distances <= MECHANISM.distance_grid


@pytest.mark.parametrize("owned", [2, 3, 7])
def test_an_owners_rows_together_move_no_more_than_one_row(owned: int) -> None:
    generator = np.random.default_rng(6)
    for _ in range(30):
        others, theirs = generator.normal(0, 30, (4, 5)), np.tile(generator.normal(0, 30, 5), (owned, 1))
        a = sums_of(np.concatenate([others, theirs]), HOW, divisors=[1] * 4 + [owned] * owned)
        b = sums_of(others, HOW)
        assert np.abs(a.utilities(20) - b.utilities(20)).max() <= MECHANISM.grid
        assert abs(a.distance(20) - b.distance(20)) <= MECHANISM.distance_grid


def averaged_logits_distance(rows: NDArray[np.float64], *, clip: float, batch_size: int, public: list[float]) -> float:
    """The broken twin: distance of the softmax of averaged clipped logits, instead of averaged distributions."""
    clipped = np.maximum(-clip, rows - rows.max(axis=1, keepdims=True) + clip)
    weights = np.exp(clipped.sum(axis=0) / batch_size)
    return float(np.abs(weights / weights.sum() - np.array(public)).sum())


@pytest.mark.parametrize("batch_size", [50, 250])
def test_a_distance_of_averaged_clipped_logits_moves_by_about_c_times_what_is_charged(batch_size: int) -> None:
    clip = 10.0
    rows = np.array([[0.0, clip], [clip * 2, 0.0]])  # the second token by c, then the first by the whole range
    public = [1.0, 0.0]
    with_it, without = (
        averaged_logits_distance(chosen, clip=clip, batch_size=batch_size, public=public) for chosen in (rows, rows[:1])
    )
    moved = abs(with_it - without)
    assert moved == pytest.approx(2 * math.tanh(clip / (2 * batch_size)), rel=1e-9)
    assert moved > 0.98 * clip / batch_size
    how = TokenSums("recenter", clip, distance_grid=MECHANISM.distance_grid)
    ours = [sums_of(chosen, how, public=[99.0, 0.0]).distance(batch_size) for chosen in (rows, rows[:1])]
    assert abs(ours[0] - ours[1]) <= MECHANISM.distance_grid  # 1 / batch_size, of the mean
