"""A mechanism's promise, and lower bounds on its loss, from how often a test for one unit's presence errs.

A test says "present" if a score is above a threshold. It calls a share FP of the runs without the unit present, and a
share FN of the runs with it absent. Clopper and Pearson (1934) give limits that the true shares exceed only with a
stated probability, for any mechanism; both limits together bound the mechanism's loss from below:

* (epsilon, delta)-DP allows FP and FN only where e^epsilon FP + FN >= 1 - delta and FP + e^epsilon FN >= 1 - delta
  (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015, Theorem 2.1), so both directions follow from one test;
* mu-GDP allows them only where mu >= Phi^-1(1 - FP) - Phi^-1(FN) (Dong, Roth and Su 2022; Nasr et al. 2023);
* rho-zCDP only where rho >= D_a / a at every order a > 1, D_a the Renyi divergence of the test's answer with the unit
  from that without it, or the other way round: the answer is post-processing (Bun and Steinke 2016, Lemma 2.2);
* (p, r) for secrets allows a test that is wrong with probability p to be right with probability r at most.

The threshold is chosen on other runs than those that are counted, so the limits hold for it as for any fixed one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.base.lazy import special, stats
from understudy.privacy.accountant import Composition
from understudy.privacy.events import (
    Event,
    GaussianEvent,
    MixtureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
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

Floats = NDArray[np.float64]
_CAUTION = 1e-3
"""Alpha of the limits by which a threshold is chosen, against lucky ones far out in a tail. No bound depends on it."""
_NEARLY_ONE = 1 - 2**-50
CHOOSING = 4
"""One run in this many is used to choose a threshold; the others are counted."""


def upper_limit(found: ArrayLike, trials: int, *, alpha: float) -> Floats:
    """Return the Clopper-Pearson upper limit of a share: too low with probability at most ``alpha``.

    Args:
        found: of ``trials``; may be fractional for expectations.
        trials: 1 or more.
    """
    found = np.asarray(found, dtype=np.float64)
    return np.where(found >= trials, 1.0, stats.beta.isf(alpha, found + 1, np.maximum(trials - found, 1e-300)))


@dataclass(frozen=True)
class ErrorLimits:
    """Upper confidence limits of a test's two error rates; numbers, or arrays for many tests at once.

    Args:
        false_positive: of the share of runs without the unit that are called present, in (0, 1].
        false_negative: of the share of runs with the unit that are not, in (0, 1].
    """

    false_positive: Floats
    false_negative: Floats

    def epsilon(self, delta: float) -> Floats:
        """Return the least epsilon at ``delta`` that allows these errors."""
        with np.errstate(divide="ignore", invalid="ignore"):
            forth = np.log(np.maximum(1 - delta - self.false_negative, 0) / self.false_positive)
            back = np.log(np.maximum(1 - delta - self.false_positive, 0) / self.false_negative)
        return np.asarray(np.maximum(np.maximum(forth, back), 0.0))

    def mu(self, rate: float = 1.0) -> Floats:
        """Return the least mu of Gaussian differential privacy that allows them.

        Args:
            rate: the known probability that the unit is sampled: with it the scores are (1 - rate) N(0, 1) +
                rate N(mu, 1), without it N(0, 1).
        """
        right = (1 - self.false_negative - (1 - rate) * self.false_positive) / rate
        return np.asarray(
            np.maximum(special.ndtri(np.clip(right, 0, _NEARLY_ONE)) - special.ndtri(self.false_positive), 0.0)
        )

    @property
    def rho(self) -> Floats:
        """Return the least rho of zero-concentrated differential privacy that allows them."""
        here, there = 1 - self.false_negative, self.false_positive
        both = [_divergence_by_order(here, there), _divergence_by_order(there, here)]
        return np.asarray(np.where(here > there, np.maximum(*both), 0.0))

    def posterior(self, prior: float) -> Floats:
        """Return how often, at least, a test that is wrong with probability ``prior`` is right.

        This test is made more careful (it randomly withholds some answers) or bolder (it says
        "present" at random, too) until it is wrong with that probability.
        """
        careful = (1 - self.false_negative) * np.minimum(1.0, prior / self.false_positive)
        share = np.maximum(prior - self.false_positive, 0) / np.maximum(1 - self.false_positive, 1e-300)
        return np.asarray(np.maximum(careful + share * self.false_negative, prior))


_ORDERS = 1 + np.geomspace(1e-3, 100, 60)


def _divergence_by_order(here: Floats, there: Floats) -> Floats:
    """Return max over orders a of D_a / a, of a coin with probability ``here`` from one with ``there``."""
    here, there = np.asarray(here)[..., None], np.asarray(there)[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moments = here**_ORDERS * there ** (1 - _ORDERS) + (1 - here) ** _ORDERS * (1 - there) ** (1 - _ORDERS)
        found = np.log(moments) / (_ORDERS - 1) / _ORDERS
    return np.asarray(np.max(np.where(np.isfinite(found), found, 0.0), axis=-1))


Bound = Callable[[ErrorLimits], Floats]


def best_bound(absent: Floats, present: Floats, bound: Bound, *, alpha: float) -> float:
    """Return ``bound`` of the threshold test chosen on the first quarter of the scores, counted on the others.

    Args:
        absent: ``Float64[runs]``, one score a run without the unit.
        present: ``Float64[runs]``, with it; higher if the unit is more visible.
        bound: grows as errors become rarer.
        alpha: largest probability that the answer is too high: half of it for either kind of error.
    """
    first = len(absent) // CHOOSING
    thresholds = np.unique(np.concatenate([absent[:first], present[:first]]))
    trial = _limits(absent[:first], present[:first], thresholds, alpha=_CAUTION)
    threshold = thresholds[np.argmax(bound(trial))]
    return float(bound(_limits(absent[first:], present[first:], threshold, alpha=alpha)))


def counted(runs: int) -> int:
    """Return how many of ``runs`` are used to count errors, rather than to choose the threshold."""
    return runs - runs // CHOOSING


def limits(false_positives: ArrayLike, false_negatives: ArrayLike, trials: int, *, alpha: float) -> ErrorLimits:
    """Return the confidence limits of both error rates, from error counts in ``trials`` runs each; ``alpha`` is the
    probability that one is too low."""
    return ErrorLimits(
        upper_limit(false_positives, trials, alpha=alpha / 2), upper_limit(false_negatives, trials, alpha=alpha / 2)
    )


def _limits(absent: Floats, present: Floats, threshold: ArrayLike, *, alpha: float) -> ErrorLimits:
    above = len(absent) - np.searchsorted(np.sort(absent), threshold, side="right")
    below = np.searchsorted(np.sort(present), threshold, side="right")
    return limits(above, below, len(absent), alpha=alpha)


Curve = Literal["Gaussian", "sampled Gaussian", "zCDP"]


@dataclass(frozen=True)
class Claim:
    """A promised number, which a lower bound above it refutes: epsilon at a delta, or a secret's highest posterior.

    Args:
        events: of all that is released.
        delta: of the epsilon; 0 if pure differential privacy is promised.
        prior: of the posterior; None if an epsilon is promised.
    """

    events: tuple[Event, ...]
    delta: float = 0.0
    prior: float | None = None

    @property
    def words(self) -> str:
        return f"epsilon at delta {self.delta:g}" if self.prior is None else f"posterior at prior {self.prior:g}"

    @property
    def value(self) -> float:
        return self._composition.epsilon(self.delta) if self.prior is None else self.power(self.prior)

    @property
    def curve(self) -> Curve | None:
        """Return the kind of curve that the events promise besides their number (mu of a Gaussian, or rho); None if
        there is none."""
        if all(isinstance(event, ZCDPEvent) for event in self.events):
            return "zCDP"
        if all(isinstance(event, GaussianEvent) or _is_certain(event) for event in self.events):
            return "Gaussian"
        first = self.events[0]
        alone = isinstance(first, SubsampledGaussianEvent) and first.count == len(self.events) == 1
        return "sampled Gaussian" if alone else None

    def bound(self, limits: ErrorLimits) -> Floats:
        """Return the least value of the promised number at which a test may have error rates within these limits."""
        return limits.epsilon(self.delta) if self.prior is None else limits.posterior(self.prior)

    def along_curve(self, limits: ErrorLimits) -> Floats:
        """Return the least mu, or rho, at which a test may have error rates within these limits."""
        if self.curve == "zCDP":
            return limits.rho
        missed = np.minimum(limits.false_negative + self._composition.failure, 1.0)
        return ErrorLimits(limits.false_positive, missed).mu(self._rate)

    def of_curve(self, parameter: float) -> float:
        """Convert a mu, or rho, to the promised number (epsilon at a delta, or a posterior)."""
        if self.prior is not None:
            return phi_bar(-normal_quantile(self.prior) - parameter)
        if self.curve == "zCDP":
            return ZCDP(parameter).epsilon(self.delta)
        # Balle, Barthe and Gaboardi 2018, Theorem 2
        delta = (self.delta - self._composition.failure) / self._rate
        return math.log1p(self._rate * math.expm1(GDP(parameter).epsilon(delta)))

    def power(self, false_positive: float) -> float:
        """Return the largest true-positive rate that the promise allows at this false-positive rate."""
        if self.prior is not None:
            from understudy.privacy.secrets.composition import posterior

            return posterior(self.events, false_positive)
        if self.curve is None:
            return self._composition.power(false_positive)
        rho = math.fsum(event.rho for event in self.events)
        if self.curve == "zCDP":  # how much the test's answer may reveal of the unit at every order

            def misses_too_few(missed: float) -> bool:
                return bool(ErrorLimits(np.array(false_positive), np.array(missed)).rho > rho)

            return 1 - to_the_last_bit(misses_too_few, holds_at=0.0, fails_at=1 - false_positive)
        sampled = phi_bar(-normal_quantile(false_positive) - math.sqrt(2 * rho))
        return min(1.0, false_positive + self._rate * (sampled - false_positive) + self._composition.failure)

    @cached_property
    def _composition(self) -> Composition:
        return Composition(self.events)

    @property
    def _rate(self) -> float:
        event = self.events[0]
        return event.rate if isinstance(event, SubsampledGaussianEvent) else 1.0


def _is_certain(event: Event) -> bool:
    if isinstance(event, MixtureEvent):
        return all(rate == 1 for secret in event.inclusion for rate, _ in secret)
    return isinstance(event, SubsampledGaussianEvent) and event.rate == 1


PRIOR = 0.05


def secret_budget(budget: Budget) -> SecretBudget:
    """Return (p, r) with p = :data:`PRIOR` and the r to which one Gaussian (epsilon, delta) release would raise it."""
    mu = 1 / gaussian_noise_multiplier(float(budget.epsilon), float(budget.delta))
    return SecretBudget(PRIOR, phi_bar(-normal_quantile(PRIOR) - mu))
