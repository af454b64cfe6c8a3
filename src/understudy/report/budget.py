"""Where a budget went, and what its charges permit an attacker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from understudy.privacy.accountant import Composition
from understudy.privacy.events import (
    Event,
    GaussianEvent,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
    SubsampledPureEvent,
    ZCDPEvent,
)
from understudy.privacy.guarantee import SecretBudget
from understudy.privacy.plan import Charge
from understudy.release.statement import Statement

MOST_SECONDS = 60.0
"""Beyond it a page has no curve; what our own runs state takes far less."""
_GRID = 2e4  # points for each unit of loss, on both sides
_TAIL = 8.0  # standard deviations of a privacy loss that are kept
_A_POINT = 2e-6
_AHEAD = 4  # a release alone is as much work as being composed with so many
_SPLITS = 20  # groups of secrets that are tried, about
_A_SECRET, _A_PAIR, _A_CELL = 4e-5, 1e-10, 1e-3
RATES = (1e-4, 1e-3, 0.003, *(i / 100 for i in range(1, 20)), *(i / 40 for i in range(8, 40)), 0.99)
_COARSE = 3  # every third rate is enough where one takes a numerical search


def seconds_of_losses(events: Sequence[Event]) -> float:
    """Of :meth:`~understudy.privacy.accountant.Composition.power`; 0 where a closed form has it."""
    closed = all(isinstance(event, GaussianEvent) for event in events)
    if closed or any(isinstance(event, ZCDPEvent | MixtureEvent) for event in events):
        return 0.0
    return _A_POINT * sum((place + _AHEAD) * _GRID * _width(event) for place, event in enumerate(events, 1))


def seconds_of_secrets(events: Sequence[Event], priors: int) -> float:
    """Of :func:`~understudy.privacy.secrets.composition.posterior` at so many priors."""
    cost = 0.0
    for event in {event for event in events if isinstance(event, MixtureEvent)}:
        secrets = set(event.inclusion)
        held = [sum(records for _, records in secret) for secret in secrets]
        cost += sum(_A_SECRET + _A_PAIR * records**2 for records in held)
        if len(events) > 1:  # composed on a grid, for every number of records that is likely sampled
            most = max(held, default=0)
            likely = min(float(most), 2 * _TAIL * math.sqrt(most))
            cost += (_SPLITS if len(secrets) > 1 else 1) * _A_CELL * (_AHEAD + likely)
    return priors * cost


def _width(event: Event) -> float:
    """How far the losses of an event that has a distribution of them reach."""
    if isinstance(event, GaussianEvent | SubsampledGaussianEvent):
        return 1 / (2 * event.noise_multiplier**2) + _TAIL / event.noise_multiplier
    assert isinstance(event, PureEvent | SubsampledPureEvent)
    return event.pure_epsilon


def tradeoff(statement: Statement) -> tuple[tuple[float, float], ...] | None:
    """The largest true-positive rate at each false-positive rate, from (0, 0) to (1, 1).

    Of the composed events: for epsilon as :meth:`understudy.privacy.accountant.Composition.power` (the trade-off
    function of f-DP, Dong, Roth and Su 2022, or bounds on it), for secrets the highest posterior at each prior.

    Returns:
        None where it would take longer than :data:`MOST_SECONDS`.
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


@dataclass(frozen=True)
class Share:
    """A charge and its part of the budget, in [0, 1]; None where the noise was off."""

    charge: Charge
    share: float | None


@dataclass(frozen=True)
class Spending:
    """All charges of a run, and in which currency their shares add up to one."""

    shares: tuple[Share, ...]
    measure: str


def spending(statement: Statement) -> Spending:
    """Shares in what composes by addition: epsilon of pure events, mu^2 of Gaussian ones, else rho of zCDP."""
    events = [charge.event for charge in statement.charges]
    costs = [event.rho for event in events]
    measure = "rho of zero-concentrated differential privacy, which adds up (what sampling gains is left out)"
    if all(isinstance(event, PureEvent) for event in events):
        measure, costs = "epsilon, which adds up", [event.pure_epsilon for event in events]
    elif all(isinstance(event, GaussianEvent) for event in events):
        measure = "mu squared of Gaussian differential privacy, which adds up"
    whole = sum(costs)
    shares = (cost / whole if whole else None for cost in costs)
    return Spending(tuple(map(Share, statement.charges, shares)), measure)
