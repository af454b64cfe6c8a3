"""Lower bounds on what a mechanism loses, from how often an attacker's alarm rings on two neighbours."""

from __future__ import annotations

import math

from scipy import stats

from understudy.privacy.events import Event
from understudy.privacy.plan import Charge, Receipt

CHANCE = 1e-6


def rates(true: int, false: int, draws: int) -> tuple[float, float]:
    """Clopper-Pearson: lower bound on the rate of true alarms, upper bound on that of false ones."""
    return (
        float(stats.beta.ppf(CHANCE / 2, true, draws - true + 1)),
        float(stats.beta.isf(CHANCE / 2, false + 1, draws - false)),
    )


def epsilon_found(true: int, false: int, draws: int) -> float:
    """Pure epsilon is at least this, but for one chance in a million."""
    at_least, at_most = rates(true, false, draws)
    return math.log(at_least / at_most)


def mu_found(true: int, false: int, draws: int) -> float:
    """mu of Gaussian differential privacy is at least this, but for one chance in a million."""
    at_least, at_most = rates(true, false, draws)
    return float(stats.norm.ppf(at_least) - stats.norm.ppf(at_most))


def paid(name: str, event: Event) -> Receipt:
    """A receipt for one charge."""
    return Receipt("run", (Charge(name, event, {}, "to test"),))
