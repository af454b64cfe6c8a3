"""From values to places on a chart, and where the ticks stand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

_LEAST = 1e-100
"""Values that are no further apart are one: between smaller ones there are no round values."""


@dataclass(frozen=True)
class Scale:
    """From ``domain`` to ``places``, straight or by the logarithm, with ticks at ``marks`` or at round values."""

    domain: tuple[float, float]
    places: tuple[float, float]
    log: bool = False
    words: Callable[[float], str] = "{:g}".format
    marks: tuple[float, ...] = ()

    def __call__(self, value: float) -> float:
        low, high = self.domain
        part = (value - low) / ((high - low) or 1)
        if self.log:
            part = math.log(value / low) / math.log(high / low)
        return self.places[0] + part * (self.places[1] - self.places[0])

    def ticks(self) -> list[tuple[float, str]]:
        return [(value, self.words(value)) for value in self.marks or ticks(*self.domain)]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values in [low, high], about that many.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> ticks(3, 47)
    [10.0, 20.0, 30.0, 40.0]
    """
    if not high - low > _LEAST:
        return []
    step = nice_step((high - low) / about)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def nice_step(step: float) -> float:
    """The nearest of 1, 2, 5 times a power of ten that is no smaller."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """A little wider on both sides, and never empty."""
    if high - low <= max(_LEAST, 1e-12 * max(abs(low), abs(high))):
        half = max(0.5, abs(low) / 2)
        return low - half, low + half
    return low - share * (high - low), high + share * (high - low)
