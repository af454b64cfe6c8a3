"""Where the budget went: each charge's share of it."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.privacy.events import Event, GaussianEvent, PureEvent
from understudy.privacy.plan import Charge
from understudy.statement import Statement


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
    if all(isinstance(event, PureEvent) for event in events):
        measure, costs = "epsilon, which adds up", [event.pure_epsilon for event in events]
    else:
        costs = [event.rho for event in events]
        measure = _measure(events)
    whole = sum(costs)
    return Spending(
        tuple(
            Share(charge, cost / whole if whole else None)
            for charge, cost in zip(statement.charges, costs, strict=True)
        ),
        measure,
    )


def _measure(events: list[Event]) -> str:
    if all(isinstance(event, GaussianEvent) for event in events):
        return "mu squared of Gaussian differential privacy, which adds up"
    return "rho of zero-concentrated differential privacy, which adds up (what drawing a sample gains is left out)"
