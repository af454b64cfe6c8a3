"""Represent privacy guarantees as immutable values, and convert between them.

All guarantees here are for the neighbouring relation "add or remove one unit"
(:mod:`understudy.privacy.unit`). The formulas:

* pure DP: ``epsilon``-DP, delta = 0.
* zCDP (Bun and Steinke 2016): pure ``epsilon`` implies ``rho = epsilon^2 / 2``
  (their Proposition 1.4); ``rho`` implies ``(epsilon, delta)`` with
  ``delta = inf_a exp((a-1)(a rho - epsilon)) / (a-1) * (1 - 1/a)^a``
  (Canonne, Kamath and Steinke 2020, Corollary 13).
* GDP (Dong, Roth and Su 2022): ``mu``-GDP is exactly the curve
  ``delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2)``
  (their Corollary 2.13, the analytic Gaussian mechanism of Balle and Wang 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Never

from understudy.base.errors import ConfigError
from understudy.base.lazy import special
from understudy.privacy.exact import (
    CHANCES,
    DELTAS,
    EPSILONS,
    NONNEGATIVE,
    POSITIVE,
    PROBABILITIES,
    PROBABILITIES_OR_ZERO,
    Number,
    as_typed,
    exact,
)
from understudy.privacy.search import to_the_last_bit

_NORMAL = NormalDist()
EPSILON_CEILING = 1e6  # larger epsilons mean nothing; conversions report infinity


@dataclass(frozen=True)
class ZCDP:
    """``rho``-zero-concentrated differential privacy.

    >>> round(ZCDP(0.1).epsilon(1e-6), 3)
    2.142
    """

    rho: float

    def __post_init__(self) -> None:
        NONNEGATIVE.of(rho=self.rho)

    def delta(self, epsilon: float) -> float:
        return _zcdp_delta(self.rho, epsilon)

    def epsilon(self, delta: float) -> float:
        return _smallest_epsilon(self.delta, delta) if self.rho > 0 else 0.0


@dataclass(frozen=True)
class GDP:
    """``mu``-Gaussian differential privacy.

    >>> round(GDP(1.0).epsilon(1e-6), 3)
    4.887
    """

    mu: float

    def __post_init__(self) -> None:
        NONNEGATIVE.of(mu=self.mu)

    def delta(self, epsilon: float) -> float:
        return _gdp_delta(self.mu, epsilon)

    def epsilon(self, delta: float) -> float:
        return _smallest_epsilon(self.delta, delta) if self.mu > 0 else 0.0


@dataclass(frozen=True)
class Budget:
    """The ``(epsilon, delta)`` that a run may spend, kept exact.

    Args:
        epsilon: from 1e-9 to 100,000. Numbers are read as typed (``Budget(0.1, "1e-6")`` is exactly 1/10).
        delta: 0 for pure differential privacy, or from 1e-14 to 0.5. If it is None, a run derives it from its
            ``expected_records``; any other use raises ConfigError.

    >>> print(Budget(0.1, "1e-6"))
    (epsilon=0.1, delta=1e-06)
    >>> Budget(3, 0).to_json()
    {'epsilon': '3', 'delta': '0'}
    """

    epsilon: Fraction
    delta: Fraction

    def __init__(self, epsilon: Number, delta: Number | None = None) -> None:
        object.__setattr__(self, "epsilon", EPSILONS.of(epsilon=epsilon))
        if delta is not None:
            object.__setattr__(self, "delta", DELTAS.of(delta=delta))

    def __getattr__(self, name: str) -> Never:
        """Raise ConfigError if ``delta`` of a budget without one is read."""
        if name != "delta":
            raise AttributeError(name)
        raise ConfigError(
            "delta is missing.",
            "Give --delta, such as 1e-6; or give a run --expected-records N (your estimate), which sets it.",
        )

    def __repr__(self) -> str:
        return f"Budget({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @classmethod
    def of(cls, epsilon: Fraction, delta: Fraction) -> Budget:
        """Make a remaining, summed or stored budget: any epsilon above 0 and delta in [0, 1), beyond a user's ranges.

        Raises ConfigError if a value is outside these ranges.
        """
        made = object.__new__(cls)
        object.__setattr__(made, "epsilon", POSITIVE.of(epsilon=epsilon))
        object.__setattr__(made, "delta", PROBABILITIES_OR_ZERO.of(delta=delta))
        return made

    def to_json(self) -> dict[str, str]:
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}

    @classmethod
    def from_json(cls, fields: dict[str, str]) -> Budget:
        """Read what :meth:`to_json` made. Raises ValueError if a field is not a number."""
        return cls.of(exact(fields["epsilon"]), exact(fields["delta"]))

    def __str__(self) -> str:
        return f"({', '.join(f'{name}={as_typed(value)}' for name, value in vars(self).items())})"


@dataclass(frozen=True)
class SecretBudget:
    """``(p, r)``: an attacker who guesses a secret with probability p before a release does so with at most r after.

    More exactly: a test that reports an absent secret with probability p reports a present one with probability at most
    r. The probabilities are over the noise; the odds after one single outcome are not bounded. Kept exact.

    Args:
        prior: p, from 1e-100, no default.
        posterior: r, above p and at most 0.999999999, no default.

    >>> SecretBudget("1e-3", "0.01").posterior
    Fraction(1, 100)
    """

    prior: Fraction
    posterior: Fraction

    def __init__(self, prior: Number | None, posterior: Number | None) -> None:
        object.__setattr__(self, "prior", CHANCES.of(secret_prior=prior))
        object.__setattr__(self, "posterior", CHANCES.of(secret_posterior=posterior))
        self._check()

    @classmethod
    def of(cls, prior: Fraction, posterior: Fraction) -> SecretBudget:
        """Make a summed or stored budget: any 0 < prior < posterior < 1, beyond the ranges allowed to users.

        Raises ConfigError if the values are not in this order.
        """
        made = object.__new__(cls)
        object.__setattr__(made, "prior", POSITIVE.of(secret_prior=prior))
        object.__setattr__(made, "posterior", POSITIVE.of(secret_posterior=posterior))
        made._check()
        return made

    def _check(self) -> None:
        if not self.prior < self.posterior < 1:
            raise ConfigError(
                f"Expected secret_prior < secret_posterior < 1, got {as_typed(self.prior)} and "
                f"{as_typed(self.posterior)}.",
                "The posterior is how often an attacker may guess correctly, for example ten times the prior.",
            )

    @property
    def mu(self) -> float:
        """Return the mu at which a mu-GDP release (for a secret) gives (p, r): Phi^-1(1 - p) - Phi^-1(1 - r)."""
        return normal_quantile(float(self.posterior)) - normal_quantile(float(self.prior))

    def to_json(self) -> dict[str, str]:
        return {"prior": str(self.prior), "posterior": str(self.posterior)}

    @classmethod
    def from_json(cls, fields: dict[str, str]) -> SecretBudget:
        """Read what :meth:`to_json` made. Raises ValueError if a field is not a number."""
        return cls.of(exact(fields["prior"]), exact(fields["posterior"]))

    def __str__(self) -> str:
        return f"(p={as_typed(self.prior)}, r={as_typed(self.posterior)})"


def phi_bar(x: float) -> float:
    """Return the upper tail of the standard normal, accurate for large values.

    >>> phi_bar(0.0)
    0.5
    """
    return 0.5 * math.erfc(x / math.sqrt(2))


def normal_quantile(probability: float) -> float:
    return _NORMAL.inv_cdf(probability)


def _gdp_delta(mu: float, epsilon: float) -> float:
    """Return an upper bound on delta, rounding included: some 1e-9 of delta at epsilon 1e-3, 1e-3 at 1e-9."""
    if mu == 0 or (first := phi_bar(epsilon / mu - mu / 2)) == 0:
        return 0.0
    farther = epsilon / mu + mu / 2
    rounding = _ROUNDING * (farther + 2) * (farther + 2) * first
    if epsilon > 700:  # the second term only lowers delta: leaving it out is safe
        return min(1.0, first + rounding)
    tail = phi_bar(farther)
    if tail < _SMALLEST_TAIL:
        second, rounding = math.exp(epsilon + float(special.log_ndtr(-farther))), rounding + _OF_LOGARITHMS * first
    else:
        second = math.exp(epsilon) * tail
    return min(1.0, max(0.0, first - second) + rounding)


_SMALLEST_TAIL = 1e-290  # below it doubles lose digits, so logarithms are used
_OF_LOGARITHMS = 1e-11
"""A generous bound on the rounding of two logarithms whose sum is below 0, each less than 2000 in size."""
_ROUNDING = 1e-15
"""Nine halves of a double's last digit. Both terms are at most ``first``. An argument is rounded by at most 4 u x (u is
half a last digit, x the larger argument), which moves its tail by the (1 + x)-fold. erfc, exp and combining them add
some u: in total less than 9 u (x + 2)^2."""


def _zcdp_delta(rho: float, epsilon: float) -> float:
    """Return delta by Canonne, Kamath and Steinke 2020, Corollary 13, minimised over the order by golden section."""
    if rho == 0:
        return 0.0

    def log_delta(order: float) -> float:
        return (order - 1) * (order * rho - epsilon) - math.log(order - 1) + order * math.log1p(-1 / order)

    low, high = 1 + 1e-9, max(2.0, (epsilon + 1) / (2 * rho) + 2)
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        before = low, high
        if log_delta(left) < log_delta(right):
            high = right
        else:
            low = left
        if (low, high) == before:  # at double precision: no later step would move either
            break
    return min(1.0, math.exp(min(0.0, log_delta((low + high) / 2))))


def _smallest_epsilon(delta_of: Callable[[float], float], delta: float) -> float:
    """Return the smallest epsilon with ``delta_of(epsilon) <= delta``, from above (never understated)."""
    PROBABILITIES_OR_ZERO.of(delta=delta)
    if delta == 0:
        return math.inf
    if delta_of(0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(high) > delta:
        high *= 2
        if high > EPSILON_CEILING:
            return math.inf
    return to_the_last_bit(lambda epsilon: delta_of(epsilon) <= delta, holds_at=high, fails_at=0.0)


@lru_cache(maxsize=4096)
def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return z(epsilon, delta): the smallest noise multiplier of one Gaussian release that is (epsilon, delta)-DP.

    The analytic Gaussian mechanism (Balle and Wang 2018). z(1, 1e-6) = 4.22468, z(6, 1e-6) = 0.83591.
    """
    PROBABILITIES.of(delta=delta)
    high = 1.0
    while _gdp_delta(1 / high, epsilon) > delta:
        high *= 2
    return to_the_last_bit(lambda noise: _gdp_delta(1 / noise, epsilon) <= delta, holds_at=high, fails_at=1e-3)
