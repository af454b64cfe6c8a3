"""Secret bounds are for continuous noise, the noise is discrete: summed exactly over its grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from understudy.privacy.events import Inclusion, MixtureEvent
from understudy.privacy.mechanisms import SMALLEST_SIGMA
from understudy.privacy.secrets.bounds import (
    DISCRETE_EXCESS,
    DISCRETE_LOSS,
    blow_up,
    poisson_binomial,
)
from understudy.privacy.secrets.composition import posterior

INCLUSIONS: list[Inclusion] = [((1.0, 1),), ((0.5, 5),), ((0.05, 80),), ((1.0, 7),), ((0.01, 3),)]
Floats = NDArray[np.float64]


def discrete(x: NDArray[np.int64], sigma: float) -> Floats:
    weights = np.exp(-(x.astype(np.float64) ** 2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum())


def right(present: Floats, absent: Floats, prior: float) -> float:
    """How often the best test is right that is wrong with probability ``prior``."""
    order = np.argsort(-present / absent, kind="stable")
    wrong, found = np.cumsum(absent[order]), np.cumsum(present[order])
    return float(np.interp(prior, [0, *wrong], [0, *found]))


def discrete_right(sigma: float, shift: int, inclusion: Inclusion, prior: float) -> float:
    """The same for a discrete Gaussian and records that each shift it by ``shift`` grid units."""
    law = poisson_binomial(inclusion)
    most = int(np.flatnonzero(law > 1e-18)[-1])
    reach = int(9 * sigma) + shift * most
    x = np.arange(-reach, reach + 1)
    absent = np.exp(-(x**2) / (2 * sigma**2))
    present = sum(law[k] * np.exp(-((x - k * shift) ** 2) / (2 * sigma**2)) for k in range(most + 1))
    return right(present / absent.sum(), absent / absent.sum(), prior)


def rounded(sigma: float) -> float:
    """sigma of the continuous Gaussian that is rounded."""
    return math.sqrt(sigma**2 - 1 / 12)


def ratio(sigma: float, y: float | Floats) -> float | Floats:
    """What the masses of discrete and rounded noise may differ by, of themselves."""
    return (y**4 + 10) / (2880 * sigma**4)


@pytest.mark.parametrize("sigma", [4.0, 7.3, 16.0, 64.0])
def test_discrete_noise_is_rounded_continuous_noise_of_a_slightly_smaller_sigma(sigma: float) -> None:
    x = np.arange(0, int(10 * sigma))
    both_sides = np.arange(-int(40 * sigma), int(40 * sigma) + 1)
    exact = discrete(both_sides, sigma)[both_sides >= 0][: len(x)]
    edges = (x - 0.5) / rounded(sigma), (x + 0.5) / rounded(sigma)
    difference = np.abs(np.log(exact / (ndtr(-edges[0]) - ndtr(-edges[1]))))
    assert np.all(difference <= ratio(sigma, x / sigma) * 1.1 + 1e-11)
    unchanged = np.abs(np.log(exact / (ndtr(-(x - 0.5) / sigma) - ndtr(-(x + 0.5) / sigma))))
    assert unchanged.max() > 4 * difference.max()


def test_the_constants_cover_the_coarsest_grid_allowed() -> None:
    assert 1 - rounded(SMALLEST_SIGMA) / SMALLEST_SIGMA < DISCRETE_LOSS
    dimensions, y = 1e8, 40.0
    # the sum of y^4 over all dimensions is at most the largest y^2 times the sum of y^2, which is about their number
    together = dimensions * (2 * y**2 + 10) / (2880 * SMALLEST_SIGMA**4)
    assert together < 1e-8 < DISCRETE_EXCESS / 4


@pytest.mark.parametrize("inclusion", INCLUSIONS)
@pytest.mark.parametrize("prior", [1e-6, 1e-4, 1e-2, 0.3])
@pytest.mark.parametrize(("sigma", "shift"), [(4.0, 1), (5.0, 3), (11.0, 2)])
def test_on_coarse_grids_the_bound_at_the_rounded_sigma_holds(
    inclusion: Inclusion, prior: float, sigma: float, shift: int
) -> None:
    most = blow_up(prior, rounded(sigma) / shift, poisson_binomial(inclusion)) * (1 + 2 * ratio(sigma, 8.0))
    assert discrete_right(sigma, shift, inclusion, prior) <= most * (1 + 1e-9)


def test_on_a_coarse_grid_the_continuous_bound_itself_is_exceeded() -> None:
    """At the priors that are the test's own thresholds there is something to cover at all."""
    sigma, shift = 4.0, 6
    priors = [float(discrete(np.arange(-60, 61), sigma)[60 + cut :].sum()) for cut in range(4, 14)]
    excess = [
        discrete_right(sigma, shift, ((1.0, 1),), prior) / blow_up(prior, sigma / shift, poisson_binomial(((1.0, 1),)))
        for prior in priors
    ]
    assert max(excess) > 1 + 1e-4


@pytest.mark.parametrize("inclusion", INCLUSIONS)
@pytest.mark.parametrize("prior", [1e-6, 1e-3])
def test_on_the_coarsest_grid_allowed_the_stated_bound_holds(inclusion: Inclusion, prior: float) -> None:
    sigma, noise_multiplier = SMALLEST_SIGMA, 8.0
    found = discrete_right(sigma, int(sigma / noise_multiplier), inclusion, prior)
    assert found <= posterior([MixtureEvent(noise_multiplier, (inclusion,))], prior)
    assert found == pytest.approx(posterior([MixtureEvent(noise_multiplier, (inclusion,))], prior), rel=3e-7)


@pytest.mark.parametrize("vector", [(1, 0), (1, 1), (2, 1)])
def test_records_that_point_anywhere_on_a_grid_of_two_dimensions_keep_the_bound(vector: tuple[int, int]) -> None:
    sigma, prior = 3.0, 1e-3
    x, y = np.meshgrid(np.arange(-40, 41), np.arange(-40, 41))
    law = poisson_binomial(((0.5, 3),))
    weights = [
        np.exp(-((x - k * vector[0]) ** 2 + (y - k * vector[1]) ** 2) / (2 * sigma**2)).ravel() for k in range(4)
    ]
    whole = weights[0].sum()
    found = right(sum(law[k] * weights[k] for k in range(4)) / whole, weights[0] / whole, prior)
    most = blow_up(prior, rounded(sigma) / math.hypot(*vector), law) * (1 + 4 * ratio(sigma, 6.0))
    assert 0.9 * most < found <= most
