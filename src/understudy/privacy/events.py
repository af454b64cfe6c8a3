"""Describe the cost of one mechanism as an immutable event.

An event bounds the distance between a mechanism's output distributions on two neighbouring
datasets; the accountant composes events. Each event knows its pure
epsilon (infinity if it has none), its zCDP rho, and its privacy loss distribution if it has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar, get_args

from understudy.base.errors import ConfigError
from understudy.base.lazy import common, pld, pmf, special
from understudy.privacy.exact import NONNEGATIVE, POSITIVE, PROBABILITIES, RATES


class _Event:
    """Base of the events: checks the numbers when an event is made. No pure epsilon unless a subclass has one."""

    def __post_init__(self) -> None:
        known = vars(self)
        for name in ("noise_multiplier", "epsilon"):
            if name in known:
                POSITIVE.of(**{name: known[name]})
        if "rate" in known:
            RATES.of(rate=known["rate"])
            if POSITIVE.of(count=known["count"]).denominator != 1:
                raise ConfigError(f"Expected a whole count, got {known['count']}.", "Count releases.")
            object.__setattr__(self, "count", int(known["count"]))  # JSON may bring a float

    @property
    def pure_epsilon(self) -> float:
        return math.inf

    @property
    def failure(self) -> float:
        """Return the probability that the event's other properties fail; the accountant adds it to delta."""
        return 0.0


@dataclass(frozen=True)
class GaussianEvent(_Event):
    """Gaussian noise of std ``noise_multiplier`` times the L2 sensitivity: (1/noise_multiplier)-GDP.

    >>> GaussianEvent(2.0).rho
    0.125
    """

    noise_multiplier: float
    kind: ClassVar[str] = "gaussian"

    @property
    def rho(self) -> float:
        return 1 / (2 * self.noise_multiplier**2)

    def to_pld(self, *, interval: float = 1e-4) -> Any:
        return gaussian_loss(self.noise_multiplier, interval=interval)

    def __str__(self) -> str:
        return f"Gaussian noise, noise multiplier {self.noise_multiplier:.6g}"


@dataclass(frozen=True)
class SelectionEvent(GaussianEvent):
    """Gaussian noise on sums per name: names come from the data, and only sums above a threshold are shown.

    With the unit, the output is distributed as (1 - p) P + p R; without it, as Q. Here p is the probability of showing
    a name that only this unit has, at most ``delta``; P and Q are those of the Gaussian. A guarantee of the noise at d
    therefore holds at d + delta: for any set S and e = e^epsilon, (1 - p) P(S) + p R(S) - e Q(S) <= (1 - p) d + p, and
    Q(S) - e (1 - p) P(S) = (1 - p) (Q(S) - e P(S)) + p Q(S) <= (1 - p) d + p. The same holds in a composition.

    >>> SelectionEvent(2.0, 1e-7).failure
    1e-07
    """

    delta: float
    kind: ClassVar[str] = "selection"

    def __post_init__(self) -> None:
        super().__post_init__()
        PROBABILITIES.of(delta=self.delta)

    @property
    def failure(self) -> float:
        return self.delta

    def __str__(self) -> str:
        return f"{super().__str__()}; shows a word of one single unit with probability at most {self.delta:.3g}"


@dataclass(frozen=True)
class PureEvent(_Event):
    """Any ``epsilon``-DP mechanism, for example Laplace noise of scale L1 sensitivity / epsilon.

    >>> PureEvent(0.5).pure_epsilon, PureEvent(0.5).rho
    (0.5, 0.125)
    """

    epsilon: float
    kind: ClassVar[str] = "pure"

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    @property
    def rho(self) -> float:
        return self.epsilon**2 / 2

    def to_pld(self) -> Any:
        """Return the dominating pair of any epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015)."""
        return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(self.epsilon, 0))

    def __str__(self) -> str:
        return f"pure DP, epsilon {self.epsilon:.6g}"


@dataclass(frozen=True)
class ZCDPEvent(_Event):
    """Any ``rho``-zCDP mechanism, such as a bounded-range choice.

    It does not use ``dp_accounting``'s exponential-mechanism events: one of its versions ignores how often
    they repeat.

    >>> str(ZCDPEvent(0.1))
    'zCDP, rho 0.1'
    """

    rho: float
    kind: ClassVar[str] = "zcdp"

    def __post_init__(self) -> None:
        NONNEGATIVE.of(rho=self.rho)

    def to_pld(self) -> None:
        """Return None: zCDP alone does not determine a privacy loss distribution."""

    def __str__(self) -> str:
        return f"zCDP, rho {self.rho:.6g}"


Inclusion = tuple[tuple[float, int], ...]
"""For the records that contain one secret: (probability of being sampled, how many records have it), largest first."""


@dataclass(frozen=True)
class MixtureEvent(_Event):
    """Gaussian noise on a sum over records that were each sampled independently, for each of several secrets.

    K is how many of a secret's records are sampled (Poisson-binomial). The release is dominated by the pair
    N(0, sigma^2) and K + N(0, sigma^2), sigma = ``noise_multiplier`` times one record's L2 sensitivity.

    Args:
        noise_multiplier: in sensitivities of one record.
        inclusion: one entry per secret; the guarantee holds for each of them.

    >>> MixtureEvent(4.0, (((0.5, 2),),)).rho
    0.125
    """

    noise_multiplier: float
    inclusion: tuple[Inclusion, ...]
    kind: ClassVar[str] = "mixture"

    def __post_init__(self) -> None:
        super().__post_init__()
        secrets = tuple(tuple((float(rate), int(records)) for rate, records in secret) for secret in self.inclusion)
        object.__setattr__(self, "inclusion", secrets)  # JSON brings lists

    @property
    def rho(self) -> float:
        """Return the zCDP parameter in the worst case, in which all of a secret's records are sampled."""
        most = max((sum(records for _, records in secret) for secret in self.inclusion), default=0)
        return most**2 / (2 * self.noise_multiplier**2)

    def to_pld(self) -> None:
        """Return None: secret protection does not use (epsilon, delta); see :mod:`understudy.privacy.secrets`."""

    def __str__(self) -> str:
        return f"Gaussian noise on sampled records, noise multiplier {self.noise_multiplier:.6g}"


@dataclass(frozen=True)
class SubsampledGaussianEvent(_Event):
    """``count`` releases, each of a sum over a fresh Poisson subsample, with Gaussian noise.

    Each release is dominated by the pair N(0, sigma^2) and (1 - rate) N(0, sigma^2) + rate N(1, sigma^2), whichever of
    the two is the dataset with the unit; sigma = ``noise_multiplier``.

    Args:
        noise_multiplier: in L2 sensitivities.
        rate: each unit's probability of being sampled, in (0, 1].
        count: releases.

    >>> print(SubsampledGaussianEvent(1.0, 0.01, 1000))
    Gaussian noise, noise multiplier 1, 1,000 times on a Poisson sample of rate 0.01
    """

    noise_multiplier: float
    rate: float
    count: int
    kind: ClassVar[str] = "subsampled gaussian"

    @property
    def rho(self) -> float:
        """Return the zCDP parameter as if every unit were sampled each time, which is an upper bound.

        Renyi divergences are quasi-convex: that of a mixture from one of its parts is at most that of the other part.
        Subsampling helps much at low orders, but not at all orders, as zCDP requires.
        """
        return self.count / (2 * self.noise_multiplier**2)

    def to_pld(self, *, interval: float = 1e-4) -> Any:
        """Return the privacy loss distributions of both directions, adding and removing.

        Source: Zhu, Dong and Wang 2022, Theorem 11, for the dominating pairs.

        Args:
            interval: spacing of the loss grid. A coarser grid is faster and overstates a little; it never understates.
        """
        one = gaussian_loss(self.noise_multiplier, rate=self.rate, interval=interval)
        return one.self_compose(self.count)

    def __str__(self) -> str:
        return (
            f"Gaussian noise, noise multiplier {self.noise_multiplier:.6g}, "
            f"{'once' if self.count == 1 else f'{self.count:,} times'} on a Poisson sample of rate {self.rate:.6g}"
        )


@dataclass(frozen=True)
class SubsampledPureEvent(_Event):
    """``count`` releases by an ``epsilon``-DP mechanism, each on a fresh Poisson subsample.

    Each is ln(1 + rate (e^epsilon - 1))-DP (Balle, Barthe and Gaboardi 2018, Theorem 8).

    Args:
        epsilon: of one release on its sample.
        rate: each unit's probability of being sampled, in (0, 1].
        count: releases.

    >>> round(SubsampledPureEvent(1.0, 0.01, 10).pure_epsilon, 4)
    0.1704
    """

    epsilon: float
    rate: float
    count: int
    kind: ClassVar[str] = "subsampled pure"

    @property
    def each(self) -> float:
        """Return the epsilon of one release, including the effect of sampling."""
        # e^epsilon may overflow; for so large an epsilon, sampling only subtracts about ln(1/rate)
        if self.epsilon > _EXPONENT:
            return self.epsilon
        return math.log1p(self.rate * math.expm1(self.epsilon)) * (1 + 2**-50)

    @property
    def pure_epsilon(self) -> float:
        return self.count * self.each

    @property
    def rho(self) -> float:
        return self.count * self.each**2 / 2

    def to_pld(self) -> Any:
        one = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(self.each, 0))
        return one.self_compose(self.count)

    def __str__(self) -> str:
        return f"pure DP, epsilon {self.epsilon:.6g}, {self.count:,} times on a Poisson sample of rate {self.rate:.6g}"


_EXPONENT = 700.0


@lru_cache(maxsize=4)
def gaussian_loss(noise_multiplier: float, *, rate: float = 1.0, interval: float = 1e-4) -> Any:
    """Return the privacy loss distribution of one release, bit for bit as ``dp_accounting``'s Gaussian mechanism.

    ``dp_accounting`` computes delta at one epsilon after the other, which takes most of a plan's time. This function
    computes the same curve at all of them at once; the connect-the-dots step is ``dp_accounting``'s.
    """
    import numpy as np

    def loss(place: float) -> float:
        """Return the loss of a unit that is removed, if the noise is ``place``."""
        sampled = (-0.5 - place) / noise_multiplier**2
        return sampled if rate == 1 else common.log_a_times_exp_b_plus_c(rate, sampled, 1 - rate)

    cut = special.ndtri(0.5 * math.exp(-50)) * noise_multiplier  # noise beyond this counts as an infinite loss
    most, least = loss(cut - 1), loss(-cut)

    def dots(sign: int) -> Any:
        """Return the dots for a unit that is removed (1), or added (-1)."""
        lower, upper = (least, most) if sign == 1 else (-most, -least)
        low, high = math.floor(lower / interval), math.ceil(upper / interval)
        epsilons = np.arange(low, high + 1) * interval
        with np.errstate(all="ignore"):  # beyond the largest and the smallest loss that are possible with sampling
            unsampled = sign * np.log1p(np.maximum(np.expm1(sign * epsilons) / rate, -1))  # the loss of the release
            at = -sign / 2 - unsampled * noise_multiplier**2
            plain, moved = at / noise_multiplier, (at + sign) / noise_multiplier
            if sign == 1:
                above = (1 - rate) * special.ndtr(plain) + rate * special.ndtr(moved)
                log_below = special.log_ndtr(plain)
            else:
                above, parts = special.ndtr(plain), (special.log_ndtr(plain), special.log_ndtr(moved))
                log_below = np.logaddexp(np.log1p(-rate) + parts[0], np.log(rate) + parts[1])
            deltas = above - np.exp(epsilons + log_below)
        return pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, np.clip(deltas, 0, 1))

    return pld.PrivacyLossDistribution(dots(1), None if rate == 1 else dots(-1))


def epsilon_of(loss: Any, delta: float) -> float:
    """Return ``loss.get_epsilon_for_delta(delta)`` of a privacy loss distribution.

    That function loops over the losses, which takes a twentieth of a second, and a statement needs a dozen epsilons.
    This one looks at all losses at once.
    """
    halves = (loss._pmf_remove,) if loss._symmetric else (loss._pmf_remove, loss._pmf_add)
    return max(
        _dense_epsilon(half, delta) if isinstance(half, pmf.DensePLDPmf) else float(half.get_epsilon_for_delta(delta))
        for half in halves
    )


def _dense_epsilon(half: Any, delta: float) -> float:
    """Return the least epsilon >= 0 with delta >= P[loss > epsilon] - e^epsilon E[e^-loss; loss > epsilon]."""
    import numpy as np

    if half._infinity_mass > delta:
        return math.inf
    first = max(0, 1 - half._lower_loss)  # of the losses above 0
    chances = half._probs[first:][::-1]
    if not len(chances):
        return 0.0
    losses = (half._lower_loss + np.arange(len(half._probs) - 1, first - 1, -1)) * half._discretization
    above, below = half._infinity_mass + np.cumsum(chances), np.cumsum(np.exp(-losses) * chances)
    if (unbounded := (below == 0) & (above >= delta)).any():  # losses so large that e^-loss is 0
        return float(losses[np.argmax(unbounded)])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        epsilons = np.log((above - delta) / below)
    ends = (below[:-1] > 0) & (epsilons[:-1] >= losses[1:])  # epsilon is not smaller than these losses
    place = np.argmax(ends) if ends.any() else len(losses) - 1
    return float(epsilons[place]) if above[place] > below[place] + delta else 0.0


Event = (
    GaussianEvent
    | SelectionEvent
    | PureEvent
    | ZCDPEvent
    | MixtureEvent
    | SubsampledGaussianEvent
    | SubsampledPureEvent
)
EVENT_KINDS: dict[str, type[Event]] = {event.kind: event for event in get_args(Event)}


def event_to_json(event: Event) -> dict[str, Any]:
    """Return the event as JSON fields, in which floats stay exact.

    >>> event_to_json(GaussianEvent(2.0))
    {'kind': 'gaussian', 'noise_multiplier': 2.0}
    """
    return {"kind": event.kind, **asdict(event)}


def event_from_json(fields: dict[str, Any]) -> Event:
    """Read an event from the fields of :func:`event_to_json`.

    >>> event_from_json({"kind": "pure", "epsilon": 0.5})
    PureEvent(epsilon=0.5)
    """
    rest: dict[str, Any] = {
        name: value if isinstance(value, list) else float(value) for name, value in fields.items() if name != "kind"
    }
    return EVENT_KINDS[fields["kind"]](**rest)


def budget_shares(events: Sequence[Event]) -> tuple[float | None, ...]:
    """Return each event's share of the privacy budget: of epsilon if all events are pure, else of rho of zCDP (which is
    proportional to mu squared of Gaussian events). None if there is no noise.

    >>> budget_shares([GaussianEvent(2.0), GaussianEvent(1.0)])
    (0.2, 0.8)
    """
    pure = all(isinstance(event, PureEvent) for event in events)
    costs = [event.epsilon if pure and isinstance(event, PureEvent) else event.rho for event in events]
    whole = sum(costs)
    return tuple(cost / whole if whole else None for cost in costs)
