"""Plans, charges, receipts and units."""

from __future__ import annotations

import pytest

from understudy.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import gaussian_split, pure_split
from understudy.privacy.events import GaussianEvent, PureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan, Receipt
from understudy.privacy.unit import Unit

BUDGET = Budget(2, "1e-6")


def plan(*charges: Charge, budget: Budget = BUDGET) -> Plan:
    return Plan("test", Unit(), budget, charges)


def charge(name: str, event: GaussianEvent | PureEvent) -> Charge:
    return Charge(name, event, {"N": 1}, "to test")


def test_a_plan_that_spends_its_budget_to_the_last_is_fine() -> None:
    first, second = gaussian_split(BUDGET, [1, 4])
    made = plan(charge("a", GaussianEvent(first)), charge("b", GaussianEvent(second)))
    assert made.spending.cost == BUDGET
    assert made.spending.events == (GaussianEvent(first), GaussianEvent(second))
    plan(charge("a", PureEvent(pure_split(BUDGET, [1])[0])))


def test_a_plan_that_spends_more_than_its_budget_is_refused() -> None:
    (multiplier,) = gaussian_split(BUDGET, [1])
    with pytest.raises(PrivacyError, match="more than its budget"):
        plan(charge("a", GaussianEvent(multiplier * (1 - 1e-6))))
    with pytest.raises(PrivacyError, match="more than its budget"):
        plan(charge("a", GaussianEvent(multiplier)), charge("b", PureEvent(1e-3)))
    with pytest.raises(PrivacyError, match="more than its budget"):
        plan(charge("a", PureEvent(2.0)), charge("b", PureEvent(1e-3)), budget=Budget(2, 0))


def test_gaussian_noise_under_a_pure_budget_is_refused() -> None:
    with pytest.raises(PrivacyError, match="more than its budget"):
        plan(charge("a", GaussianEvent(1e6)), budget=Budget(2, 0))


def test_two_charges_of_one_name_are_refused_because_one_could_pay_for_the_other() -> None:
    with pytest.raises(PrivacyError, match="share a name"):
        plan(charge("a", PureEvent(0.1)), charge("a", PureEvent(0.1)))


def test_a_receipt_pays_each_charge_once_in_any_order() -> None:
    receipt = Receipt("run", (charge("a", PureEvent(0.1)), charge("b", PureEvent(0.2))))
    receipt.pay("b", PureEvent(0.2))
    receipt.pay("a", PureEvent(0.1))
    for name, event in (("a", PureEvent(0.1)), ("b", PureEvent(0.2)), ("c", PureEvent(0.1))):
        with pytest.raises(PrivacyError):
            receipt.pay(name, event)


def test_a_charge_survives_json() -> None:
    made = charge("a", GaussianEvent(0.1))
    assert Charge.from_json(made.to_json()) == made


def test_units_say_what_they_protect_and_survive_json() -> None:
    assert "one record" in Unit().describe()
    owner = Unit("owner", 5)
    assert "at most 5" in owner.describe()
    assert Unit.from_json(owner.to_json()) == owner


@pytest.mark.parametrize(("kind", "records"), [("record", 2), ("owner", 0), ("record", 0)])
def test_impossible_contribution_bounds_are_refused(kind: str, records: int) -> None:
    with pytest.raises(ConfigError):
        Unit(kind, records)  # type: ignore[arg-type]
