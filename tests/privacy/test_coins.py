"""Coins of the noise source: each falls with its own rate, never with a higher one, independently of all others."""

from __future__ import annotations

import numpy as np
import pytest
from noise_tests import ALPHA
from scipy import stats

from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise

COINS = 20_000
SOURCES = {"system": SystemNoise(), "seeded": InsecureSeededNoise(1), "no noise": InsecureNoNoise()}
sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


@sources
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.65])
def test_a_coin_falls_as_often_as_its_rate_says(source: NoiseSource, rate: float) -> None:
    """Two-sided at alpha = 1e-12: 2/3 and 3/2 of the rate would fail."""
    heads = int(source.include(np.full(COINS, rate)).sum())
    assert stats.binomtest(heads, COINS, rate).pvalue > ALPHA
    assert stats.binomtest(heads, COINS, rate * 2 / 3).pvalue < ALPHA
    assert stats.binomtest(heads, COINS, rate * 3 / 2).pvalue < ALPHA


@sources
def test_what_has_rate_0_is_never_included_and_what_has_rate_1_always(source: NoiseSource) -> None:
    rates = np.tile([0.0, 1.0], 500)
    assert np.array_equal(source.include(rates), rates == 1)
    assert source.include(np.zeros(0)).shape == (0,)


@sources
def test_each_coin_has_its_own_rate(source: NoiseSource) -> None:
    rates = np.tile([0.1, 0.5, 0.9], 5_000)
    found = source.include(rates).reshape(-1, 3).sum(axis=0)
    for heads, rate in zip(found, (0.1, 0.5, 0.9), strict=True):
        assert stats.binomtest(int(heads), 5_000, rate).pvalue > ALPHA


def test_coins_are_independent_of_one_another_and_of_the_last_ones() -> None:
    source, rates = SystemNoise(), np.full(COINS, 0.5)
    first, second = source.include(rates), source.include(rates)
    for one, other in ((first, second), (first[1:], first[:-1])):
        assert stats.binomtest(int(np.sum(one == other)), len(one), 0.5).pvalue > ALPHA


def test_a_rate_is_never_exceeded_by_rounding() -> None:
    """The largest integer that is included lies below the rate, exactly."""
    from understudy.privacy.noise import _below

    for rate in (0.1, 1 / 3, 1e-18, float(np.nextafter(1, 0)), 5e-324):
        above = int(rate * 2.0**64)  # floor: a power of two changes no digit
        rates = np.full(2, rate)
        bits = np.array([above, max(above - 1, 0)], dtype=np.uint64)
        assert _below(bits, rates).tolist() == [False, above > 0]
