"""What the charges permit an attacker: true positives against false positives of a test for one unit."""

from __future__ import annotations

from understudy.privacy.accountant import Composition
from understudy.privacy.secrets.budget import SecretBudget
from understudy.report.effort import MOST_SECONDS, seconds_of_losses, seconds_of_secrets
from understudy.statement import Statement

RATES = (1e-4, 1e-3, 0.003, *(i / 100 for i in range(1, 20)), *(i / 40 for i in range(8, 40)), 0.99)
_COARSE = 3
"""Every third rate is enough where one takes a numerical search."""


def tradeoff(statement: Statement) -> tuple[tuple[float, float], ...] | None:
    """The largest true-positive rate at each false-positive rate, from (0, 0) to (1, 1).

    Of the composed events: for epsilon as :meth:`understudy.privacy.accountant.Composition.power` (the trade-off
    function of f-DP, Dong, Roth and Su 2022, or bounds on it), for secrets the highest posterior at each prior.

    Returns:
        None where it would take longer than :data:`~understudy.report.effort.MOST_SECONDS`.
    """
    events = tuple(charge.event for charge in statement.charges)
    if isinstance(statement.budget, SecretBudget):
        from understudy.privacy.secrets.composition import posterior

        if seconds_of_secrets(events, len(RATES[::_COARSE])) > MOST_SECONDS:
            return None
        inner = [(rate, posterior(events, rate)) for rate in RATES[::_COARSE]]
    else:
        if seconds_of_losses(events) > MOST_SECONDS:
            return None
        composition = Composition(events)
        inner = [(rate, composition.power(rate)) for rate in RATES]
    return ((0.0, min(1.0, inner[0][1])), *((rate, max(rate, min(1.0, power))) for rate, power in inner), (1.0, 1.0))
