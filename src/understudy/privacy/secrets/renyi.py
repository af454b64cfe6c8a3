"""Renyi divergences of releases with and without a secret: what adds up over runs that are chosen adaptively.

By data processing on the test itself, one that is wrong with probability p is right with r only if
r^a p^(1-a) <= e^((a-1) D_a), hence r <= exp((a-1)/a (D_a - ln(1/p))) (van Erven and Harremoes 2014, Theorem 9).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.privacy.events import Event, GaussianEvent, MixtureEvent
from understudy.privacy.secrets.bounds import poisson_binomial

ORDERS = np.array([*range(2, 33), *range(36, 65, 4), *range(72, 129, 8), 160, 192, 256])
"""The orders a at which divergences are composed: whole numbers, fixed for ever."""

_REACH = 12.0  # in sigmas; what lies beyond is e^-75 of the whole
_MARGIN = 1e-9


@lru_cache(maxsize=4096)
def divergences(event: Event) -> NDArray[np.float64]:
    """D_a of one event at :data:`ORDERS`, present against absent, the highest of all its secrets; never understated.

    At whole orders E[(present / absent)^a] of a mixture is a sum over a-tuples of its parts, each with the factor
    exp(<v, w> / sigma^2) for every pair of their shifts: highest where all shifts point one way, and the same for
    discrete noise and integer shifts, whose sums over the grid do not change when it moves. So nothing is added for
    discreteness. The integral is a sum of normal densities, which the trapezoidal rule at steps of sigma / 2 gives up
    to e^-78 of itself.

    Raises:
        ConfigError: if the event is neither Gaussian nor a mixture of Gaussians.
    """
    event = require_gaussian(event)
    if isinstance(event, GaussianEvent):
        return np.asarray(ORDERS * event.rho * (1 + _MARGIN))
    secrets = [_mixture(event.noise_multiplier, poisson_binomial(secret)) for secret in set(event.inclusion)]
    highest = np.max([np.zeros(len(ORDERS)), *secrets], axis=0)
    return np.asarray(highest * (1 + _MARGIN) + _MARGIN, dtype=np.float64)


def require_gaussian(event: Event) -> GaussianEvent | MixtureEvent:
    """``event``, of which secret protection can be computed.

    Raises:
        ConfigError: if it is neither Gaussian nor a mixture of Gaussians.
    """
    if not isinstance(event, GaussianEvent | MixtureEvent):
        raise ConfigError(
            f"Secret protection needs Gaussian noise, not: {event}.",
            "Choose gaussian noise, or give --epsilon and --delta instead of --secret-prior and --secret-posterior.",
        )
    return event


def posteriors(total: NDArray[np.float64], prior: float) -> NDArray[np.float64]:
    """The bounds on r, at most 1, that divergences ``total`` at :data:`ORDERS` mean; each holds."""
    exponents = (ORDERS - 1) / ORDERS * (total + math.log(prior))
    return np.asarray(np.exp(np.minimum(exponents, 0)))


def order_for(first: NDArray[np.float64], prior: float, posterior: float) -> int:
    """Index of the order at which most runs of divergences ``first`` bring ``prior`` to no more than ``posterior``."""
    room = math.log(1 / prior) - ORDERS / (ORDERS - 1) * math.log(1 / posterior)
    return int(np.argmax(room / (first + _MARGIN * ORDERS)))


def _mixture(noise_multiplier: float, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    """D_a of K + N(0, sigma^2) against N(0, sigma^2) at all orders, on the line in steps of half a sigma."""
    from scipy.special import logsumexp

    records = np.flatnonzero(drawn)
    shifts = records / noise_multiplier
    x = np.arange(-_REACH, ORDERS[-1] * shifts[-1] + _REACH, 0.5)
    loss = np.full(len(x), -np.inf)
    for shift, chance in zip(shifts, drawn[records], strict=True):
        loss = np.logaddexp(loss, math.log(chance) + shift * (x - shift / 2))
    density = -(x**2) / 2 - math.log(2 * math.sqrt(2 * math.pi))
    until = np.searchsorted(x, ORDERS * shifts[-1] + _REACH)
    moments = [logsumexp(density[:end] + order * loss[:end]) for order, end in zip(ORDERS, until, strict=True)]
    return np.asarray(moments / (ORDERS - 1))
