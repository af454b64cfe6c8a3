"""About how many seconds on one core the curve of a statement takes, by the statement, which may be anybody's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from understudy.privacy.events import (
    Event,
    GaussianEvent,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
    SubsampledPureEvent,
    ZCDPEvent,
)

MOST_SECONDS = 60.0
"""Beyond it a page has no curve; what our own runs state takes far less."""
_GRID = 2e4  # points for each unit of loss, on both sides
_TAIL = 8.0  # standard deviations of a privacy loss that are kept
_A_POINT = 2e-6
_AHEAD = 4  # a release alone is as much work as being composed with so many
_SPLITS = 20  # groups of secrets that are tried, about
_A_SECRET, _A_PAIR, _A_CELL = 4e-5, 1e-10, 1e-3


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
        if len(events) > 1:  # composed on a grid, for every number of records that is likely drawn
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
