"""The distribution of rows: sums and samples agree with counting every row, whatever is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from understudy.base.errors import ConfigError
from understudy.methods.additions.columns.distribution import Distribution, elimination_order

SIZES = (3, 4, 2, 3)
SHAPES: dict[str, Sequence[tuple[int, ...]]] = {
    "no pairs": [],
    "a chain": [(0, 1), (1, 2), (2, 3)],
    "a star": [(0, 3), (1, 3), (2, 3)],
    "a circle": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "all pairs": [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)],
    "two parts": [(0, 2), (1, 3)],
    "three at once": [(0, 1, 3), (2,)],
}
EACH = pytest.mark.parametrize("shape", SHAPES)


def distribution(shape: str) -> Distribution:
    generator = np.random.default_rng(list(shape.encode()))
    scopes = [(0,), (1,), (2,), (3,), *SHAPES[shape]]
    return Distribution(
        SIZES, tuple((scope, generator.normal(0, 1.5, [SIZES[each] for each in scope])) for scope in scopes)
    )


def by_counting(made: Distribution) -> np.ndarray:
    table = np.zeros(SIZES)
    for row in product(*map(range, SIZES)):
        table[row] = sum(factor[tuple(row[each] for each in scope)] for scope, factor in made.factors)
    table = np.exp(table)
    return table / table.sum()


def everything() -> list[np.ndarray]:
    return [np.ones(size, dtype=np.bool_) for size in SIZES]


def some() -> list[np.ndarray]:
    allowed = everything()
    allowed[1] = np.array([True, False, True, False])
    allowed[3] = np.array([False, True, False])
    return allowed


@EACH
@pytest.mark.parametrize("given", [everything, some], ids=["all", "some"])
def test_rows_are_sampled_as_often_as_they_are_probable(shape: str, given: object) -> None:
    made, allowed = distribution(shape), given()  # type: ignore[operator]
    rows = made.sample(40_000, allowed, np.random.default_rng(1))
    exact = by_counting(made) * np.multiply.outer(
        np.multiply.outer(allowed[0], allowed[1]), np.multiply.outer(allowed[2], allowed[3])
    )
    exact /= exact.sum()
    found = np.histogramdd(rows, [np.arange(size + 1) for size in SIZES])[0] / len(rows)
    assert not found[exact == 0].any()
    assert np.abs(found - exact).sum() / 2 < 0.03


@EACH
def test_the_first_variable_s_shares_are_those_of_its_rows(shape: str) -> None:
    made = distribution(shape)
    exact = by_counting(made)[:, some()[1]][:, :, :, some()[3]].sum(axis=(1, 2, 3))
    np.testing.assert_allclose(made.shares(some()), exact)
    assert made.shares(everything()).sum() == pytest.approx(1)


def test_cells_that_are_not_allowed_are_never_sampled_even_if_they_are_likely() -> None:
    made = Distribution((2, 2), (((0,), np.array([0.0, -60.0])), ((0, 1), np.array([[0.0, -60.0], [-60.0, 0.0]]))))
    allowed = [np.array([False, True]), np.ones(2, dtype=np.bool_)]
    assert made.sample(500, allowed, np.random.default_rng(0))[:, 0].all()


def test_nothing_allowed_is_an_error_and_of_probability_zero() -> None:
    made, nothing = distribution("a chain"), everything()
    nothing[2] = np.zeros(2, dtype=np.bool_)
    assert made.shares(nothing).sum() == 0
    with pytest.raises(ValueError, match="no row"):
        made.sample(1, nothing, np.random.default_rng(0))


def test_a_tree_is_summed_out_pair_by_pair() -> None:
    assert max(len(scope) for _, scope in elimination_order([9] * 6, [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5)])) == 1


def test_many_buckets_that_are_wide_together_are_refused() -> None:
    """Each would be small enough: a band of columns of which each depends on the twenty before."""
    pairs = [(a, b) for a in range(40) for b in range(a + 1, min(a + 21, 40))]
    with pytest.raises(ConfigError, match="too wide"):
        Distribution((2,) * 40, tuple((pair, np.zeros((2, 2))) for pair in pairs))
