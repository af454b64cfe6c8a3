"""Small plans to charge."""

from __future__ import annotations

from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import Event, GaussianEvent, PureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit

RECORD = Unit("record")
CAP = Budget(1, "1e-6")


def pure_plan(epsilon: object, delta: object = 0, *, unit: Unit = RECORD, why: str = "to test") -> Plan:
    budget = Budget(epsilon, delta)
    return _plan(budget, PureEvent(float(budget.epsilon) * (1 - 1e-9)), unit, why)


def gaussian_plan(epsilon: object, delta: object = "1e-6") -> Plan:
    budget = Budget(epsilon, delta)
    return _plan(budget, GaussianEvent(gaussian_split(budget, [1])[0]), RECORD, "to test")


def _plan(budget: Budget, event: Event, unit: Unit, why: str) -> Plan:
    return Plan("test", unit, budget, (Charge("sums", event, {"N": 3, "scale": 0.1}, why),))
