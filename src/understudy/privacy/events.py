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


Event = GaussianEvent | PureEvent | ZCDPEvent
_KINDS: dict[str, type[Event]] = {event.kind: event for event in (GaussianEvent, PureEvent, ZCDPEvent)}


def event_to_json(event: Event) -> dict[str, Any]:
    """The event as JSON fields; floats survive exactly."""
    return {"kind": event.kind, **asdict(event)}


def event_from_json(fields: dict[str, Any]) -> Event:
    """The inverse of :func:`event_to_json`."""
    rest = {name: float(value) for name, value in fields.items() if name != "kind"}
    return _KINDS[fields["kind"]](**rest)
