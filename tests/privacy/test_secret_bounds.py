"""The blow-up of a prior by one release: check values, and that neither bound nor noise is ever too small."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.base.errors import ConfigError
from understudy.privacy.events import Inclusion, MixtureEvent
from understudy.privacy.guarantee import SecretBudget, normal_quantile, phi_bar
from understudy.privacy.secrets.bounds import (
    LEAST_NOISE,
    blow_up,
    poisson_binomial,
    smallest,
)
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
    np.testing.assert_allclose(poisson_binomial(inclusion), every_outcome(inclusion), rtol=1e-11, atol=1e-300)


def test_far_tails_of_the_law_of_drawn_records_keep_their_digits() -> None:
    law = poisson_binomial(((0.05, 80),))
    assert law[80] == pytest.approx(0.05**80, rel=1e-12)
    assert law[3] == pytest.approx(math.comb(80, 3) * 0.05**3 * 0.95**77, rel=1e-12)
    assert math.fsum(poisson_binomial(((0.3, 2000), (0.9, 500)))) == pytest.approx(1, abs=1e-11)


def test_records_that_are_always_drawn_only_shift_the_law() -> None:
    np.testing.assert_array_equal(poisson_binomial(((1.0, 3), (0.5, 1))), [0, 0, 0, 0.5, 0.5])
    np.testing.assert_array_equal(poisson_binomial(()), [1])


@pytest.mark.parametrize("group", [(1.1, 1), (-0.1, 1), (math.nan, 1), (0.5, -1)])
def test_a_rate_that_is_no_probability_is_one_clear_error(group: tuple[float, int]) -> None:
    with pytest.raises(ConfigError, match="probability"):
        poisson_binomial((group,))


@pytest.mark.parametrize(
    ("inclusion", "prior", "limit", "noise"),
    [
        (((1.0, 1),), "1e-4", "1e-3", 1.59037),
        (((1.0, 5),), "1e-4", "1e-3", 7.95185),
        (((0.5, 5),), "1e-3", "1e-2", 3.76447),
        (((0.05, 80),), "1e-4", "1e-3", 7.68717),
    ],
)
def test_the_noise_of_one_release_is_that_of_the_design(
    inclusion: Inclusion, prior: str, limit: str, noise: float
) -> None:
    found = smallest_noise_multiplier(SecretBudget(prior, limit), inclusion)
    assert found == pytest.approx(noise, abs=5e-6)
    assert reconstruction_bound(float(prior), found, inclusion) <= float(limit)


def test_with_one_record_always_drawn_the_bound_is_the_gaussian_one() -> None:
    assert smallest_noise_multiplier(TEN_TIMES, ((1.0, 1),)) == pytest.approx(1 / TEN_TIMES.mu, rel=1e-6)


def test_two_statistics_from_one_draw_at_one_sigma_blow_up_23_times() -> None:
    sigma = smallest_noise_multiplier(TEN_TIMES, ((1.0, 1),))
    assert reconstruction_bound(1e-4, sigma / math.sqrt(2), ((1.0, 1),)) / 1e-4 == pytest.approx(23, abs=0.5)
    assert reconstruction_bound(1e-4, sigma, ((1.0, 1),)) / 1e-4 == pytest.approx(10, abs=1e-5)


@settings(deadline=None)
@given(groups, priors, noises)
def test_the_bound_is_the_sum_over_all_subsets_and_never_below(
    inclusion: Inclusion, prior: float, noise: float
) -> None:
    threshold = -normal_quantile(prior)
    exact = math.fsum(
        chance * phi_bar(threshold - count / noise) for count, chance in enumerate(every_outcome(inclusion))
    )
    found = reconstruction_bound(prior, noise, inclusion)
    assert min(1, exact) <= found <= exact * (1 + 3e-7)


@settings(deadline=None)
@given(groups, priors, st.floats(1.1, 50))
def test_calibrated_noise_keeps_the_promise_and_wastes_nothing(
    inclusion: Inclusion, prior: float, times: float
) -> None:
    budget = SecretBudget(prior, min(prior * times, (1 + prior) / 2))
    noise = smallest_noise_multiplier(budget, inclusion)
    assert reconstruction_bound(prior, noise, inclusion) <= float(budget.posterior)
    if noise > LEAST_NOISE:
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
    assert blow_up(prior, noise, poisson_binomial(inclusion)) <= blow_up(prior, noise, poisson_binomial(raised)) * (
        1 + 1e-12
    )


def test_a_single_gaussian_in_place_of_the_mixture_is_unsafe_when_secrets_are_rare() -> None:
    """0.05 x 5 records: in the mean a quarter of a record, but rarely a whole one."""
    as_if = 0.25 / TEN_TIMES.mu
    assert reconstruction_bound(1e-4, as_if, ((0.05, 5),)) > 100 * 1e-4


def test_a_secret_that_is_hardly_ever_drawn_needs_no_noise() -> None:
    assert smallest_noise_multiplier(TEN_TIMES, ((1e-4, 1),)) == LEAST_NOISE
    assert smallest_noise_multiplier(TEN_TIMES, ()) == LEAST_NOISE


def test_a_posterior_at_the_prior_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="No noise"):
        smallest_noise_multiplier(SecretBudget("0.1", "0.1000000001"), ((1.0, 1),))


def test_the_search_begins_anywhere() -> None:
    for low in (1e-3, 0.5, 3.0, 1000.0):
        assert smallest(lambda noise: 1 / (1 + noise), 0.1, low=low) == pytest.approx(9, rel=1e-6)
