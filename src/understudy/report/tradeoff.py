"""What the charges permit an attacker: true positives against false positives of a test for one unit."""

from __future__ import annotations

from understudy.privacy.accountant import Composition
from understudy.privacy.secrets.budget import SecretBudget
from understudy.statement import Statement

RATES = (1e-4, 1e-3, 0.003, *(i / 100 for i in range(1, 20)), *(i / 40 for i in range(8, 40)), 0.99)
_COARSE = 3
"""Every third rate is enough where one takes a numerical search."""


def tradeoff(statement: Statement) -> tuple[tuple[float, float], ...]:
    """The largest true-positive rate at each false-positive rate, from (0, 0) to (1, 1).

    Of the composed events: for epsilon as :meth:`understudy.privacy.accountant.Composition.power` (the trade-off
    function of f-DP, Dong, Roth and Su 2022, or bounds on it), for secrets the highest posterior at each prior.
    """
    events = tuple(charge.event for charge in statement.charges)
    if isinstance(statement.budget, SecretBudget):
        from understudy.privacy.secrets.composition import posterior

        inner = [(rate, posterior(events, rate)) for rate in RATES[::_COARSE]]
    else:
        composition = Composition(events)
        inner = [(rate, composition.power(rate)) for rate in RATES]
    return ((0.0, min(1.0, inner[0][1])), *((rate, max(rate, min(1.0, power))) for rate, power in inner), (1.0, 1.0))
