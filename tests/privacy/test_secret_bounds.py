"""The blow-up of a prior by one release: check values, and that neither bound nor noise is ever too small."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr

from understudy.base.errors import ConfigError
from understudy.privacy.events import Inclusion, MixtureEvent
from understudy.privacy.guarantee import SecretBudget, normal_quantile, phi_bar
from understudy.privacy.mechanisms import SMALLEST_SIGMA
from understudy.privacy.secrets import bounds
from understudy.privacy.secrets.composition import calibrate, posterior

TEN_TIMES = SecretBudget("1e-4", "1e-3")


def reconstruction_bound(prior: float, noise: float, inclusion: Inclusion) -> float:
    return posterior([MixtureEvent(noise, (inclusion,))], prior)


def smallest_noise_multiplier(budget: SecretBudget, inclusion: Inclusion) -> float:
    return calibrate(budget, [inclusion])


groups = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4)), max_size=3).map(tuple)
priors = st.floats(1e-9, 0.5)
noises = st.floats(0.2, 50)


def every_outcome(inclusion: Inclusion) -> list[float]:
    """P(K = k) by adding up all subsets of records."""
    rates = [rate for rate, records in inclusion for _ in range(records)]
    chances = [0.0] * (len(rates) + 1)
    for drawn in itertools.product([False, True], repeat=len(rates)):
        chances[sum(drawn)] += math.prod(rate if yes else 1 - rate for rate, yes in zip(rates, drawn, strict=True))
    return chances


@settings(deadline=None)
@given(groups)
def test_the_law_of_drawn_records_is_that_of_all_subsets(inclusion: Inclusion) -> None:
    np.testing.assert_allclose(bounds.poisson_binomial(inclusion), every_outcome(inclusion), rtol=1e-11, atol=1e-300)


def test_far_tails_of_the_law_of_drawn_records_keep_their_digits() -> None:
    law = bounds.poisson_binomial(((0.05, 80),))
    assert law[80] == pytest.approx(0.05**80, rel=1e-12)
    assert law[3] == pytest.approx(math.comb(80, 3) * 0.05**3 * 0.95**77, rel=1e-12)
    assert math.fsum(bounds.poisson_binomial(((0.3, 2000), (0.9, 500)))) == pytest.approx(1, abs=1e-11)


def test_records_that_are_always_drawn_only_shift_the_law() -> None:
    np.testing.assert_array_equal(bounds.poisson_binomial(((1.0, 3), (0.5, 1))), [0, 0, 0, 0.5, 0.5])
    np.testing.assert_array_equal(bounds.poisson_binomial(()), [1])


@pytest.mark.parametrize("group", [(1.1, 1), (-0.1, 1), (math.nan, 1), (0.5, -1)])
def test_a_rate_that_is_no_probability_is_one_clear_error(group: tuple[float, int]) -> None:
    with pytest.raises(ConfigError, match="probability"):
        bounds.poisson_binomial((group,))


@pytest.mark.parametrize(
    ("inclusion", "prior", "limit", "noise"),
    [
        (((1.0, 1),), "1e-4", "1e-3", 1.59037),
        (((1.0, 5),), "1e-4", "1e-3", 7.95185),
        (((0.5, 5),), "1e-3", "1e-2", 3.76447),
        (((0.05, 80),), "1e-4", "1e-3", 7.68717),
    ],
)
def test_the_noise_of_one_release_is_as_designed(inclusion: Inclusion, prior: str, limit: str, noise: float) -> None:
    found = smallest_noise_multiplier(SecretBudget(prior, limit), inclusion)
    assert found == pytest.approx(noise, abs=5e-6)
    assert reconstruction_bound(float(prior), found, inclusion) <= float(limit)


def test_with_one_record_always_drawn_the_bound_is_the_gaussian_one() -> None:
    assert smallest_noise_multiplier(TEN_TIMES, ((1.0, 1),)) == pytest.approx(1 / TEN_TIMES.mu, rel=1e-6)


def test_one_release_pays_for_its_discrete_noise() -> None:
    law = bounds.poisson_binomial(((1.0, 1), (0.5, 2)))
    continuous = float(law @ ndtr(np.arange(4) / 2.0 + normal_quantile(1e-3)))
    assert continuous * (1 + 1e-11) < bounds.blow_up(1e-3, 2.0, law) < continuous * (1 + 1e-8)


def test_two_statistics_from_one_draw_at_one_sigma_blow_up_23_times() -> None:
    sigma = smallest_noise_multiplier(TEN_TIMES, ((1.0, 1),))
    assert reconstruction_bound(1e-4, sigma / math.sqrt(2), ((1.0, 1),)) / 1e-4 == pytest.approx(23, abs=0.5)
    assert reconstruction_bound(1e-4, sigma, ((1.0, 1),)) / 1e-4 == pytest.approx(10, abs=1e-5)


@settings(deadline=None)
@given(groups, priors, noises)
def test_the_bound_is_the_sum_over_subsets_and_never_below(inclusion: Inclusion, prior: float, noise: float) -> None:
    threshold = -normal_quantile(prior)
    exact = math.fsum(
        chance * phi_bar(threshold - count / noise) for count, chance in enumerate(every_outcome(inclusion))
    )
    found = reconstruction_bound(prior, noise, inclusion)
    assert min(1, exact) <= found <= exact * (1 + 3e-7)


@settings(deadline=None)
@given(groups, priors, st.floats(1.1, 50))
def test_calibrated_noise_keeps_the_promise_without_waste(inclusion: Inclusion, prior: float, times: float) -> None:
    budget = SecretBudget(prior, min(prior * times, (1 + prior) / 2))
    noise = smallest_noise_multiplier(budget, inclusion)
    assert reconstruction_bound(prior, noise, inclusion) <= float(budget.posterior)
    if noise > bounds.LEAST_NOISE:
        assert reconstruction_bound(prior, noise * (1 - 1e-6), inclusion) > float(budget.posterior) * (1 - 1e-7)


@settings(deadline=None)
@given(groups, groups, priors, noises)
def test_more_records_or_higher_rates_never_lower_the_bound(
    inclusion: Inclusion, more: Inclusion, prior: float, noise: float
) -> None:
    assert reconstruction_bound(prior, noise, inclusion) <= reconstruction_bound(prior, noise, (*inclusion, *more)) * (
        1 + 1e-12
    )
    raised = tuple((min(1.0, rate * 1.5), records) for rate, records in inclusion)
    assert bounds.blow_up(prior, noise, bounds.poisson_binomial(inclusion)) <= bounds.blow_up(
        prior, noise, bounds.poisson_binomial(raised)
    ) * (1 + 1e-12)


def test_a_single_gaussian_in_place_of_the_mixture_is_unsafe_when_secrets_are_rare() -> None:
    """0.05 x 5 records: in the mean a quarter of a record, but rarely a whole one."""
    as_if = 0.25 / TEN_TIMES.mu
    assert reconstruction_bound(1e-4, as_if, ((0.05, 5),)) > 100 * 1e-4


def test_a_secret_that_is_hardly_ever_drawn_needs_no_noise() -> None:
    assert smallest_noise_multiplier(TEN_TIMES, ((1e-4, 1),)) == bounds.LEAST_NOISE
    assert smallest_noise_multiplier(TEN_TIMES, ()) == bounds.LEAST_NOISE


def test_a_posterior_at_the_prior_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="No noise"):
        smallest_noise_multiplier(SecretBudget("0.1", "0.1000000001"), ((1.0, 1),))


def test_the_search_begins_anywhere() -> None:
    for low in (1e-3, 0.5, 3.0, 1000.0):
        assert bounds.smallest(lambda noise: 1 / (1 + noise), 0.1, low=low) == pytest.approx(9, rel=1e-6)


# -- the bounds are for continuous noise, the noise is discrete: summed exactly over its grid -------------------------

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
    law = bounds.poisson_binomial(inclusion)
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
    assert 1 - rounded(SMALLEST_SIGMA) / SMALLEST_SIGMA < bounds.DISCRETE_LOSS
    dimensions, y = 1e8, 40.0
    # the sum of y^4 over all dimensions is at most the largest y^2 times the sum of y^2, which is about their number
    together = dimensions * (2 * y**2 + 10) / (2880 * SMALLEST_SIGMA**4)
    assert together < 1e-8 < bounds.DISCRETE_EXCESS / 4


@pytest.mark.parametrize("inclusion", INCLUSIONS)
@pytest.mark.parametrize("prior", [1e-6, 1e-4, 1e-2, 0.3])
@pytest.mark.parametrize(("sigma", "shift"), [(4.0, 1), (5.0, 3), (11.0, 2)])
def test_on_coarse_grids_the_rounded_sigma_holds(inclusion: Inclusion, prior: float, sigma: float, shift: int) -> None:
    most = bounds.blow_up(prior, rounded(sigma) / shift, bounds.poisson_binomial(inclusion)) * (
        1 + 2 * ratio(sigma, 8.0)
    )
    assert discrete_right(sigma, shift, inclusion, prior) <= most * (1 + 1e-9)


def test_on_a_coarse_grid_the_continuous_bound_itself_is_exceeded() -> None:
    """At the priors that are the test's own thresholds there is something to cover at all."""
    sigma, shift = 4.0, 6
    priors = [float(discrete(np.arange(-60, 61), sigma)[60 + cut :].sum()) for cut in range(4, 14)]
    excess = [
        discrete_right(sigma, shift, ((1.0, 1),), prior)
        / bounds.blow_up(prior, sigma / shift, bounds.poisson_binomial(((1.0, 1),)))
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
    law = bounds.poisson_binomial(((0.5, 3),))
    weights = [
        np.exp(-((x - k * vector[0]) ** 2 + (y - k * vector[1]) ** 2) / (2 * sigma**2)).ravel() for k in range(4)
    ]
    whole = weights[0].sum()
    found = right(sum(law[k] * weights[k] for k in range(4)) / whole, weights[0] / whole, prior)
    most = bounds.blow_up(prior, rounded(sigma) / math.hypot(*vector), law) * (1 + 4 * ratio(sigma, 6.0))
    assert 0.9 * most < found <= most
