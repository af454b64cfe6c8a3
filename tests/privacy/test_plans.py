"""Plans, charges, receipts and units."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import gaussian_split, pure_split
from understudy.privacy.events import Event, GaussianEvent, MixtureEvent, PureEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import Declared, NoisySum, Sensitivity
from understudy.privacy.plan import Charge, Plan, Receipt, charges_of
from understudy.privacy.sealed import NoiseOrigin, Seal, SealedValue, charge_of
from understudy.privacy.unit import Unit

BUDGET = Budget(2, "1e-6")


def plan(*charges: Charge, budget: Budget = BUDGET) -> Plan:
    return Plan("test", Unit(), budget, charges)


def charge(name: str, event: Event) -> Charge:
    return Charge(name, Declared(event), "to test")


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


def test_the_records_of_a_secret_move_a_sum_together_and_those_of_an_owner_were_bounded() -> None:
    query = NoisySum("gaussian", 2.0, Sensitivity.of_counts(1), (3,))  # as a query, it has a sensitivity and a shape
    for unit, records in ((Unit("secret", 3), 3), (Unit("owner", 3, "patient"), 1), (Unit(), 1)):
        assert unit.vectors == records
        (made,) = charges_of({"counts": (query, "to test")}, [2.0], unit=unit)
        assert made.mechanism.sensitivity == query.sensitivity.times(records)


def test_two_charges_of_one_name_are_refused_because_one_could_pay_for_the_other() -> None:
    with pytest.raises(PrivacyError, match="share a name"):
        plan(charge("a", PureEvent(0.1)), charge("a", PureEvent(0.1)))


def test_a_slash_in_a_charges_name_is_refused_because_it_begins_a_parts_name() -> None:
    with pytest.raises(PrivacyError, match="slash in its name"):
        plan(charge("a/b", PureEvent(0.1)))


def test_a_plan_knows_the_mechanism_of_each_charge() -> None:
    made = plan(charge("a", PureEvent(0.1)), charge("b", PureEvent(0.2)))
    assert made.mechanism("b") == Declared(PureEvent(0.2))
    assert made.charges[0].event == PureEvent(0.1)


def test_a_receipt_pays_each_charge_once_in_any_order_and_gives_its_mechanism() -> None:
    receipt = Receipt("run", plan(charge("a", PureEvent(0.1)), charge("b", PureEvent(0.2))))
    assert receipt.pay("b") == Declared(PureEvent(0.2))
    assert receipt.pay("a") == Declared(PureEvent(0.1))
    for name in ("a", "b", "c", "a/0"):
        with pytest.raises(PrivacyError, match="no unused charge"):
            receipt.pay(name)


@pytest.mark.parametrize("event", [GaussianEvent(0.1), MixtureEvent(2.5, (((0.5, 3), (0.25, 1)), ((1.0, 2),)))])
def test_a_charge_survives_json(event: Event) -> None:
    made = charge("a", event)
    assert Charge.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_units_say_what_they_protect_and_survive_json() -> None:
    assert "each record" in Unit().describe()
    owner = Unit("owner", 5)
    assert "at most 5" in owner.describe()
    assert Unit.from_json(owner.to_json()) == owner


SECRETS = SecretBudget("1e-4", "1e-3")
# Smallest that keep (1e-4, 1e-3), to five decimals.
MULTIPLIERS = {((1.0, 1),): 1.59037, ((1.0, 5),): 7.95185, ((0.05, 80),): 7.68717}


@pytest.mark.parametrize(("inclusion", "multiplier"), MULTIPLIERS.items())
def test_a_plan_for_secrets_keeps_the_posterior_at_the_prior_and_no_more(
    inclusion: tuple[tuple[float, int], ...], multiplier: float
) -> None:
    unit = Unit("secret", sum(records for _, records in inclusion))
    made = Plan("test", unit, SECRETS, (charge("a", MixtureEvent(multiplier * (1 + 1e-3), (inclusion,))),))
    assert made.spending.cost == SECRETS
    assert made.total == made.posterior(1e-4)
    assert 0.99e-3 < made.total <= 1e-3
    with pytest.raises(PrivacyError, match=r"more than its budget \(p=0.0001, r=0.001\)"):
        Plan("test", unit, SECRETS, (charge("a", MixtureEvent(multiplier * (1 - 1e-3), (inclusion,))),))


def test_two_releases_at_the_noise_of_one_are_more_than_the_posterior() -> None:
    event = MixtureEvent(1.6, (((1.0, 1),),))
    Plan("test", Unit("secret"), SECRETS, (charge("a", event),))
    with pytest.raises(PrivacyError, match="more than its budget"):
        Plan("test", Unit("secret"), SECRETS, (charge("a", event), charge("b", event)))


def test_gaussian_releases_protect_secrets_too() -> None:
    """mu = Phi^-1(1 - p) - Phi^-1(1 - r) in all: 1/multiplier^2 add up to mu^2."""
    multiplier = 2**0.5 / SECRETS.mu
    plan = Plan("test", Unit("secret", 3), SECRETS, tuple(charge(n, GaussianEvent(multiplier * 1.001)) for n in "ab"))
    assert plan.total == pytest.approx(1e-3, rel=0.01)
    with pytest.raises(PrivacyError, match="more than its budget"):
        Plan("test", Unit("secret", 3), SECRETS, tuple(charge(n, GaussianEvent(multiplier * 0.999)) for n in "ab"))


@pytest.mark.parametrize(
    ("unit", "budget"),
    [(Unit(), SECRETS), (Unit("owner", 3), SECRETS), (Unit("secret", 3), BUDGET), (Unit("secret", 3), Budget(1, 0))],
)
def test_secrets_take_a_prior_and_a_posterior_and_nothing_else_does(unit: Unit, budget: Budget | SecretBudget) -> None:
    with pytest.raises(ConfigError, match=r"is not a budget for one \w+\. Secrets take a prior and a posterior"):
        Plan("test", unit, budget, ())


def test_a_secret_is_all_records_that_hold_it_in_any_column() -> None:
    secret = Unit("secret", 5)
    assert secret.describe() == "each secret: all records that contain it, at most 5 of them"
    assert Unit("secret").describe() == "each secret: all records that contain it, at most one"
    assert secret.name == Unit("secret", 7).name == "secret"
    assert Unit.from_json(json.loads(json.dumps(secret.to_json()))) == secret
    with pytest.raises(ConfigError, match="a column is named"):
        Unit("secret", 5, "name")


@pytest.mark.parametrize(("kind", "records"), [("secret", 0), ("record", 2), ("owner", 0), ("record", 0)])
def test_impossible_contribution_bounds_are_refused(kind: str, records: int) -> None:
    with pytest.raises(ConfigError):
        Unit(kind, records)  # type: ignore[arg-type]


# -- what a plan forecasts and a noise check finds: fields, put into words where they are shown -----------------------

FACTS = Facts(
    (
        Fact("noise", 12.3456, "noise standard deviation (records)"),
        Fact("terms", 5000, "terms"),
        Fact("side", "private", "side of the boundary"),
        Fact("texts", (3, 0.12345), "texts"),
    ),
    ("The noise is larger than the signal.",),
)


def test_an_entry_is_found_by_its_name() -> None:
    assert FACTS["terms"] == 5000
    assert FACTS["texts"] == (3, 0.12345)
    assert "noise" in FACTS
    assert "noise standard deviation (records)" not in FACTS
    with pytest.raises(KeyError, match="other"):
        FACTS["other"]


def test_facts_survive_json_exactly() -> None:
    assert Facts.from_json(json.loads(json.dumps(FACTS.to_json()))) == FACTS
    assert Facts.from_json(Facts().to_json()) == Facts()


def test_lines_are_for_people_warnings_last() -> None:
    assert FACTS.lines() == [
        "noise standard deviation (records): 12.35",
        "terms: 5000",
        "side of the boundary: private",
        "texts: 3, 0.1235",
        "Warning: The noise is larger than the signal.",
    ]
    assert Facts().lines() == []


def test_numbers_per_label_are_told_apart_by_the_labels() -> None:
    assert FACTS.lines(("asthma", "flu"))[3] == "texts: 3 for asthma, 0.1235 for flu"


@pytest.mark.parametrize("labels", [("asthma",), ("asthma", "flu", "other")])
def test_numbers_are_not_said_of_labels_that_are_not_theirs(labels: tuple[str, ...]) -> None:
    assert FACTS.lines(labels)[3] == "texts: 3, 0.1235"


def test_the_number_of_the_only_label_stands_alone() -> None:
    assert Fact("texts", (3,), "texts").line(("all",)) == "texts: 3"


# -- a seal: only the system's noise under a booked charge makes a value private --------------------------------------

OWNER = Unit("owner", 3, "patient")
SEAL = Seal("sums", GaussianEvent(5 / 3), OWNER, "system", "1" * 32, "2" * 32, 7, rows="3" * 64)
PLAN = Plan("test", OWNER, Budget(2, 0), (Charge("sums", Declared(PureEvent(1.0)), "to test"),))


def test_a_value_is_private_if_its_noise_is_the_systems_and_its_charge_is_booked() -> None:
    assert SEAL.private
    assert replace(SEAL, rows="").private


@pytest.mark.parametrize("noise", ["seeded", "none"])
def test_a_value_of_insecure_noise_is_never_private_whatever_was_charged(noise: NoiseOrigin) -> None:
    assert not replace(SEAL, noise=noise).private


@pytest.mark.parametrize("change", [{"ledger_id": ""}, {"charge_number": 0}, {"charge_number": -1}], ids=str)
def test_a_value_that_no_ledger_has_booked_is_not_private(change: dict[str, object]) -> None:
    assert not replace(SEAL, **change).private  # type: ignore[arg-type]


@pytest.mark.parametrize("event", [GaussianEvent(0.1), PureEvent(1 / 3), MixtureEvent(2.5, (((0.5, 3), (0.25, 1)),))])
@pytest.mark.parametrize("unit", [Unit(), OWNER, Unit("secret", 5, recognised_by="detector email")])
def test_a_seal_survives_json_exactly(event: Event, unit: Unit) -> None:
    seal = replace(SEAL, event=event, unit=unit, noise="seeded")
    assert Seal.from_json(json.loads(json.dumps(seal.to_json()))) == seal
    assert set(seal.to_json()) == {field.name for field in fields(Seal)}


def test_neither_the_rows_that_were_read_nor_the_values_are_shown() -> None:
    value = SealedValue({"value": np.array([123456.0])}, SEAL)
    assert "3" * 64 not in repr(SEAL)
    assert repr(value) == "<SealedValue sums: Gaussian noise, noise multiplier 1.66667, system noise>"
    assert "123456" not in repr(value)
    assert value.value.tolist() == [123456.0]


def test_a_part_is_paid_for_by_what_stands_before_its_first_slash() -> None:
    assert [charge_of(name) for name in ("tokens", "tokens/0/3", "/tokens", "")] == ["tokens", "tokens", "", ""]


# -- the seals of a receipt -------------------------------------------------------------------------------------------


def test_a_receipt_seals_values_and_parts_with_what_was_booked() -> None:
    receipt = Receipt("run", PLAN, ledger_id="ledger", charge_number=4)
    for name in ("sums", "sums/0/17"):
        seal = receipt.seal(name, noise="system", rows="rows")
        assert seal == Seal(name, PureEvent(1.0), OWNER, "system", "run", "ledger", 4, "rows")
        assert seal.private
        assert not receipt.seal(name, noise="none", rows="rows").private


def test_a_receipt_without_a_ledger_seals_nothing_private() -> None:
    assert not Receipt("run", PLAN).seal("sums", noise="system", rows="").private


def test_a_receipt_seals_only_what_a_charge_pays_for() -> None:
    for name in ("other", "other/sums", "/sums", "sum", "Sums"):
        with pytest.raises(PrivacyError, match="No charge of the plan pays for"):
            Receipt("run", PLAN).seal(name, noise="system", rows="")


def test_sealing_uses_no_charge_up_and_a_used_one_still_seals_its_parts() -> None:
    receipt = Receipt("run", PLAN)
    receipt.seal("sums/0", noise="none", rows="")
    receipt.pay("sums")
    assert receipt.seal("sums/1", noise="none", rows="").name == "sums/1"
