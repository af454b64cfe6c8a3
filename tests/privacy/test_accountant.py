"""Composition: analytic against privacy loss distributions against Renyi, order, counts, calibration."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import (
    BudgetFilter,
    Composition,
    CrossRunRule,
    Spending,
    gaussian_split,
    pure_split,
    renyi_epsilon,
)
from understudy.privacy.events import (
    Event,
    GaussianEvent,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
    SubsampledPureEvent,
    ZCDPEvent,
    event_from_json,
    event_to_json,
    gaussian_loss,
)
from understudy.privacy.guarantee import ZCDP, Budget, SecretBudget

MIXED: tuple[Event, ...] = (GaussianEvent(3.0), PureEvent(0.25), GaussianEvent(5.0), PureEvent(0.5))

budgets = st.builds(Budget, st.floats(0.01, 100), st.floats(1e-12, 1e-2))
some_shares = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8)


def pld_epsilon(events: tuple[Event, ...], delta: float) -> float:
    losses = [event.to_pld() for event in events]
    return float(functools.reduce(lambda a, b: a.compose(b), losses).get_epsilon_for_delta(delta))


@pytest.mark.parametrize("multipliers", [(1.0,), (4.0, 4.0), (0.8, 2.0, 9.0), (10.0,) * 20])
@pytest.mark.parametrize("delta", [1e-4, 1e-8])
def test_analytic_pld_and_renyi_bounds_stand_in_the_right_order(multipliers: tuple[float, ...], delta: float) -> None:
    events = tuple(GaussianEvent(multiplier) for multiplier in multipliers)
    analytic = Composition(events).epsilon(delta)
    numerical = pld_epsilon(events, delta)
    renyi = renyi_epsilon(events, delta)
    assert analytic <= numerical * (1 + 1e-5)  # the accountant adds the discrete excess, the PLD does not
    assert numerical == pytest.approx(analytic, rel=2e-3)
    assert numerical <= renyi
    assert renyi == pytest.approx(analytic, rel=0.25)


def test_a_mixture_is_no_worse_than_its_pure_sum_or_renyi_and_no_better_than_its_parts() -> None:
    mixed = Composition(MIXED)
    epsilon = mixed.epsilon(1e-6)
    assert max(Composition(MIXED[::2]).epsilon(1e-6), 0.75) <= epsilon <= renyi_epsilon(MIXED, 1e-6)
    pure = (PureEvent(0.25),) * 4
    assert Composition(pure).epsilon(1e-6) <= Composition(pure).pure_epsilon == 1.0


def test_zcdp_events_compose_in_closed_form_whatever_their_number_and_order() -> None:
    """Canonne, Kamath and Steinke 2020, Corollary 13, of the sum of rho; a grid of Renyi orders says a little more."""
    events = (ZCDPEvent(0.02), ZCDPEvent(0.5), ZCDPEvent(0.0), ZCDPEvent(1e-5))
    for order in itertools.permutations(events):
        assert Composition(order).epsilon(1e-6) == ZCDP(math.fsum(event.rho for event in events)).epsilon(1e-6)
    assert Composition(events).epsilon(1e-6) <= renyi_epsilon(events, 1e-6)


@pytest.mark.parametrize(
    "other",
    [GaussianEvent(2.0), PureEvent(0.5), SubsampledGaussianEvent(2.0, 0.1, 3), SubsampledPureEvent(0.5, 0.1, 3)],
)
def test_a_zcdp_event_composes_with_any_other_by_rho(other: Event) -> None:
    both = Composition((ZCDPEvent(0.02), other)).epsilon(1e-6)
    assert both == pytest.approx(ZCDP(0.02 + other.rho).epsilon(1e-6), rel=1e-5)  # the discrete excess
    assert both >= ZCDP(0.02 + other.rho).epsilon(1e-6)
    assert both > max(Composition((other,)).epsilon(1e-6), ZCDP(0.02).epsilon(1e-6))


def test_composing_n_gaussian_or_pure_events_equals_counting_n() -> None:
    for count in (2, 10, 100):
        many = Composition((GaussianEvent(7.0),) * count)
        assert many.mu == pytest.approx(math.sqrt(count) / 7)
        assert many.epsilon(1e-6) == pytest.approx(
            Composition((GaussianEvent(7 / math.sqrt(count)),)).epsilon(1e-6), rel=1e-5
        )
        assert Composition((PureEvent(0.01),) * count).epsilon(0) == pytest.approx(count * 0.01, rel=1e-12)


@pytest.mark.parametrize(
    "events",
    [
        MIXED[:3],
        (GaussianEvent(1.1), GaussianEvent(3.7), GaussianEvent(0.9)),
        (ZCDPEvent(0.1), MIXED[0], MIXED[1]),
        (SubsampledGaussianEvent(2.0, 0.1, 20), MIXED[0], MIXED[1]),
    ],
)
def test_the_order_of_events_does_not_matter(events: tuple[Event, ...]) -> None:
    found = [Composition(order).epsilon(1e-6) for order in itertools.permutations(events)]
    assert max(found) == pytest.approx(min(found), rel=1e-9)


def test_one_more_event_never_lowers_epsilon() -> None:
    events: tuple[Event, ...] = ()
    before = 0.0
    for event in (*MIXED, ZCDPEvent(0.01)):
        events = (*events, event)
        after = Composition(events).epsilon(1e-6)
        assert after > before
        before = after


def test_no_events_cost_nothing() -> None:
    assert Composition(()).epsilon(0) == Composition(()).epsilon(1e-6) == 0.0
    assert Composition(()).mu == 0.0


def test_only_gaussian_events_have_a_mu_and_only_pure_ones_a_pure_epsilon() -> None:
    assert Composition(MIXED).mu is None
    assert Composition(MIXED).pure_epsilon == Composition(MIXED).epsilon(0) == math.inf
    assert Composition(MIXED[1::2]).pure_epsilon == 0.75
    assert Composition((ZCDPEvent(0.1),)).pure_epsilon == math.inf


def test_a_mixture_pays_for_the_discrete_excess_of_its_gaussian_events_too() -> None:
    events = (GaussianEvent(1.0), PureEvent(0.1))
    assert Composition(events).epsilon(1e-6) > pld_epsilon(events, 1e-6)


@settings(max_examples=300)
@given(budget=budgets, shares=some_shares)
def test_a_gaussian_split_never_overshoots_and_wastes_nothing(budget: Budget, shares: list[float]) -> None:
    multipliers = gaussian_split(budget, shares)
    epsilon = Composition(tuple(map(GaussianEvent, multipliers))).epsilon(float(budget.delta))
    assert epsilon <= budget.epsilon
    assert epsilon == pytest.approx(float(budget.epsilon), rel=1e-4)
    for multiplier, share in zip(multipliers, shares, strict=True):
        assert multipliers[0] ** 2 * shares[0] == pytest.approx(multiplier**2 * share, rel=1e-9)


@settings(max_examples=300)
@given(budget=budgets, shares=some_shares)
def test_a_pure_split_never_overshoots_and_wastes_nothing(budget: Budget, shares: list[float]) -> None:
    epsilons = pure_split(budget, shares)
    assert Composition(tuple(map(PureEvent, epsilons))).pure_epsilon <= budget.epsilon
    assert math.fsum(epsilons) == pytest.approx(float(budget.epsilon), rel=1e-11)


@settings(max_examples=300)
@given(budget=budgets, shares=some_shares)
def test_a_laplace_scale_and_its_event_never_cost_more_than_the_split(budget: Budget, shares: list[float]) -> None:
    """What a mechanism is built from is 1/epsilon; rounding there must not overshoot either."""
    multipliers = [1 / epsilon for epsilon in pure_split(budget, shares)]
    assert Composition(tuple(PureEvent(1 / m) for m in multipliers)).pure_epsilon <= budget.epsilon


def test_gaussian_noise_without_a_delta_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="delta = 0"):
        gaussian_split(Budget(1, 0), [1])


@pytest.mark.parametrize("event", [GaussianEvent(0.1), PureEvent(1 / 3), ZCDPEvent(2e-5)])
def test_events_survive_json_exactly_and_say_what_they_are(event: Event) -> None:
    assert event_from_json(event_to_json(event)) == event
    assert {"gaussian": "Gaussian", "pure": "pure DP", "zcdp": "zCDP"}[event.kind] in str(event)


def test_a_pure_event_is_no_weaker_than_its_zcdp_and_a_gaussian_event_as_its_rho_says() -> None:
    assert PureEvent(2.0).rho == 2.0
    assert GaussianEvent(0.5).rho == 2.0


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_events_that_cost_nothing_or_nonsense_are_refused(value: float) -> None:
    with pytest.raises(ConfigError):
        GaussianEvent(value)
    with pytest.raises(ConfigError):
        PureEvent(value)
    if value != 0.0:
        with pytest.raises(ConfigError):
            ZCDPEvent(value)


def test_the_power_of_a_gaussian_composition_is_its_trade_off_curve() -> None:
    composition = Composition((GaussianEvent(2.0), GaussianEvent(2.0)))  # mu = 1 / sqrt(2)
    assert composition.power(0.01) == pytest.approx(NormalDist().cdf(NormalDist().inv_cdf(0.01) + math.sqrt(0.5)))
    assert composition.power(0.5) > 0.5


def test_the_power_of_a_pure_event_is_bounded_from_both_ends() -> None:
    assert Composition((PureEvent(1.0),)).power(0.01) == pytest.approx(math.e * 0.01)
    assert Composition((PureEvent(6.0),)).power(0.01) == pytest.approx(1 - math.exp(-6) * 0.99)


def test_a_mixture_has_at_least_the_power_of_its_gaussian_part() -> None:
    mixture = Composition((GaussianEvent(2.0), PureEvent(0.01)))
    assert mixture.power(0.01) >= Composition((GaussianEvent(2.0),)).power(0.01)


def test_a_delta_too_small_for_doubles_is_refused() -> None:
    with pytest.raises(ConfigError, match="too small"):
        gaussian_split(Budget.of(Fraction(1), Fraction("1e-16")), [1])


@pytest.mark.parametrize("epsilon", [299.0, 301.0, 710.0, 100_000.0])
def test_a_pure_epsilon_of_any_size_is_accounted_for(epsilon: float) -> None:
    alike = [PureEvent(epsilon), SubsampledPureEvent(epsilon, 1.0, 1)]
    for event in alike[: 1 if epsilon < 300 else 2]:  # losses that large take long to be composed
        composed = Composition((event, GaussianEvent(2.0)))
        assert 0 < Composition((event,)).epsilon(1e-6) <= epsilon * (1 + 1e-12)
        assert composed.epsilon(1e-6) >= epsilon * 0.99
        assert 0 < composed.power(0.01) <= 1


def test_the_losses_of_the_same_events_are_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan, its statement and its ledger entry each ask for them."""
    asked = []

    def to_pld(self: SubsampledGaussianEvent) -> Any:
        asked.append(self)
        return gaussian_loss(self.noise_multiplier, rate=self.rate, interval=1e-2)

    monkeypatch.setattr(SubsampledGaussianEvent, "to_pld", to_pld)
    found = {Composition((SubsampledGaussianEvent(2.625, 0.125, 1),)).epsilon(1e-5) for _ in range(3)}
    assert (len(found), len(asked)) == (1, 1)
    assert Composition((SubsampledGaussianEvent(2.625, 0.125, 1),)).epsilon(1e-6) > found.pop()
    assert len(asked) == 1


# -- the filter over runs: exact fractions, or one Renyi accountant ---------------------------------------------------


def run(epsilon: object, delta: object = 0) -> Spending:
    return Spending(Budget(epsilon, delta), ())  # type: ignore[arg-type]


def gaussian_run(epsilon: float, delta: str = "1e-6") -> Spending:
    budget = Budget(epsilon, delta)
    return Spending(budget, (GaussianEvent(gaussian_split(budget, [1])[0]),))


def test_ten_tenths_fit_exactly_and_nothing_more() -> None:
    """In floats, ten times 0.1 is not 1."""
    cap = BudgetFilter(Budget(1, "1e-5"))
    nine = [run(0.1, "1e-6")] * 9
    assert cap.admits(nine, run(0.1, "1e-6"))
    assert not cap.admits(nine, run("0.1000000000000000000000000001", "1e-6"))
    assert not cap.admits(nine, run(0.1, "1.000000000000000000000000001e-6"))
    assert cap.spent([*nine, run(0.1, "1e-6")]) == Budget(1, "1e-5")
    assert not cap.admits([*nine, run(0.1, "1e-6")], Spending(Budget.of(Fraction("1e-30"), Fraction()), ()))


@given(st.lists(st.fractions(min_value="1/1000", max_value=2), min_size=1, max_size=6))
def test_the_basic_rule_adds_fractions_without_rounding(costs: list[Fraction]) -> None:
    total = sum(costs, Fraction(0))
    runs = [run(cost) for cost in costs]
    assert BudgetFilter(Budget(total, 0)).admits(runs[:-1], runs[-1])
    assert not BudgetFilter(Budget(total - Fraction(1, 10**12), 0)).admits(runs[:-1], runs[-1])


def test_delta_is_a_cap_of_its_own() -> None:
    assert not BudgetFilter(Budget(10, "1e-6")).admits([run(1, "1e-6")], run(1, "1e-9"))
    assert BudgetFilter(Budget(10, "1e-6")).admits([run(1, "1e-6")], run(1))


def test_nothing_is_spent_before_the_first_run() -> None:
    assert BudgetFilter(Budget(1, 0)).spent([]) is None
    assert BudgetFilter(Budget(1, "1e-6"), "rdp").spent([]) is None


def test_the_order_of_runs_does_not_matter() -> None:
    for rule in ("basic", "rdp"):
        cap = BudgetFilter(Budget(9, "1e-5"), rule)  # type: ignore[arg-type]
        runs = [gaussian_run(1), gaussian_run(2), gaussian_run(0.5)]
        assert cap.spent(runs) == cap.spent(runs[::-1])


def test_the_renyi_rule_composes_the_events_of_all_runs_at_the_caps_delta() -> None:
    cap = BudgetFilter(Budget(3, "1e-6"), "rdp")
    runs = [gaussian_run(1)] * 6
    spent = cap.spent(runs)
    assert spent is not None
    assert float(spent.epsilon) == renyi_epsilon([event for each in runs for event in each.events], 1e-6)
    assert spent.delta == Fraction(1, 10**6)
    assert float(spent.epsilon) < 3 < 6  # where the basic rule would be at 6
    assert cap.admits(runs[:-1], runs[-1])
    assert not BudgetFilter(Budget(float(spent.epsilon) * (1 - 1e-9), "1e-6"), "rdp").admits(runs[:-1], runs[-1])


@given(st.integers(1, 40), st.floats(1e-3, 0.05))
def test_the_renyi_rule_never_promises_more_than_zcdp_can(count: int, rho: float) -> None:
    runs = [Spending(Budget(1, "1e-6"), (ZCDPEvent(rho),))] * count
    spent = BudgetFilter(Budget(100, "1e-6"), "rdp").spent(runs)
    assert spent is not None
    assert float(spent.epsilon) >= ZCDP(rho * count).epsilon(1e-6) * (1 - 1e-6)


def test_the_renyi_rule_admits_nothing_it_cannot_bound() -> None:
    weak = Spending(Budget(1, "1e-6"), (GaussianEvent(1e-150),))
    assert not BudgetFilter(Budget(100_000, "1e-6"), "rdp").admits([], weak)


@pytest.mark.parametrize("rule", ["basic", "rdp"])
def test_a_run_that_does_not_fit_alone_is_not_admitted(rule: str) -> None:
    assert not BudgetFilter(Budget(1, "1e-6"), rule).admits([], gaussian_run(1.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["basic", "rdp"])
def test_a_cost_of_secrets_never_adds_to_an_epsilon(rule: CrossRunRule) -> None:
    secrets = Spending(SecretBudget("1e-4", "1e-3"), (MixtureEvent(2.0, (((1.0, 1),),)),))
    cap = BudgetFilter(Budget(100, "1e-5"), rule)
    for call in (lambda: cap.spent([secrets]), lambda: cap.admits([secrets], gaussian_run(1))):
        with pytest.raises(PrivacyError, match="cannot be added to an epsilon and a delta"):
            call()
