"""The filter over runs: exact fractions under the basic rule, one Renyi accountant under the other."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import PrivacyError
from understudy.privacy.accountant import BudgetFilter, CrossRunRule, Spending, gaussian_split, renyi_epsilon
from understudy.privacy.events import GaussianEvent, MixtureEvent, ZCDPEvent
from understudy.privacy.guarantee import ZCDP, Budget, SecretBudget


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
        with pytest.raises(PrivacyError, match="adds to no epsilon and delta"):
            call()
