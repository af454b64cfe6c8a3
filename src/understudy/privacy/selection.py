"""Release names that come from the data if enough units have them: weighted Gaussian partition selection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from understudy.base.errors import ConfigError
from understudy.privacy.events import SelectionEvent
from understudy.privacy.exact import POSITIVE
from understudy.privacy.guarantee import phi_bar
from understudy.privacy.mechanisms import COUNT_GRID, SMALLEST_SIGMA, Sensitivity, require_scale
from understudy.privacy.noise import NoiseKind
from understudy.privacy.search import last_number

MOST_NAMES = 1000
_ROUNDED = 1 + 1e-9  # more than rounding takes from a failure's probability


def weight_of(names: int) -> int:
    """Return what a unit with this many names adds to the sum of each: floor(COUNT_GRID / sqrt(names)), exactly.

    >>> weight_of(4) / weight_of(1)
    0.5
    """
    return math.isqrt(COUNT_GRID * COUNT_GRID // names)


@dataclass(frozen=True)
class NoisySelection:
    """Add discrete Gaussian noise to the sum of each name that occurs, and show the names and sums above a threshold.

    Guarantee:
        Unit: a record, or an owner with all records together; neighbours add or remove one.
        Sensitivity: a unit has a set of m distinct names, m at most ``most``, which depends only on the unit,
        and adds G = floor(COUNT_GRID / sqrt(m)) to the sum of each: L2 norm sqrt(m) G, COUNT_GRID at most.
        Noise: discrete Gaussian, sigma = noise_multiplier * COUNT_GRID (at least SMALLEST_SIGMA), sampled for each
        name that any unit has. Names whose noisy sum is above :attr:`threshold` are shown, in the order of names.
        Event: :class:`~understudy.privacy.events.SelectionEvent`. On names that other units also have it is a Gaussian
        release. A name that only this unit has is shown with probability P(G + Z > T); a discrete Gaussian has
        P(Z >= k) <= Phi_bar((k - 1) / sigma) for integers k > 0, as its sum is below the integral and its norm above
        sqrt(2 pi) sigma. So one or more of at most m such names are shown with probability at most
        1 - (1 - Phi_bar((T - G) / sigma))^m, and T is the least integer where this is at most ``delta`` for every m.
        Source: Korolova et al. 2009 (what occurs, above a threshold); Gopi et al. 2020, "Differentially private set
        union" (weights, Gaussian noise); Swanberg et al. 2023 (one round of DP-SIPS).

    Args:
        delta: the probability with which a name that only one unit has may be shown.
        most: names per unit (C).

    Raises ConfigError if the noise does not fit the grid, or a number is out of its range.

    >>> found = NoisySelection(2.0, 1e-7, 100)
    >>> round(found.threshold / COUNT_GRID, 2)
    12.1
    """

    noise_multiplier: float
    delta: float
    most: int
    kind: ClassVar[str] = "noisy-selection"
    noise: ClassVar[NoiseKind] = "gaussian"
    sensitivity: ClassVar[Sensitivity] = Sensitivity(None, COUNT_GRID, COUNT_GRID)

    def __post_init__(self) -> None:
        POSITIVE.of(noise_multiplier=self.noise_multiplier)
        require_scale(self.scale, least=SMALLEST_SIGMA)
        if not 1 <= self.most <= MOST_NAMES:
            raise ConfigError(
                f"Expected 1 to {MOST_NAMES} names per unit, got {self.most}.",
                f"Set the number of names per unit to 1 to {MOST_NAMES}.",
            )
        _ = self.event

    @cached_property
    def event(self) -> SelectionEvent:
        return SelectionEvent(self.noise_multiplier, self.delta)

    @property
    def scale(self) -> float:
        return math.nextafter(self.noise_multiplier * COUNT_GRID, math.inf)

    @property
    def noise_std(self) -> float:
        """Return the standard deviation of the noise on one released sum."""
        return self.scale / COUNT_GRID

    @cached_property
    def threshold(self) -> int:
        """Return the value that a noisy sum must exceed to be shown, in grid units (T)."""
        low, high = COUNT_GRID, COUNT_GRID + math.ceil(64 * self.scale)  # Phi_bar(64) is 0 in doubles
        if self.failure_at(low) <= self.delta:
            return low
        return last_number(lambda each: self.failure_at(each) <= self.delta, holds_at=high, fails_at=low)

    def failure_at(self, threshold: int) -> float:
        """Return an upper bound on the probability of showing any name that only one unit has, with this threshold (at
        least COUNT_GRID)."""
        tails = ((m, phi_bar((threshold - weight_of(m)) / self.scale)) for m in range(1, self.most + 1))
        return _ROUNDED * max(-math.expm1(m * math.log1p(-tail)) for m, tail in tails)
