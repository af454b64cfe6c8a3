"""What a mechanism promises, as what an audit can find: a number, and how well any test may do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from understudy.audit.mechanisms.bounds import ErrorLimits, Floats
from understudy.privacy.accountant import Composition
from understudy.privacy.events import Event, GaussianEvent, MixtureEvent, SubsampledGaussianEvent, ZCDPEvent
from understudy.privacy.guarantee import (
    GDP,
    ZCDP,
    Budget,
    SecretBudget,
    gaussian_noise_multiplier,
    normal_quantile,
    phi_bar,
)
from understudy.privacy.search import to_the_last_bit

Curve = Literal["Gaussian", "sampled Gaussian", "zCDP"]


class Claim(Protocol):
    """A promised number, which a lower bound above it refutes."""

    @property
    def words(self) -> str:
        """What the number is, such as ``epsilon at delta 1e-06``."""
        ...

    @property
    def value(self) -> float: ...

    @property
    def curve(self) -> Curve | None:
        """What else is promised, and gives the number: mu of a Gaussian (of sampled units, too) or rho; else None."""
        ...

    def bound(self, limits: ErrorLimits) -> Floats:
        """The least value that allows a test to err as seldom as this."""
        ...

    def along_curve(self, limits: ErrorLimits) -> Floats:
        """The least mu, or rho, that does."""
        ...

    def of_curve(self, parameter: float) -> float:
        """The value of a mechanism of which this mu, or rho, is all that is known."""
        ...

    def power(self, false_positive: float) -> float:
        """How often a test that is wrong so often may be right, at most."""
        ...


@dataclass(frozen=True)
class EpsilonClaim:
    """epsilon at ``delta`` of all that is released; delta is 0 where pure differential privacy is promised."""

    composition: Composition
    delta: float

    @property
    def words(self) -> str:
        return f"epsilon at delta {self.delta:g}"

    @property
    def value(self) -> float:
        return self.composition.epsilon(self.delta)

    @property
    def curve(self) -> Curve | None:
        events = self.composition.events
        if all(isinstance(event, ZCDPEvent) for event in events):
            return "zCDP"
        if all(isinstance(event, GaussianEvent | SubsampledGaussianEvent) and _rate(event) == 1 for event in events):
            return "Gaussian"
        alone = isinstance(events[0], SubsampledGaussianEvent) and events[0].count == len(events) == 1
        return "sampled Gaussian" if alone else None

    def bound(self, limits: ErrorLimits) -> Floats:
        return limits.epsilon(self.delta)

    def along_curve(self, limits: ErrorLimits) -> Floats:
        return limits.rho if self.curve == "zCDP" else limits.mu(_rate(self.composition.events[0]))

    def of_curve(self, parameter: float) -> float:
        if self.curve == "zCDP":
            return ZCDP(parameter).epsilon(self.delta)
        rate = _rate(self.composition.events[0])  # Balle, Barthe and Gaboardi 2018, Theorem 2
        return math.log1p(rate * math.expm1(GDP(parameter).epsilon(self.delta / rate)))

    def power(self, false_positive: float) -> float:
        if self.curve is None:
            return self.composition.power(false_positive)
        events = self.composition.events
        rho = math.fsum(event.rho for event in events)
        if self.curve == "zCDP":
            return _zcdp_power(rho, false_positive)
        sampled = phi_bar(-normal_quantile(false_positive) - math.sqrt(2 * rho))
        return false_positive + _rate(events[0]) * (sampled - false_positive)


@dataclass(frozen=True)
class PosteriorClaim:
    """The most that a test for a secret is right if it is wrong with probability ``prior``."""

    events: Sequence[Event]
    prior: float

    @property
    def words(self) -> str:
        return f"posterior at prior {self.prior:g}"

    @property
    def value(self) -> float:
        return self.power(self.prior)

    @property
    def curve(self) -> Curve | None:
        return "Gaussian" if all(isinstance(event, GaussianEvent) or _certain(event) for event in self.events) else None

    def bound(self, limits: ErrorLimits) -> Floats:
        return limits.posterior(self.prior)

    def along_curve(self, limits: ErrorLimits) -> Floats:
        return limits.mu()

    def of_curve(self, parameter: float) -> float:
        return phi_bar(-normal_quantile(self.prior) - parameter)

    def power(self, false_positive: float) -> float:
        from understudy.privacy.secrets.composition import posterior

        return posterior(self.events, false_positive)


def _rate(event: Event) -> float:
    """With which a unit is sampled."""
    return event.rate if isinstance(event, SubsampledGaussianEvent) else 1.0


def _zcdp_power(rho: float, false_positive: float) -> float:
    """What the test's answer may tell of the unit at every order."""

    def too_few(missed: float) -> bool:
        return bool(ErrorLimits(np.array(false_positive), np.array(missed)).rho > rho)

    return 1 - to_the_last_bit(too_few, holds_at=0.0, fails_at=1 - false_positive)


def _certain(event: Event) -> bool:
    """Whether all records of every secret are sampled for certain: then there is nothing mixed about it."""
    return isinstance(event, MixtureEvent) and all(rate == 1 for secret in event.inclusion for rate, _ in secret)


PRIOR = 0.05


def secret_budget(budget: Budget) -> SecretBudget:
    """(p, r) with p = :data:`PRIOR` and the r that one Gaussian release with (epsilon, delta) would raise it to."""
    mu = 1 / gaussian_noise_multiplier(float(budget.epsilon), float(budget.delta))
    return SecretBudget(PRIOR, phi_bar(-normal_quantile(PRIOR) - mu))
