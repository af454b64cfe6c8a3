"""Compose the mechanisms' events, and keep a dataset within its cap.

Within one run the plan is fixed before any private record is read, so its events
compose by any sound accountant: Gaussian events in closed form (n of them are
mu-GDP with mu = sqrt(sum 1/multiplier^2)), pure events by their sum, mixtures by
privacy loss distributions, anything else in closed form by the sum of their zCDP rho. Across runs events are chosen
adaptively: the stated (epsilon, delta) add up, or by option Renyi DP is composed;
privacy loss distributions are never composed over runs.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.events import (
    Event,
    GaussianEvent,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
    SubsampledPureEvent,
    ZCDPEvent,
    epsilon_of,
)
from understudy.privacy.exact import as_typed
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

CrossRunRule = Literal["basic", "rdp"]

_POWER_DELTAS = (1e-2, 1e-3, 1e-4, 1e-6)
_EXPONENT = 700.0
SMALLEST_DELTA = 1e-15
"""Below it, rounding loses the tails of the normal distribution."""
DISCRETE_EXCESS = 2e-7
"""An upper bound on the relative excess of delta of one discrete Gaussian over the continuous one, on the coarsest grid
that :mod:`understudy.privacy.mechanisms` allows: a (a + mu) / (24 sigma^2) with a = epsilon/mu - mu/2."""


@dataclass(frozen=True)
class Composition:
    """Compose a fixed list of events sequentially.

    >>> round(Composition((GaussianEvent(4.22468),)).epsilon(1e-6), 5)
    1.0
    """

    events: tuple[Event, ...]

    @property
    def pure_epsilon(self) -> float:
        return math.fsum(event.pure_epsilon for event in self.events)

    @property
    def failure(self) -> float:
        """Return an upper bound on the probability that the other statements about the composition fail."""
        return math.fsum(event.failure for event in self.events) * (1 + 1e-15)

    @property
    def mu(self) -> float | None:
        """Return mu of the composition (except for its :attr:`failure`) if every event is Gaussian; else None."""
        if not all(isinstance(event, GaussianEvent) for event in self.events):
            return None
        return math.sqrt(math.fsum(2 * event.rho for event in self.events))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon that these events are known to imply at ``delta`` (infinity if there is none)."""
        if not self.events:
            return 0.0
        pure = self.pure_epsilon
        if delta == 0:
            return pure
        if (delta := delta - self.failure) <= 0:
            return math.inf
        delta /= 1 + DISCRETE_EXCESS * sum(map(_gaussian_releases, self.events))
        if self.mu is not None:
            return GDP(self.mu).epsilon(delta)
        return min(pure, _numerical_epsilon(self.events, delta))

    def power(self, false_alarms: float) -> float:
        """Return the largest true-positive rate of any test for one unit's presence at this false-positive rate.

        This is the trade-off curve of f-DP (Dong, Roth and Su 2022). It is exact for Gaussian events. For others it is
        the best of the bounds e^epsilon x + delta and 1 - e^-epsilon (1 - delta - x) (Wasserman and Zhou 2010) over
        several deltas.
        """
        if self.mu is not None:
            return min(1.0, phi_bar(-normal_quantile(false_alarms) - self.mu) + self.failure)
        bounds = [1.0]
        for epsilon, delta in self._points:
            if epsilon < _EXPONENT:
                bounds.append(math.exp(epsilon) * false_alarms + delta)
                bounds.append(1 - math.exp(-epsilon) * (1 - delta - false_alarms))
        return min(bounds)

    @functools.cached_property
    def _points(self) -> tuple[tuple[float, float], ...]:
        """Return (epsilon, delta) at several deltas: one numerical composition each, cached for all rates."""
        return tuple((self.epsilon(delta), delta) for delta in (0.0, *_POWER_DELTAS))


@functools.lru_cache(maxsize=32)
def _numerical_epsilon(events: tuple[Event, ...], delta: float) -> float:
    """Return epsilon by privacy loss distributions if every event has one on a grid of workable size, else by zCDP.

    A plan, its statement and its ledger entry need the same value, which takes most of a second to compute.
    """
    if any(isinstance(event, ZCDPEvent | MixtureEvent) or _of_one(event) > _LARGEST for event in events):
        return ZCDP(math.fsum(event.rho for event in events)).epsilon(delta)
    return epsilon_of(_losses(events), delta)


@functools.lru_cache(maxsize=2)
def _losses(events: tuple[Event, ...]) -> Any:
    """Return the composed privacy loss distribution, cached for all deltas."""
    losses: list[Any] = [event.to_pld() for event in events]
    return functools.reduce(lambda a, b: a.compose(b), losses)


_LARGEST = 300.0
"""Largest pure epsilon of one release whose losses are put on a grid: e^epsilon overflows at 709."""


def _of_one(event: Event) -> float:
    if isinstance(event, SubsampledPureEvent):
        return event.each
    return event.epsilon if isinstance(event, PureEvent) else 0.0


def _gaussian_releases(event: Event) -> int:
    """Return how many discrete Gaussians the event contains.

    Sampling does not enlarge the factor by which a discrete Gaussian exceeds the continuous one: delta at epsilon of a
    mixture (1-q) Q + q P from Q, or of Q from it, is a constant times delta of P from Q, or of Q from P, at a different
    epsilon (q is the rate of the Poisson sample; Balle, Barthe and Gaboardi 2018, Theorem 2).
    """
    if isinstance(event, SubsampledGaussianEvent):
        return event.count
    return int(isinstance(event, GaussianEvent))


def renyi_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return epsilon at ``delta`` of the events in one Renyi accountant, each by its zCDP rho and its failure.

    >>> round(renyi_epsilon([GaussianEvent(2.0), PureEvent(0.5)], 1e-6), 2)
    3.54
    """
    import dp_accounting

    events = tuple(events)
    if (delta := delta - Composition(events).failure) <= 0:
        return math.inf
    accountant = dp_accounting.rdp.RdpAccountant()
    for event in events:
        accountant.compose(dp_accounting.ZCDpEvent(event.rho))
    return float(accountant.get_epsilon(delta))


def gaussian_split(budget: Budget, shares: Sequence[float]) -> tuple[float, ...]:
    """Return noise multipliers of Gaussian releases that together spend ``budget`` and no more.

    Args:
        shares: how much of mu^2 each release gets; positive, any scale.

    Returns:
        One noise multiplier per share: mu_i = mu sqrt(share_i / sum), multiplier_i = 1 / mu_i, where mu is the
        largest with mu-GDP implying ``budget`` (Dong, Roth and Su 2022, Corollary 3.3).

    Raises ConfigError if delta is below :data:`SMALLEST_DELTA`.

    >>> [round(each, 3) for each in gaussian_split(Budget(3, "1e-6"), [0.2, 0.8])]
    [3.452, 1.726]
    """
    if budget.delta == 0:
        raise ConfigError(
            "Gaussian noise cannot give pure differential privacy (delta = 0).",
            "Give a delta such as 1e-6, or choose laplace noise.",
        )
    if budget.delta < SMALLEST_DELTA:
        raise ConfigError(
            f"delta = {as_typed(budget.delta)} is too small for the computation.",
            f"Give a delta of at least {SMALLEST_DELTA:g}, or choose laplace noise, which needs no delta.",
        )
    delta = float(budget.delta) / (1 + DISCRETE_EXCESS * len(shares))
    total = gaussian_noise_multiplier(float(budget.epsilon), delta * (1 - 1e-9)) * (1 + 1e-9)
    whole = math.fsum(shares)
    return tuple(total * math.sqrt(whole / share) for share in shares)


def zcdp_within(budget: Budget) -> float:
    """Return the largest rho that implies ``budget``, and no larger (Canonne, Kamath and Steinke 2020, Corollary 13).

    Raises ConfigError if delta is 0: zCDP does not imply pure differential privacy.

    >>> round(zcdp_within(Budget(3, "1e-6")), 4)
    0.1851
    """
    if budget.delta == 0:
        raise ConfigError(
            "Private tokens are accounted by zCDP, which cannot give pure differential privacy (delta = 0).",
            "Give a delta such as 1e-6.",
        )
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    low, high = 0.0, 1.0
    while ZCDP(high).delta(epsilon) <= delta:
        low, high = high, 2 * high
    return to_the_last_bit(lambda rho: ZCDP(rho).delta(epsilon) <= delta, holds_at=low, fails_at=high) * (1 - 1e-9)


def pure_split(budget: Budget, shares: Sequence[float]) -> tuple[float, ...]:
    """Return epsilons of pure releases that together spend ``budget.epsilon`` and no more (basic composition).

    >>> [round(each, 3) for each in pure_split(Budget(3, 0), [1, 2])]
    [1.0, 2.0]
    """
    whole = math.fsum(shares)
    return tuple(float(budget.epsilon) * (1 - 1e-12) * share / whole for share in shares)


_LEAST = Fraction(1, 10**9)  # a Renyi accountant may return 0 for a tiny spending; a budget is never 0


@dataclass(frozen=True)
class Spending:
    """One run's entry in a dataset's history: the stated cost, and the events that it was computed from.

    >>> Spending(Budget(3, 0), (PureEvent(3.0),)).cost.epsilon
    Fraction(3, 1)
    """

    cost: Budget | SecretBudget
    events: tuple[Event, ...]


@dataclass(frozen=True)
class BudgetFilter:
    """Decides whether the runs charged to a dataset so far, plus one more run, stay within its cap.

    Guarantee:
        ``basic``: stated (epsilon, delta) add up exactly, as fractions; sound under adaptive choice
        (Rogers, Roth, Ullman and Vadhan 2016). ``rdp``: the events of all runs in one Renyi accountant at
        the cap's delta; a filter at each fixed order (Feldman and Zrnic 2021). Every event counts by its zCDP rho times
        the order, so the order at which the most rho fits the cap does not depend on the events: the best is fixed.

    Raises PrivacyError if a cost is for secrets: such a cost cannot be added to one for records or owners.

    >>> run = Spending(Budget(2, 0), (PureEvent(2.0),))
    >>> BudgetFilter(Budget(3, 0)).admits([], run), BudgetFilter(Budget(3, 0)).admits([run], run)
    (True, False)
    """

    cap: Budget
    rule: CrossRunRule = "basic"

    def spent(self, history: Iterable[Spending]) -> Budget | None:
        """Return the (epsilon, delta) spent so far; None if nothing was spent."""
        entries = list(history)
        if not entries:
            return None
        costs = _sums(entries)
        if self.rule == "basic":
            return Budget.of(*costs)
        epsilon = renyi_epsilon((event for entry in entries for event in entry.events), float(self.cap.delta))
        return Budget.of(max(Fraction(min(epsilon, sys.float_info.max)), _LEAST), self.cap.delta)

    def admits(self, history: Iterable[Spending], new: Spending) -> bool:
        """Return True if the history and ``new`` together stay within the cap."""
        entries = [*history, new]
        if self.rule == "basic":
            epsilon, delta = _sums(entries)
            return epsilon <= self.cap.epsilon and delta <= self.cap.delta
        total = self.spent(entries)
        return total is not None and total.epsilon <= self.cap.epsilon


def _sums(entries: Iterable[Spending]) -> tuple[Fraction, Fraction]:
    epsilon, delta = Fraction(), Fraction()
    for entry in entries:
        if isinstance(entry.cost, SecretBudget):
            raise PrivacyError(
                f"The cost {entry.cost} of protecting secrets cannot be added to an epsilon and a delta.",
                "Use a separate dataset for runs that protect secrets.",
            )
        epsilon, delta = epsilon + entry.cost.epsilon, delta + entry.cost.delta
    return epsilon, delta
