"""The check values of the design's mathematics that the privacy floor must reproduce, and its conversions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr

from understudy.base.errors import ConfigError
from understudy.privacy.guarantee import GDP, ZCDP, Budget, gaussian_noise_multiplier, normal_quantile, phi_bar


def reference_gdp_delta(mu: float, epsilon: float) -> float:
    """delta of mu-GDP, in logarithms: independent of the formula under test."""
    first = log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(-np.exp(first) * np.expm1(second - first))


@pytest.mark.parametrize(("epsilon", "z"), [(1, 4.22468), (3, 1.54386), (6, 0.83591), (8, 0.65294)])
def test_the_noise_multiplier_of_one_gaussian_release_is_the_analytic_one(epsilon: float, z: float) -> None:
    assert gaussian_noise_multiplier(epsilon, 1e-6) == pytest.approx(z, abs=6e-6)


@pytest.mark.parametrize(
    ("records", "sigmas"), [(1_939_290, (15.4045, 8.0389, 4.2451)), (8_396, (11.5998, 6.2107, 3.3743))]
)
def test_ten_rounds_of_private_evolution_need_the_published_noise(records: int, sigmas: tuple[float, ...]) -> None:
    delta = 1 / (records * math.log(records))
    for epsilon, sigma in zip((1, 2, 4), sigmas, strict=True):
        assert math.sqrt(10) * gaussian_noise_multiplier(epsilon, delta) == pytest.approx(sigma, abs=6e-5)


@pytest.mark.parametrize(("queries", "std"), [(100, 0.011), (1_000, 0.035), (4_000, 0.069), (20_000, 0.154)])
def test_the_noise_on_a_mean_of_teachers_is_as_derived(queries: int, std: float) -> None:
    mu = 1 / gaussian_noise_multiplier(3, 1e-6)
    assert math.sqrt(2 * queries) / mu / 2_000 == pytest.approx(std, abs=5e-4)


def test_five_times_the_noise_draws_turn_epsilon_3_into_7_5_and_a_doubled_sensitivity_into_6_58() -> None:
    mu = 1 / gaussian_noise_multiplier(3, 1e-6)
    assert GDP(mu * math.sqrt(5)).epsilon(1e-6) == pytest.approx(7.5, abs=0.05)
    assert GDP(2 * mu).epsilon(1e-6) == pytest.approx(6.58, abs=0.005)


@given(mu=st.floats(1e-3, 30), epsilon=st.floats(0, 100))
def test_the_gaussian_curve_agrees_with_an_independent_formula(mu: float, epsilon: float) -> None:
    assert GDP(mu).delta(epsilon) == pytest.approx(reference_gdp_delta(mu, epsilon), rel=1e-7, abs=1e-18)


def precise_gdp_delta(mu: float, epsilon: float) -> float:
    """The same to 60 digits, rounded to the nearest double in the end."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        shift, half = mpmath.mpf(epsilon) / mpmath.mpf(mu), mpmath.mpf(mu) / 2
        first, second = (mpmath.erfc(x / mpmath.sqrt(2)) / 2 for x in (shift - half, shift + half))
        return float(first - mpmath.exp(epsilon) * second)


@given(epsilon=st.floats(-9, 5).map(lambda x: 10**x), delta=st.floats(-14, -0.31).map(lambda x: 10**x))
def test_the_calibrated_noise_never_exceeds_delta_however_small_epsilon_is(epsilon: float, delta: float) -> None:
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    assert GDP(1 / multiplier).delta(epsilon) <= delta
    spent = precise_gdp_delta(1 / multiplier, epsilon)
    assert spent <= delta
    assert spent >= delta * (1 - 1e-3) or epsilon > 700  # where a term is left out


@given(mu=st.floats(-11, 4).map(lambda x: 10**x), epsilon=st.floats(-9, 5).map(lambda x: 10**x))
def test_the_gaussian_curve_is_an_upper_bound(mu: float, epsilon: float) -> None:
    least = precise_gdp_delta(mu, epsilon)
    assert GDP(mu).delta(epsilon) >= least or least < 1e-290  # where doubles lose digits


@given(mu=st.floats(1e-3, 20), delta=st.floats(1e-12, 0.1))
def test_the_epsilon_of_a_gaussian_guarantee_is_never_understated(mu: float, delta: float) -> None:
    epsilon = GDP(mu).epsilon(delta)
    assert reference_gdp_delta(mu, epsilon) <= delta * (1 + 1e-7)
    if epsilon > 1e-3:
        assert reference_gdp_delta(mu, epsilon * (1 - 1e-4)) > delta


@given(rho=st.floats(1e-6, 100), delta=st.floats(1e-12, 0.1))
def test_zcdp_lies_between_the_gaussian_curve_and_the_simple_formula(rho: float, delta: float) -> None:
    """mu-GDP is (mu^2/2)-zCDP, so zCDP can only promise less; the simple formula only less again."""
    gaussian = GDP(math.sqrt(2 * rho)).epsilon(delta)
    simple = rho + math.sqrt(4 * rho * math.log(1 / delta))
    assert gaussian <= ZCDP(rho).epsilon(delta) * (1 + 1e-9) + 1e-12
    assert ZCDP(rho).epsilon(delta) <= simple * (1 + 1e-9)


@pytest.mark.parametrize("rho", [0.01, 0.5, 8.0])
@pytest.mark.parametrize("delta", [1e-4, 1e-8])
def test_zcdp_converts_by_the_best_order(rho: float, delta: float) -> None:
    """Against the same corollary, minimised over a fine list of orders."""
    epsilon = ZCDP(rho).epsilon(delta)
    orders = 1 + np.geomspace(1e-3, 1e5, 200_001)
    best = np.min((orders - 1) * (orders * rho - epsilon) - np.log(orders - 1) + orders * np.log1p(-1 / orders))
    assert math.exp(best) == pytest.approx(delta, rel=1e-4)


def test_no_noise_spent_is_no_epsilon_and_delta_0_is_no_gaussian_promise() -> None:
    assert GDP(0.0).epsilon(0) == ZCDP(0.0).epsilon(0) == 0.0
    assert GDP(1.0).epsilon(0) == ZCDP(1.0).epsilon(0) == math.inf


def test_absurdly_weak_promises_are_reported_as_none() -> None:
    assert GDP(1e5).epsilon(1e-6) == math.inf
    assert ZCDP(1e7).epsilon(1e-6) == math.inf


def test_the_normal_tail_is_accurate_far_out() -> None:
    assert phi_bar(0) == 0.5
    assert math.log(phi_bar(30)) == pytest.approx(float(log_ndtr(-30)), rel=1e-12)
    assert normal_quantile(phi_bar(2.0)) == pytest.approx(-2.0)


def test_a_budget_is_read_as_typed() -> None:
    budget = Budget(0.1, "1e-6")
    assert (budget.epsilon, budget.delta) == (Fraction(1, 10), Fraction(1, 1_000_000))
    assert Budget.from_json(budget.to_json()) == budget
    assert str(budget) == "(epsilon=0.1, delta=1e-06)"


@given(st.fractions(min_value="1/1000", max_value=1000), st.fractions(min_value=0, max_value="1/2"))
def test_a_budget_survives_json_exactly(epsilon: Fraction, delta: Fraction) -> None:
    assert Budget.from_json(Budget.of(epsilon, delta).to_json()) == Budget.of(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, "one", "1/0", "", None, True])
def test_an_impossible_epsilon_is_refused(epsilon: object) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        Budget(epsilon, 1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [-1e-9, 1, 2, math.nan, "small", None])
def test_an_impossible_delta_is_refused(delta: object) -> None:
    with pytest.raises(ConfigError, match="delta"):
        _ = Budget(1, delta).delta  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_impossible_guarantees_are_refused(value: float) -> None:
    for guarantee in (ZCDP, GDP):
        with pytest.raises(ConfigError):
            guarantee(value)
