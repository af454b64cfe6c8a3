"""From values to places on a chart, and where the ticks stand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """From ``domain`` to ``places``, straight or by the logarithm."""

    domain: tuple[float, float]
    places: tuple[float, float]
    log: bool = False
    words: Callable[[float], str] = "{:g}".format

    def __call__(self, value: float) -> float:
        low, high = self.domain
        part = math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)
        return self.places[0] + part * (self.places[1] - self.places[0])

    def ticks(self) -> list[tuple[float, str]]:
        values = log_ticks(*self.domain) if self.log else ticks(*self.domain)
        return [(value, self.words(value)) for value in values]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values in [low, high], about that many.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> ticks(3, 47)
    [10.0, 20.0, 30.0, 40.0]
    """
    step = nice_step((high - low) / about)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def nice_step(step: float) -> float:
    """The nearest of 1, 2, 5 times a power of ten that is no smaller."""
    power = 10 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 times powers of ten in [low, high].

    >>> log_ticks(0.9, 16)
    [1, 2, 5, 10]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [factor * 10**power for power in powers for factor in (1, 2, 5)]
    return [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """A little wider on both sides, and never empty."""
    if low == high:
        return low - 0.5, high + 0.5
    return low - share * (high - low), high + share * (high - low)
