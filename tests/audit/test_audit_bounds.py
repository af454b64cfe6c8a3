"""Lower bounds: against references, against mechanisms whose loss is known in closed form, and how often they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from understudy.audit.mechanisms.bounds import ErrorLimits, best_bound, counted, limits, upper_limit
from understudy.privacy.guarantee import GDP

RUNS = 4_000


@pytest.mark.parametrize(("found", "trials"), [(0, 10), (1, 10), (9, 10), (10, 10), (37, 5_000), (4_999, 5_000)])
@pytest.mark.parametrize("alpha", [0.05, 1e-6])
def test_the_upper_limit_is_that_of_clopper_and_pearson(found: int, trials: int, alpha: float) -> None:
    reference = stats.binomtest(found, trials, alternative="less").proportion_ci(1 - alpha, method="exact").high
    assert upper_limit(found, trials, alpha=alpha) == pytest.approx(reference, rel=1e-9)


def test_the_upper_limit_of_many_shares_at_once_is_that_of_each() -> None:
    together = upper_limit([0, 3, 50], 50, alpha=0.01)
    assert together.tolist() == [float(upper_limit(found, 50, alpha=0.01)) for found in (0, 3, 50)]


def test_the_upper_limit_holds_as_often_as_it_says_and_not_much_more_often() -> None:
    """Exactly, by summing the binomial distribution."""
    for share in (0.05, 0.2, 0.7):
        found = np.arange(201)
        low = upper_limit(found, 200, alpha=0.05) < share
        assert 0.01 < stats.binom.pmf(found, 200, share)[low].sum() <= 0.05


def exact(false_positive: float, false_negative: float) -> ErrorLimits:
    return ErrorLimits(np.array(false_positive), np.array(false_negative))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_exact_errors_of_randomised_response_give_its_epsilon(epsilon: float) -> None:
    wrong = 1 / (1 + math.exp(epsilon))
    assert exact(wrong, wrong).epsilon(0.0) == pytest.approx(epsilon)


def test_both_directions_follow_of_one_test() -> None:
    """Seldom a false alarm or seldom a missed one: either shows the same epsilon."""
    seldom, often = 0.001, 1 - 0.001 * math.e**3
    assert exact(seldom, often).epsilon(0.0) == pytest.approx(3)
    assert exact(often, seldom).epsilon(0.0) == pytest.approx(3)


def test_delta_is_taken_off_what_is_seen() -> None:
    assert exact(0.1, 0.4).epsilon(0.2) == pytest.approx(math.log(0.4 / 0.1))
    assert exact(0.1, 0.4).epsilon(0.7) == 0


@pytest.mark.parametrize("mu", [0.2, 1.0, 4.0])
def test_the_exact_errors_of_a_gaussian_give_its_mu_at_every_threshold(mu: float) -> None:
    for threshold in (-1.0, 0.3, 2.0):
        errors = exact(float(stats.norm.sf(threshold)), float(stats.norm.cdf(threshold - mu)))
        assert errors.mu() == pytest.approx(mu)
        assert errors.epsilon(1e-6) <= GDP(mu).epsilon(1e-6)


def test_the_best_of_all_thresholds_of_a_gaussian_gives_its_epsilon_at_delta() -> None:
    """The analytic Gaussian curve is the envelope of its tests."""
    thresholds = np.linspace(-6, 12, 20_000)
    errors = ErrorLimits(stats.norm.sf(thresholds), stats.norm.cdf(thresholds - 1.0))
    assert errors.epsilon(1e-3).max() == pytest.approx(GDP(1.0).epsilon(1e-3), rel=1e-4)


def test_a_test_no_better_than_a_coin_shows_nothing() -> None:
    errors = exact(0.5, 0.5)
    assert (errors.epsilon(0.0), errors.mu(), errors.posterior(0.1)) == (0, 0, pytest.approx(0.1))
    worse = exact(0.9, 0.9)
    assert (worse.epsilon(0.0), worse.mu()) == (0, 0)


def test_a_posterior_is_that_of_the_same_test_made_bolder_or_more_careful() -> None:
    assert exact(0.1, 0.2).posterior(0.1) == pytest.approx(0.8)
    assert exact(0.2, 0.2).posterior(0.1) == pytest.approx(0.4)  # says "present" half as often
    assert exact(0.1, 0.2).posterior(0.55) == pytest.approx(0.9)  # and to half of the others, too


# -- of runs ----------------------------------------------------------------------------------------------------------


def answers(epsilon: float, generator: np.random.Generator) -> list[np.ndarray]:
    """Randomised response to "is the unit there?": truth with probability e^epsilon / (1 + e^epsilon)."""
    truth = 1 / (1 + math.exp(-epsilon))
    return [(generator.random(RUNS) < share).astype(float) for share in (1 - truth, truth)]


def too_high(alpha: float, repetitions: int) -> int:
    """How often the bound on randomised response of epsilon 1 is above 1."""
    generator = np.random.default_rng(0)
    return sum(
        best_bound(*answers(1.0, generator), lambda of: of.epsilon(0.0), alpha=alpha) > 1.0 for _ in range(repetitions)
    )


def test_a_bound_is_too_high_as_seldom_as_it_says() -> None:
    assert too_high(0.05, 1_000) <= 50
    assert too_high(0.999, 200) > 20  # the test above can fail


def test_a_bound_is_near_to_what_is_lost() -> None:
    generator = np.random.default_rng(1)
    for epsilon in (1.0, 3.0):
        found = best_bound(*answers(epsilon, generator), lambda of: of.epsilon(0.0), alpha=0.05)
        assert 0.85 * epsilon < found <= epsilon
    absent, present = generator.normal(0, 1, RUNS), generator.normal(1.5, 1, RUNS)
    assert 1.35 < best_bound(absent, present, lambda of: of.mu(), alpha=0.05) <= 1.5


def test_runs_that_choose_the_threshold_are_not_counted() -> None:
    """The best of many thresholds on pure noise looks like a find on the runs that chose it."""
    assert counted(RUNS) == 3_000
    generator = np.random.default_rng(2)
    first, others = generator.random(1_000), generator.random(3_000)
    absent = np.concatenate([first, others])
    present = np.concatenate([first + 1, others])  # told apart where it does not count
    assert best_bound(absent, present, lambda of: of.epsilon(0.0), alpha=0.05) == 0
    assert best_bound(absent, np.concatenate([first + 1, others + 1]), lambda of: of.epsilon(0.0), alpha=0.05) > 5


def test_limits_share_their_chance_of_error() -> None:
    both = limits(3, 7, 100, alpha=0.02)
    assert both.false_positive == upper_limit(3, 100, alpha=0.01)
    assert both.false_negative == upper_limit(7, 100, alpha=0.01)


# -- zCDP, and units that are drawn at a rate --------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.02, 0.5, 3.0])
def test_no_test_of_a_gaussian_shows_more_rho_than_it_has_and_the_best_not_much_less(rho: float) -> None:
    mu = math.sqrt(2 * rho)
    thresholds = np.linspace(-4, 4 + mu, 400)
    found = ErrorLimits(stats.norm.sf(thresholds), stats.norm.cdf(thresholds - mu)).rho
    assert 0.6 * rho < found.max() <= rho


def test_the_rho_of_randomised_response_is_its_largest_renyi_divergence_over_the_order() -> None:
    wrong, right = 0.2, 0.8
    orders = np.linspace(1.0001, 60, 200_000)
    moments = right**orders * wrong ** (1 - orders) + wrong**orders * right ** (1 - orders)
    reference = float((np.log(moments) / (orders - 1) / orders).max())
    assert exact(wrong, wrong).rho == pytest.approx(reference, rel=1e-3)
    assert exact(wrong, wrong).rho <= reference


def test_both_directions_count_for_rho_and_a_test_worse_than_a_coin_shows_none() -> None:
    assert exact(0.1, 0.4).rho == pytest.approx(float(exact(0.4, 0.1).rho))
    assert exact(0.5, 0.5).rho == exact(0.8, 0.7).rho == 0


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_the_exact_errors_of_a_unit_drawn_at_a_rate_give_its_mu(rate: float) -> None:
    for threshold in (-0.5, 1.0, 2.5):
        right = (1 - rate) * stats.norm.sf(threshold) + rate * stats.norm.sf(threshold - 1.5)
        assert exact(float(stats.norm.sf(threshold)), float(1 - right)).mu(rate) == pytest.approx(1.5)


def test_a_test_that_is_right_more_often_than_units_are_drawn_shows_a_mu_that_is_large_and_finite() -> None:
    assert 5 < exact(0.01, 0.4).mu(0.5) < 20
