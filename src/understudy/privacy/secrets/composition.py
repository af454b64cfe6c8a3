"""Compose the secret protection of several releases, within one run and over runs.

Posteriors do not add up: two releases that each bring p to r can together bring it above 2r (SecPE's Theorem 3 says
otherwise, and is false), so this module never adds them. Within a run the plan is fixed, and its releases compose as
Gaussians in closed form or as mixtures by their privacy losses. Over runs they are chosen adaptively, and their Renyi
divergences add up.

Every release samples its records and its noise again. One sample that is used for T releases at sigma is *one* release
at sigma / sqrt(T), which is much worse.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, PrivacyError
from understudy.base.lazy import special
from understudy.privacy.accountant import Spending
from understudy.privacy.events import Event, GaussianEvent, Inclusion, MixtureEvent
from understudy.privacy.exact import Number
from understudy.privacy.guarantee import SecretBudget, normal_quantile, phi_bar
from understudy.privacy.secrets.bounds import (
    DISCRETE_EXCESS,
    DISCRETE_LOSS,
    Draws,
    best_test,
    blow_up,
    poisson_binomial,
    smallest,
)

ORDERS = np.array([*range(2, 33), *range(36, 65, 4), *range(72, 129, 8), 160, 192, 256])
"""The orders a at which divergences are composed: whole numbers that never change."""

_REACH = 12.0  # in sigmas; the rest is e^-75 of the whole
_MARGIN = 1e-9


@lru_cache(maxsize=4096)
def divergences(event: Event) -> NDArray[np.float64]:
    """Return D_a of one event at :data:`ORDERS`, present against absent, highest of its secrets; never understated.

    At whole orders E[(present / absent)^a] of a mixture is a sum over a-tuples of its parts, each with the factor
    exp(<v, w> / sigma^2) for every pair of their shifts. It is highest if all shifts point one way, and the same for
    discrete noise and integer shifts, since sums over the grid do not change when it moves. So nothing is added for
    discreteness. The integral is a sum of normal densities; the trapezoidal rule at steps of sigma / 2 has a relative
    error of e^-78. Raises ConfigError if the event is neither Gaussian nor a mixture of Gaussians.
    """
    event = require_gaussian(event)
    if isinstance(event, GaussianEvent):
        return np.asarray(ORDERS * event.rho * (1 + _MARGIN))
    secrets = [_mixture(event.noise_multiplier, poisson_binomial(secret)) for secret in set(event.inclusion)]
    highest = np.max([np.zeros(len(ORDERS)), *secrets], axis=0)
    return np.asarray(highest * (1 + _MARGIN) + _MARGIN, dtype=np.float64)


def require_gaussian(event: Event) -> GaussianEvent | MixtureEvent:
    """Return ``event`` if its secret protection can be computed.

    Raises ConfigError if it is neither Gaussian nor a mixture of Gaussians.
    """
    if not isinstance(event, GaussianEvent | MixtureEvent) or event.failure:
        raise ConfigError(
            f"Secret protection needs Gaussian noise, not: {event}.",
            "Choose gaussian noise, or give --epsilon and --delta instead of --secret-prior and --secret-posterior.",
        )
    return event


def posteriors(total: NDArray[np.float64], prior: float) -> NDArray[np.float64]:
    """Return the bounds on r, at most 1, that divergences ``total`` at :data:`ORDERS` imply; each is valid."""
    exponents = (ORDERS - 1) / ORDERS * (total + math.log(prior))
    return np.asarray(np.exp(np.minimum(exponents, 0)))


def order_for(first: NDArray[np.float64], prior: float, posterior: float) -> int:
    """Return the index of the order that allows most runs of divergences ``first`` from ``prior`` to ``posterior``."""
    room = math.log(1 / prior) - ORDERS / (ORDERS - 1) * math.log(1 / posterior)
    return int(np.argmax(room / (first + _MARGIN * ORDERS)))


def _mixture(noise_multiplier: float, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return D_a of K + N(0, sigma^2) against N(0, sigma^2) at all orders, on the line in steps of half a sigma."""
    records = np.flatnonzero(drawn)
    shifts = records / noise_multiplier
    x = np.arange(-_REACH, ORDERS[-1] * shifts[-1] + _REACH, 0.5)
    loss = np.full(len(x), -np.inf)
    for shift, chance in zip(shifts, drawn[records], strict=True):
        loss = np.logaddexp(loss, math.log(chance) + shift * (x - shift / 2))
    density = -(x**2) / 2 - math.log(2 * math.sqrt(2 * math.pi))
    until = np.searchsorted(x, ORDERS * shifts[-1] + _REACH)
    moments = [special.logsumexp(density[:end] + order * loss[:end]) for order, end in zip(ORDERS, until, strict=True)]
    return np.asarray(moments / (ORDERS - 1))


Laws = tuple[NDArray[np.float64], ...]
"""For one secret: P(K = 0), ..., P(K = n) in each release, K being how many of its records are sampled."""

_ONCE: Inclusion = ((1.0, 1),)
_FEW = 16
_NEARLY_ONE = 1 - 2**-53


def posterior(events: Sequence[Event], prior: Number) -> float:
    """Return a bound on how often a test for one secret is right after fixed events, if it is wrong with ``prior``.

    Args:
        events: each with fresh samples and noise. Mixtures state the same secrets in the same order, or one secret that
            represents all.
        prior: p, in (0, 1).

    Returns:
        r, in [p, 1], of the secret for which it is highest; never understated, discrete noise included. In closed form
        for only Gaussian events and for one mixture; else too high by about 1e-5 of itself, or by more if there are
        more than 16 different secrets: one law of K that dominates all of theirs is then composed.

    Raises ConfigError if an event is neither Gaussian nor a mixture of Gaussians, or mixtures differ in their secrets.

    >>> from understudy.privacy.events import GaussianEvent
    >>> round(posterior([GaussianEvent(1.59037)] * 10, 1e-4), 4)  # noise for one release, used for ten
    0.0418
    """
    prior, releases = float(prior), Counter(events)
    noise = [(require_gaussian(event).noise_multiplier, count) for event, count in releases.items()]
    secrets = [tuple(map(poisson_binomial, secret)) for secret in _secrets(tuple(releases))]

    def of_one(laws: Laws) -> float:
        return _posterior_of_one(prior, [Draws(z, law, count) for (z, count), law in zip(noise, laws, strict=True)])

    if len(events) > 1 and len(secrets) > _FEW:
        secrets = [_dominating(secrets)]
    most = max(map(of_one, secrets), default=0.0)
    return min(1.0, max(prior, most * (1 + DISCRETE_EXCESS) ** len(events)))


_SECRETS, _DRAWS = 1000, 1000


def in_parts(events: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Return parts of the events. :func:`posterior` of each takes a fraction of a second, and is at most that of all.

    The Gaussian events are one part. Equal mixtures are another: the sum of T releases, on which a test may decide, is
    one release with sqrt(T) times the noise and T times the records. For the releases of SecPE its posterior is about
    1 % below that of all. Of many secrets the 1000 with the most expected draws count, and 1000 draws of each.

    >>> from understudy.privacy.events import MixtureEvent
    >>> in_parts([MixtureEvent(4.0, (((0.5, 2),),))] * 4)
    [(), (MixtureEvent(noise_multiplier=8.0, inclusion=(((0.5, 8),),)),)]
    """
    mixtures = Counter(event for event in events if isinstance(event, MixtureEvent))
    gaussians = tuple(event for event in events if not isinstance(event, MixtureEvent))
    secrets = max(1, _SECRETS // max(1, len(mixtures)))
    return [gaussians, *((_sum(event, count, secrets),) for event, count in mixtures.items())]


def _sum(event: MixtureEvent, releases: int, secrets: int) -> MixtureEvent:
    held = sorted(set(event.inclusion), key=lambda secret: sum(rate * records for rate, records in secret))[-secrets:]
    most = max((sum(records for _, records in secret) for secret in held), default=0)
    releases = max(1, min(releases, _DRAWS // max(1, most)))

    def first(secret: Inclusion) -> Inclusion:
        ends = [min(_DRAWS, each) for each in accumulate((releases * records for _, records in secret), initial=0)]
        return tuple((rate, end - start) for (rate, _), (start, end) in zip(secret, pairwise(ends), strict=True))

    return MixtureEvent(event.noise_multiplier * math.sqrt(releases), tuple(map(first, held)))


def calibrate(
    budgets: SecretBudget | Sequence[SecretBudget], inclusion: Sequence[Inclusion], *, releases: int = 1
) -> float:
    """Return the smallest noise multiplier at which ``releases`` releases, each with a fresh sample, keep every budget.

    Args:
        budgets: one for all secrets, or one for each.
        inclusion: one entry per secret.
        releases: 1 or more.

    Returns:
        In sensitivities of one record, rounded up: :func:`posterior` of the events is at most r for every budget.

    Raises ConfigError if the number of budgets is neither one nor the number of secrets, or no noise is enough.

    >>> round(calibrate(SecretBudget(1e-4, 1e-3), [((1.0, 5),)]), 5)
    7.95185
    """
    given = [budgets] if isinstance(budgets, SecretBudget) else list(budgets)
    given *= len(inclusion) if len(given) == 1 else 1
    if not inclusion or len(given) != len(inclusion) or releases < 1:
        raise ConfigError(
            "The number of budgets differs from that of the secrets, or there is no release.",
            "Give one budget for all secrets or one for each, and at least one release.",
        )
    alike: dict[SecretBudget, list[Inclusion]] = {}
    for budget, secret in zip(given, inclusion, strict=True):
        alike.setdefault(budget, []).append(secret)
    noise = 0.0
    for budget, secrets in alike.items():

        def bound(at: float, budget: SecretBudget = budget, secrets: Sequence[Inclusion] = secrets) -> float:
            return posterior([MixtureEvent(at, tuple(secrets))] * releases, budget.prior)

        if noise == 0 or bound(noise) > float(budget.posterior):
            low = noise if releases == 1 else max(noise, calibrate(budget, secrets))
            noise = smallest(bound, float(budget.posterior), low=low or 1.0)
    return noise


_ROOM = 10.0
"""The order is the best one if all runs on a dataset come to this many times the first one's posterior."""


@dataclass(frozen=True)
class SecretFilter:
    """Decides whether the runs charged to a dataset so far, plus one more run, stay within its cap (p, r).

    Guarantee:
        One run: the :func:`posterior` of its events at the cap's prior (or its stated value for that prior, if higher).
        Several, each chosen after the others were seen: their Renyi divergences add up at one order. The first run
        fixes it, hence before anything was seen (the cap does not, as it may be raised later). At a fixed order this
        is a filter (Feldman and Zrnic 2021), and data processing turns the sum into r.

    Raises:
        ConfigError: if an event is neither Gaussian nor a mixture of Gaussians.
        PrivacyError: if a cost is not for secrets.

    >>> SecretFilter(SecretBudget("1e-3", "0.01")).spent([]) is None
    True
    """

    cap: SecretBudget

    def spent(self, history: Iterable[Spending]) -> SecretBudget | None:
        """Return the posterior of all runs so far at the cap's prior; None without any. ``history``: in time order."""
        entries = list(history)
        if not entries:
            return None
        least = math.nextafter(float(self.cap.prior), 1)
        return SecretBudget.of(
            self.cap.prior, min(max(self._posterior(entries), Fraction(least)), Fraction(_NEARLY_ONE))
        )

    def admits(self, history: Iterable[Spending], new: Spending) -> bool:
        """Return True if the history and ``new`` together stay within the cap."""
        return self._posterior([*history, new]) <= self.cap.posterior

    def _posterior(self, entries: Sequence[Spending]) -> Fraction:
        prior, costs = float(self.cap.prior), [_stated(entry) for entry in entries]
        if len(entries) == 1:
            stated = costs[0].posterior if costs[0].prior == self.cap.prior else Fraction()
            return max(stated, Fraction(posterior(entries[0].events, prior)))
        runs = [sum(map(divergences, entry.events), np.zeros(len(ORDERS))) for entry in entries]
        order = order_for(runs[0], prior, min(_ROOM * posterior(entries[0].events, prior), 0.5))
        return Fraction(float(posteriors(np.sum(runs, axis=0), prior)[order]))


def _stated(entry: Spending) -> SecretBudget:
    if isinstance(entry.cost, SecretBudget):
        return entry.cost
    raise PrivacyError(
        f"The cost {entry.cost} is not for secrets.", "Use a separate dataset for runs that protect secrets."
    )


def _secrets(events: Sequence[Event]) -> list[tuple[Inclusion, ...]]:
    """Return for every different secret its distribution of K in each event."""
    mixtures = [event.inclusion for event in events if isinstance(event, MixtureEvent)]
    secrets = max(map(len, mixtures), default=1)
    if any(len(inclusion) not in (1, secrets) for inclusion in mixtures):
        raise ConfigError(
            "Releases with different secrets cannot be composed secret by secret.",
            "State every release for the same secrets in the same order, or for one secret that represents all.",
        )

    def of(event: Event, number: int) -> Inclusion:
        if not isinstance(event, MixtureEvent):
            return _ONCE
        return event.inclusion[number if len(event.inclusion) > 1 else 0]

    return sorted({tuple(of(event, number) for event in events) for number in range(secrets)})


def _dominating(secrets: Sequence[Laws]) -> Laws:
    """Return for each release a law of K that gives "k or more", for every k, at least the chance any secret gives it.

    The best test is no worse under it than for any secret: the likelihood ratio of a mixture against N(0, sigma^2)
    grows with the value, and with more records the values are larger.
    """
    if len(secrets) == 1:
        return secrets[0]
    laws = []
    for of_one_release in zip(*secrets, strict=True):
        most = np.zeros(max(map(len, of_one_release)) + 1)
        for law in of_one_release:
            most[: len(law)] = np.maximum(most[: len(law)], np.cumsum(law[::-1])[::-1])
        laws.append(-np.diff(most))
    return tuple(laws)


def _posterior_of_one(prior: float, draws: Sequence[Draws]) -> float:
    """Return the posterior for one secret, without the last margin."""
    threshold = -normal_quantile(prior)
    certain = [each for each in draws if np.count_nonzero(each.drawn) == 1]
    uncertain = [each for each in draws if np.count_nonzero(each.drawn) > 1]
    mu = math.hypot(*map(_most, certain))
    if not uncertain:
        return phi_bar(threshold - mu)
    if len(draws) == 1 == draws[0].releases:
        return blow_up(prior, draws[0].noise_multiplier, draws[0].drawn)
    gaussian = [Draws(1 / mu, poisson_binomial(_ONCE), 1)] if mu else []
    return min(best_test([*uncertain, *gaussian], prior), phi_bar(threshold - math.hypot(*map(_most, draws))))


def _most(draws: Draws) -> float:
    """Return mu of the releases if all records that may be sampled are."""
    records = int(np.flatnonzero(draws.drawn)[-1])
    return math.sqrt(draws.releases) * records / (draws.noise_multiplier * (1 - DISCRETE_LOSS))


def secret_split(budget: SecretBudget, shares: Sequence[float]) -> tuple[float, ...]:
    """Return noise multipliers of Gaussian releases that together spend ``budget`` and no more.

    As :func:`understudy.privacy.accountant.gaussian_split` for (epsilon, delta): one noise multiplier per share, in
    sensitivities of one *secret*; mu_i = mu sqrt(share_i / sum), with mu of the budget.

    Args:
        shares: how much of mu^2 each release gets; positive, any scale.
    """
    whole = math.fsum(shares)
    parts = [math.sqrt(whole / share) for share in shares]

    def bound(multiplier: float) -> float:
        return posterior([GaussianEvent(multiplier * part) for part in parts], budget.prior)

    total = smallest(bound, float(budget.posterior), low=1 / budget.mu)
    return tuple(total * part for part in parts)
