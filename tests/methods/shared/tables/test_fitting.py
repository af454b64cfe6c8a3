"""The fitted distribution has the marginals that were measured, as far as their noise allows."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.methods.additions.columns.fitting import fit

pytest.importorskip("mbi")
SIZES = (3, 5, 4)
PAIRS = ((0, 1), (1, 2))
RECORDS = 5_000


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    generator = np.random.default_rng(0)
    first = generator.choice(3, RECORDS, p=[0.6, 0.3, 0.1])
    second = (first + generator.choice(3, RECORDS, p=[0.8, 0.1, 0.1])) % 5
    return np.stack([first, second, (second // 2 + generator.choice(2, RECORDS, p=[0.9, 0.1])) % 4], axis=1)


def histogram(table: np.ndarray, *chosen: int) -> np.ndarray:
    return np.histogramdd(table[:, chosen], [np.arange(SIZES[each] + 1) for each in chosen])[0]


@pytest.mark.parametrize(("std", "most"), [(0.0, 0.02), (40.0, 0.06)])
def test_rows_have_the_marginals_that_were_measured(table: np.ndarray, std: float, most: float) -> None:
    generator = np.random.default_rng(1)
    singles = [histogram(table, each) + std * generator.normal(size=SIZES[each]) for each in range(3)]
    pairs = [histogram(table, *pair) + std * generator.normal(size=[SIZES[each] for each in pair]) for pair in PAIRS]
    made = fit(SIZES, singles, PAIRS, pairs, single_std=std, set_stds=[std, std])
    rows = made.sample(100_000, [np.ones(size, dtype=np.bool_) for size in SIZES], generator)
    for chosen in ((0,), (1,), (2,), *PAIRS, (0, 2)):
        apart = np.abs(histogram(rows, *chosen) / len(rows) - histogram(table, *chosen) / RECORDS).sum() / 2
        assert apart < most, chosen
