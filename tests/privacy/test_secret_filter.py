"""Secret protection over runs that are chosen after others were seen: Renyi divergences at one order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from understudy.base.errors import PrivacyError
from understudy.privacy.accountant import Spending
from understudy.privacy.events import Event, GaussianEvent, Inclusion, MixtureEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.secrets.bounds import poisson_binomial
from understudy.privacy.secrets.composition import (
    ORDERS,
    SecretFilter,
    calibrate,
    divergences,
    order_for,
    posterior,
    posteriors,
)

TEN_TIMES = SecretBudget("1e-4", "1e-3")
HUNDRED_TIMES = SecretBudget("1e-4", "1e-2")
TWICE = SecretBudget("1e-4", "2e-4")
ALWAYS: Inclusion = ((1.0, 1),)
OFTEN: Inclusion = ((0.5, 5),)
MANY: Inclusion = ((0.05, 80),)


def run(budget: SecretBudget, *inclusion: Inclusion) -> Spending:
    return Spending(budget, (MixtureEvent(calibrate(budget, inclusion), inclusion),))


def at(order: int, event: Event) -> float:
    return float(divergences(event)[list(ORDERS).index(order)])


@pytest.mark.parametrize("noise", [0.5, 1.6, 8.0])
@pytest.mark.parametrize("records", [1, 5])
def test_the_divergences_of_records_always_drawn_are_those_of_gaussian_noise(noise: float, records: int) -> None:
    found = divergences(MixtureEvent(noise, (((1.0, records),),)))
    np.testing.assert_allclose(found, ORDERS * records**2 / (2 * noise**2), rtol=1e-7)
    np.testing.assert_allclose(divergences(GaussianEvent(noise / records)), found, rtol=1e-7)


@pytest.mark.parametrize("inclusion", [OFTEN, ((0.05, 3),), ((0.9, 1), (0.1, 2))])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_divergences_are_the_sum_over_all_tuples_of_parts_and_never_below(inclusion: Inclusion, order: int) -> None:
    sigma, law = 1.3, poisson_binomial(inclusion)
    exact = math.fsum(
        math.prod(law[k] for k in parts) * math.exp(sum(a * b for a, b in itertools.combinations(parts, 2)) / sigma**2)
        for parts in itertools.product(range(len(law)), repeat=order)
    )
    divergence = math.log(exact) / (order - 1)
    found = at(order, MixtureEvent(sigma, (inclusion,)))
    assert divergence <= found <= divergence * (1 + 1e-7) + 1e-7


def test_at_whole_orders_discrete_noise_is_as_good_as_continuous_noise() -> None:
    """On the coarsest of all grids: sigma = 1.3 grid units, records of 1 and 2 units."""
    sigma, x = 1.3, np.arange(-120, 121)
    for shift in (1, 2):
        law = poisson_binomial(OFTEN)
        absent = -(x**2) / (2 * sigma**2)
        parts = [math.log(law[k]) - (x - k * shift) ** 2 / (2 * sigma**2) for k in range(6)]
        present = logsumexp(parts, axis=0)
        for order in (2, 3):
            exact = (logsumexp(order * present - (order - 1) * absent) - logsumexp(absent)) / (order - 1)
            assert exact == pytest.approx(at(order, MixtureEvent(sigma / shift, (OFTEN,))), rel=1e-6)


def test_of_several_secrets_the_worst_counts() -> None:
    worst = np.maximum(divergences(MixtureEvent(9.0, (OFTEN,))), divergences(MixtureEvent(9.0, (MANY,))))
    np.testing.assert_array_equal(divergences(MixtureEvent(9.0, (OFTEN, MANY, OFTEN))), worst)
    assert np.all(divergences(MixtureEvent(9.0, ())) < 1e-8)


def renyi_posterior(events: Sequence[Event], prior: float) -> float:
    total = sum((divergences(event) for event in events), np.zeros(len(ORDERS)))
    return float(posteriors(total, prior).min())


@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.tuples(st.floats(1.5, 30), st.sampled_from([ALWAYS, OFTEN, MANY, ((0.1, 3),)])), min_size=1, max_size=3
    ),
    st.sampled_from([1e-6, 1e-4, 1e-2]),
)
def test_the_renyi_bound_is_never_below_the_posterior(releases: list[tuple[float, Inclusion]], prior: float) -> None:
    events = [MixtureEvent(noise, (inclusion,)) for noise, inclusion in releases]
    assert renyi_posterior(events, prior) >= posterior(events, prior) * (1 - 1e-9)


def test_the_renyi_bound_is_not_far_above_the_posterior() -> None:
    for budget, inclusion in itertools.product((TEN_TIMES, HUNDRED_TIMES), (ALWAYS, OFTEN, MANY)):
        events = [MixtureEvent(calibrate(budget, [inclusion], releases=3), (inclusion,))] * 3
        assert 1 < renyi_posterior(events, 1e-4) / float(budget.posterior) < 2


def test_the_renyi_bound_of_nothing_is_hardly_above_the_prior() -> None:
    assert 1e-4 <= renyi_posterior([], 1e-4) < 1.04e-4
    assert renyi_posterior([GaussianEvent(1e-3)], 1e-4) == 1


def test_a_single_run_counts_as_what_it_states_and_fits_its_own_cap_exactly() -> None:
    for inclusion in (ALWAYS, OFTEN, MANY):
        alone = run(TEN_TIMES, inclusion)
        assert SecretFilter(TEN_TIMES).admits([], alone)
        assert SecretFilter(TEN_TIMES).spent([alone]) == TEN_TIMES
        assert not SecretFilter(SecretBudget("1e-4", "0.99e-3")).admits([], alone)


def test_a_single_run_that_states_less_than_its_events_mean_counts_as_its_events() -> None:
    lying = Spending(TWICE, run(TEN_TIMES, OFTEN).events)
    spent = SecretFilter(TEN_TIMES).spent([lying])
    assert spent is not None
    assert float(spent.posterior) == pytest.approx(1e-3, rel=1e-6)
    assert not SecretFilter(TWICE).admits([], lying)


def test_a_run_with_another_prior_counts_at_the_caps_prior() -> None:
    other = run(SecretBudget("1e-2", "1e-1"), ALWAYS)
    spent = SecretFilter(TEN_TIMES).spent([other])
    assert spent is not None
    assert spent.prior == TEN_TIMES.prior
    assert float(spent.posterior) == pytest.approx(posterior(other.events, 1e-4), rel=1e-12)


@pytest.mark.parametrize("inclusion", [ALWAYS, OFTEN])
def test_two_runs_that_add_up_to_the_cap_do_not_fit(inclusion: Inclusion) -> None:
    """r + r (SecPE's Theorem 3) would let them in, and what they come to is more than the cap."""
    cap, half = SecretFilter(SecretBudget("1e-4", "2e-3")), run(TEN_TIMES, inclusion)
    assert cap.admits([], half)
    assert not cap.admits([half], half)
    assert posterior(half.events * 2, 1e-4) > 2e-3


@pytest.mark.parametrize("inclusion", [ALWAYS, OFTEN, MANY])
def test_runs_are_admitted_until_the_renyi_bound_and_what_was_admitted_keeps_the_cap(inclusion: Inclusion) -> None:
    cap, small = SecretFilter(HUNDRED_TIMES), run(TWICE, inclusion)
    history = [small]
    while cap.admits(history, small):
        history.append(small)
    assert 5 < len(history) < 100
    assert posterior([event for entry in history for event in entry.events], 1e-4) <= 1e-2
    spent = cap.spent(history)
    assert spent is not None
    assert TWICE.posterior < spent.posterior <= HUNDRED_TIMES.posterior
    assert not cap.admits(history, small)


def test_several_runs_count_at_the_order_that_the_first_run_fixes() -> None:
    """The best order of each history would depend on what was chosen, hence on what was seen."""
    cap = SecretFilter(HUNDRED_TIMES)
    history = [run(TWICE, MANY), run(TEN_TIMES, ALWAYS)]
    spent = cap.spent(history)
    assert spent is not None
    total = np.sum([divergences(event) for entry in history for event in entry.events], axis=0)
    at_orders = np.exp(np.minimum(0, (ORDERS - 1) / ORDERS * (total + math.log(1e-4))))
    first = divergences(history[0].events[0])
    aim = 10 * posterior(history[0].events, 1e-4)
    room = math.log(1e4) - ORDERS / (ORDERS - 1) * math.log(1 / aim)
    assert float(spent.posterior) == pytest.approx(at_orders[np.argmax(room / first)], rel=1e-9)
    raised = SecretFilter(SecretBudget("1e-4", "0.5")).spent(history)  # a cap that is raised later changes nothing
    assert raised is not None
    assert raised.posterior == spent.posterior
    assert float(spent.posterior) >= renyi_posterior([event for entry in history for event in entry.events], 1e-4)


def test_a_history_beyond_any_cap_is_a_posterior_just_below_one() -> None:
    bare = Spending(TEN_TIMES, (GaussianEvent(1e-3),))
    spent = SecretFilter(TEN_TIMES).spent([bare, bare])
    assert spent is not None
    assert 1 - Fraction(1, 10**9) < spent.posterior < 1
    assert not SecretFilter(TEN_TIMES).admits([bare], bare)


def test_a_run_without_releases_spends_next_to_nothing() -> None:
    idle = Spending(SecretBudget("1e-3", "1e-2"), ())
    spent = SecretFilter(TEN_TIMES).spent([idle])
    assert spent is not None
    assert float(spent.posterior) == pytest.approx(1e-4)
    assert SecretFilter(HUNDRED_TIMES).admits([idle], run(TWICE, ALWAYS))


def test_costs_in_epsilon_and_delta_are_one_clear_error() -> None:
    with pytest.raises(PrivacyError, match="is not for secrets"):
        SecretFilter(TEN_TIMES).admits([], Spending(Budget(1, "1e-6"), (GaussianEvent(4.3),)))


def test_the_order_is_the_first_run_s_whatever_came_after_it() -> None:
    """An order that is chosen once something was seen would not be a filter's."""
    runs = [run(TEN_TIMES, OFTEN), *[Spending(TEN_TIMES, (GaussianEvent(40.0),))] * 2]
    losses, most = [divergences(each.events[0]) for each in runs], 10 * posterior(runs[0].events, 1e-4)
    order = order_for(losses[0], 1e-4, most)
    assert order != order_for(losses[-1], 1e-4, most)
    for count in (2, 3):
        spent = SecretFilter(HUNDRED_TIMES).spent(runs[:count])
        assert spent is not None
        assert float(spent.posterior) == posteriors(np.sum(losses[:count], axis=0), 1e-4)[order]
