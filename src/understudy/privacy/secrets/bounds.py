"""How far one release lets an attacker come from a prior: the Poisson-binomial blow-up of SecPE, and its inverse.

Without a secret's records a release is N(0, sigma^2), with them K + N(0, sigma^2), K = how many of them are sampled.
The likelihood ratio grows with the value, so the best test that is wrong with probability p where the secret is absent
has the threshold q = sigma Phi^-1(1 - p), and is right with probability B(p) = sum_k P(K = k) Phi_bar((q - k) / sigma)
where it is present (Neyman and Pearson 1933; Wang et al. 2025, the reconstruction bound).

Nothing here is ever understated: bounds are rounded up, calibrated noise too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.privacy.events import Inclusion
from understudy.privacy.guarantee import normal_quantile
from understudy.privacy.search import edge, log_ratio

DISCRETE_LOSS = 2e-10
"""Noise is discrete, of sigma >= 16384 grid units (``SMALLEST_SIGMA``), where the mathematics is continuous. Such noise
is a *rounded* continuous Gaussian of variance sigma^2 - 1/12, hence of a noise multiplier that is smaller by
1 / (24 sigma^2) < 1.6e-10 of itself; and rounding commutes with the integer vectors of the records. Rounding is
post-processing, so every bound holds at that multiplier: in any number of dimensions, for K = 1 and K = m alike, and
for any composition."""

DISCRETE_EXCESS = 1e-7
"""What is left: at y sigmas the masses of the two differ by at most (y^4 + 10) / (2880 sigma^4) of themselves, in each
of d coordinates: together by less than 1e-8 up to d = 10^8 (where all y < 40: but for e^-780). As the trade-off
curve is concave, r grows by at most twice that for each release; the rest of this margin is for rounding in doubles."""

LEAST_NOISE = 1e-3
"""The smallest noise multiplier that is ever said to be enough: where a secret is sampled with a probability below
about r - p, (p, r) needs no noise at all, and the few that are sampled are given away."""

_PRECISION = 1e-9
_NOISE_CEILING = 1e9


@lru_cache(maxsize=8192)
def poisson_binomial(inclusion: Inclusion) -> NDArray[np.float64]:
    """P(K = 0), ..., P(K = n) for n independent records, in groups of (probability of being sampled, how many).

    Args:
        inclusion: probabilities in [0, 1].

    Returns:
        ``Float64[n + 1]``, read-only, every entry exact up to its own rounding: all terms are positive.

    Raises:
        ConfigError: if a probability is outside [0, 1] or a number of records negative.
    """
    drawn = np.ones(1)
    for rate, records in inclusion:
        if not 0 <= rate <= 1 or records < 0:
            raise ConfigError(
                f"Expected a probability of being sampled in [0, 1], got {rate} for {records} records.",
                "Give inclusion as (probability, number of records) pairs.",
            )
        power = np.array([1 - rate, rate])
        while records:
            drawn = np.convolve(drawn, power) if records & 1 else drawn
            records >>= 1
            power = np.convolve(power, power) if records else power
    drawn.setflags(write=False)
    return drawn


def blow_up(prior: float, noise_multiplier: float, drawn: NDArray[np.float64]) -> float:
    """B(p) of one release at sigma = ``noise_multiplier``, for P(K = k) = ``drawn[k]``, without its last margin."""
    from scipy.special import ndtr

    threshold = -normal_quantile(prior)
    shifts = np.arange(len(drawn)) / (noise_multiplier * (1 - DISCRETE_LOSS))
    return float(drawn @ ndtr(shifts - threshold))


def smallest(bound: Callable[[float], float], limit: float, *, low: float = 1.0) -> float:
    """Smallest noise multiplier with ``bound(noise multiplier) <= limit``, rounded up.

    Args:
        bound: falls with the noise multiplier.
        limit: in (0, 1).
        low: where to begin.

    Raises:
        ConfigError: if no amount of noise is enough.
    """
    noise = edge(
        lambda noise: log_ratio(bound(noise), limit * (1 - _PRECISION)),
        near=low,
        safe=_NOISE_CEILING,
        unsafe=LEAST_NOISE,
        tolerance=_PRECISION,
    )
    if noise is None:
        raise ConfigError(
            f"No noise keeps the posterior at {limit:g}.",
            "Choose a posterior that is further above the prior, for example ten times the prior.",
        )
    return noise
