"""Small plans to charge."""

from __future__ import annotations

from pathlib import Path

from understudy.ledger import Ledger, rows
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import Event, GaussianEvent, MixtureEvent, PureEvent, event_from_json
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sealed import Seal
from understudy.privacy.unit import Unit

RECORD = Unit("record")
CAP = Budget(1, "1e-6")


def pure_plan(epsilon: object, delta: object = 0, *, unit: Unit = RECORD, why: str = "to test") -> Plan:
    budget = Budget(epsilon, delta)
    return _plan(budget, PureEvent(float(budget.epsilon) * (1 - 1e-9)), unit, why)


def gaussian_plan(epsilon: object, delta: object = "1e-6") -> Plan:
    budget = Budget(epsilon, delta)
    return _plan(budget, GaussianEvent(gaussian_split(budget, [1])[0]), RECORD, "to test")


def _plan(budget: Budget | SecretBudget, event: Event, unit: Unit, why: str) -> Plan:
    return Plan("test", unit, budget, (Charge("sums", Declared(event), why),))


SECRET = Unit("secret", 5, recognised_by="detector email")
SECRET_CAP = SecretBudget("1e-4", "1e-3")


def secret_plan(prior: object = "1e-4", posterior: object = "1e-3", *, unit: Unit = SECRET, noise: float = 1) -> Plan:
    """All records of a secret drawn: one Gaussian release of sensitivity ``max_records``, ``noise`` times too much."""
    budget = SecretBudget(prior, posterior)
    multiplier = unit.max_records / budget.mu * (1 + 1e-3) * noise
    return _plan(budget, MixtureEvent(multiplier, (((1.0, unit.max_records),),)), unit, "to test")


def seal_of(ledger: Ledger, run_id: str, name: str = "sums") -> Seal:
    """Of a value of a booked run, as the receipt of its charge gives it."""
    with ledger._database.read() as connection:
        booked = rows.booked(connection, run_id)
        assert booked is not None
        number = rows.entry_number(connection, run_id)
    event = event_from_json(booked[1].charges[0]["event"])
    assert booked[1].unit is not None
    return Seal(name, event, booked[1].unit, "system", run_id, ledger.id, number)


def new_ledger(location: str | Path) -> Ledger:
    """Made if it is not there. A run may open its datasets, in PostgreSQL too."""
    return Ledger.create(location, strict=False)
