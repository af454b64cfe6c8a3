"""Discrete Gaussian noise is not exactly Gaussian: by how much, summed exactly over its grid."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.privacy.accountant import DISCRETE_EXCESS, Composition
from understudy.privacy.events import GaussianEvent
from understudy.privacy.guarantee import GDP, gaussian_noise_multiplier
from understudy.privacy.mechanisms import SMALLEST_SIGMA


def discrete_delta(*, sigma: float, shift: int, epsilon: float) -> float:
    """delta at ``epsilon`` between a discrete Gaussian and the same one moved by ``shift`` grid units."""
    reach = int(14 * sigma) + shift + 2
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    here = np.exp(-(x**2) / (2 * sigma**2))
    moved = np.exp(epsilon - (x + shift) ** 2 / (2 * sigma**2))
    return float(np.sum(np.maximum(here - moved, 0))) / float(np.sum(here))


def worst_excess(*, sigma: float, epsilon: float, delta: float) -> float:
    """Largest relative excess over the continuous curve, over positions of the threshold within a grid cell."""
    shift = round(sigma / gaussian_noise_multiplier(epsilon, delta))
    mu = shift / sigma
    thresholds = [epsilon + quarter * mu / sigma / 4 for quarter in range(4)]
    return max(discrete_delta(sigma=sigma, shift=shift, epsilon=e) / GDP(mu).delta(e) - 1 for e in thresholds)


@pytest.mark.parametrize(("epsilon", "times"), [(1, 1.02), (3, 1.38), (6, 1.82), (8, 3.01)])
def test_on_a_grid_of_one_the_analytic_delta_is_exceeded(epsilon: float, times: float) -> None:
    sigma = gaussian_noise_multiplier(epsilon, 1e-6)
    assert discrete_delta(sigma=sigma, shift=1, epsilon=epsilon) / 1e-6 == pytest.approx(times, abs=0.005)


@pytest.mark.parametrize("epsilon", [1, 3, 6, 8])
def test_at_4096_grid_units_the_excess_is_what_the_design_says(epsilon: float) -> None:
    assert worst_excess(sigma=4096, epsilon=epsilon, delta=1e-6) < 2e-7


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (8, 1e-6), (8, 1e-12), (100, 1e-12), (200, 1e-14)])
def test_on_the_coarsest_grid_allowed_the_excess_is_below_what_the_accountant_adds(
    epsilon: float, delta: float
) -> None:
    assert worst_excess(sigma=SMALLEST_SIGMA, epsilon=epsilon, delta=delta) < DISCRETE_EXCESS / 4


def test_the_accountant_adds_the_excess_of_every_event() -> None:
    """At the delta of the continuous curve, n discrete releases promise a little less than n continuous ones."""
    for count in (1, 10):
        mu = count**0.5 / 4
        epsilon = Composition((GaussianEvent(4.0),) * count).epsilon(1e-6)
        assert GDP(mu).delta(epsilon) * (1 + DISCRETE_EXCESS * count) <= 1e-6
        assert epsilon == pytest.approx(GDP(mu).epsilon(1e-6), rel=1e-6)
