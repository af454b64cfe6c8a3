"""How far a record, or all of an owner's, moves the integers that tokens are drawn from; and the printed variants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.privacy.tokens import PrivateTokens

pytest.importorskip("torch")

from understudy.audit.mechanisms.models import ScriptedLogits
from understudy.methods.shared.decoding.sums import Sums, TokenSums


def sums_of(rows: NDArray[np.float64], how: TokenSums, *, divisors: list[int] | None = None) -> Sums:
    """The real sums over private ``rows`` of logits."""
    scripted: Any = ScriptedLogits(np.concatenate([np.zeros((1, rows.shape[1])), rows]))
    return how.over(scripted, scripted.candidates, divisors)


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


@pytest.mark.parametrize("owned", [2, 3, 7])
def test_an_owners_rows_together_move_no_more_than_one_row(owned: int) -> None:
    generator = np.random.default_rng(6)
    for _ in range(30):
        others, theirs = generator.normal(0, 30, (4, 5)), np.tile(generator.normal(0, 30, 5), (owned, 1))
        a = sums_of(np.concatenate([others, theirs]), HOW, divisors=[1] * 4 + [owned] * owned)
        b = sums_of(others, HOW)
        assert np.abs(a.utilities(20) - b.utilities(20)).max() <= MECHANISM.grid
