"""What a mechanism promises, as what an audit can find: a number, and how well any test may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from understudy.audit.bounds import ErrorLimits, Floats
from understudy.privacy.accountant import Composition
from understudy.privacy.events import Event, GaussianEvent, MixtureEvent
from understudy.privacy.guarantee import GDP, normal_quantile, phi_bar


class Promise(Protocol):
    """A promised number, which a lower bound above it refutes."""

    @property
    def words(self) -> str:
        """What the number is, such as ``epsilon at delta 1e-06``."""
        ...

    @property
    def value(self) -> float: ...

    @property
    def gaussian(self) -> bool:
        """Whether a trade-off curve is promised that is Gaussian: then a bound on mu refutes it, too."""
        ...

    def bound(self, limits: ErrorLimits) -> Floats:
        """The least value that allows a test to err as seldom as this."""
        ...

    def of_mu(self, mu: float) -> float:
        """The value of a mechanism that is mu-GDP and no better: of the Gaussian trade-off curve."""
        ...

    def power(self, false_positive: float) -> float:
        """How often any test that is wrong in this share of cases may be right."""
        ...


@dataclass(frozen=True)
class EpsilonPromise:
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
    def gaussian(self) -> bool:
        return self.composition.mu is not None

    def bound(self, limits: ErrorLimits) -> Floats:
        return limits.epsilon(self.delta)

    def of_mu(self, mu: float) -> float:
        return GDP(mu).epsilon(self.delta)

    def power(self, false_positive: float) -> float:
        return self.composition.power(false_positive)


@dataclass(frozen=True)
class PosteriorPromise:
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
    def gaussian(self) -> bool:
        return all(isinstance(event, GaussianEvent) or _certain(event) for event in self.events)

    def bound(self, limits: ErrorLimits) -> Floats:
        return limits.posterior(self.prior)

    def of_mu(self, mu: float) -> float:
        return phi_bar(-normal_quantile(self.prior) - mu)

    def power(self, false_positive: float) -> float:
        from understudy.privacy.secrets.composition import posterior

        return posterior(self.events, false_positive)


def _certain(event: Event) -> bool:
    """Whether all records of every secret are drawn for certain: then there is nothing mixed about it."""
    return isinstance(event, MixtureEvent) and all(rate == 1 for secret in event.inclusion for rate, _ in secret)
