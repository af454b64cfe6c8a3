"""What one mechanism costs, as immutable events.

An event says how far the output distributions of a mechanism on two neighbouring
datasets can lie apart; the accountant composes events. Each knows its own pure
epsilon (infinity if it has none), its zCDP rho, and its privacy loss distribution where it has one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from understudy.privacy.checks import require_nonnegative, require_positive


@dataclass(frozen=True)
class GaussianEvent:
    """Gaussian noise of std ``noise_multiplier`` times the L2 sensitivity: (1/noise_multiplier)-GDP."""

    noise_multiplier: float
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.noise_multiplier)

    @property
    def pure_epsilon(self) -> float:
        return math.inf

    @property
    def rho(self) -> float:
        return 1 / (2 * self.noise_multiplier**2)

    def to_pld(self) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_gaussian_mechanism(self.noise_multiplier)

    def __str__(self) -> str:
        return f"Gaussian noise, noise multiplier {self.noise_multiplier:.6g}"


@dataclass(frozen=True)
class PureEvent:
    """Any ``epsilon``-DP mechanism: Laplace noise of scale L1 sensitivity / epsilon, for one."""

    epsilon: float
    kind: ClassVar[str] = "pure"

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    @property
    def rho(self) -> float:
        return self.epsilon**2 / 2

    def to_pld(self) -> Any:
        """The dominating pair of any epsilon-DP mechanism (Kairouz, Oh and Viswanath 2015)."""
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(self.epsilon, 0))

    def __str__(self) -> str:
        return f"pure DP, epsilon {self.epsilon:.6g}"


@dataclass(frozen=True)
class ZCDPEvent:
    """Any ``rho``-zCDP mechanism, such as a bounded-range choice.

    Our own wrapper: ``dp_accounting`` has a release that forgets how often exponential-mechanism events
    repeat.
    """

    rho: float
    kind: ClassVar[str] = "zcdp"

    def __post_init__(self) -> None:
        require_nonnegative(rho=self.rho)

    @property
    def pure_epsilon(self) -> float:
        return math.inf

    def to_pld(self) -> None:
        """zCDP alone determines no privacy loss distribution."""

    def __str__(self) -> str:
        return f"zCDP, rho {self.rho:.6g}"


Inclusion = tuple[tuple[float, int], ...]
"""Of the records that hold one secret: (probability of being drawn, how many records have it), largest first."""


@dataclass(frozen=True)
class MixtureEvent:
    """Gaussian noise on a sum over records that were each drawn independently, for each of several secrets.

    With K = how many of a secret's records are drawn (Poisson-binomial), the release lies between N(0, sigma^2) and
    K + N(0, sigma^2), sigma = ``noise_multiplier`` times one record's L2 sensitivity.

    Args:
        noise_multiplier: in sensitivities of one record.
        inclusion: one entry a secret; the promise holds for each of them.
    """

    noise_multiplier: float
    inclusion: tuple[Inclusion, ...]
    kind: ClassVar[str] = "mixture"

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.noise_multiplier)
        # JSON brings lists
        object.__setattr__(
            self,
            "inclusion",
            tuple(tuple((float(rate), int(records)) for rate, records in secret) for secret in self.inclusion),
        )

    @property
    def pure_epsilon(self) -> float:
        return math.inf

    @property
    def rho(self) -> float:
        """All of a secret's records drawn: the most that can happen."""
        most = max((sum(records for _, records in secret) for secret in self.inclusion), default=0)
        return most**2 / (2 * self.noise_multiplier**2)

    def to_pld(self) -> None:
        """Secret protection does not go through (epsilon, delta): see :mod:`understudy.privacy.secrets`."""

    def __str__(self) -> str:
        return f"Gaussian noise on drawn records, noise multiplier {self.noise_multiplier:.6g}"


Event = GaussianEvent | PureEvent | ZCDPEvent | MixtureEvent
_KINDS: dict[str, type[Event]] = {event.kind: event for event in (GaussianEvent, PureEvent, ZCDPEvent, MixtureEvent)}


def event_to_json(event: Event) -> dict[str, Any]:
    """The event as JSON fields; floats survive exactly."""
    return {"kind": event.kind, **asdict(event)}


def event_from_json(fields: dict[str, Any]) -> Event:
    """The inverse of :func:`event_to_json`."""
    rest: dict[str, Any] = {
        name: value if isinstance(value, list) else float(value) for name, value in fields.items() if name != "kind"
    }
    return _KINDS[fields["kind"]](**rest)
