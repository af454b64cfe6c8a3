"""The mechanisms: a query with its sensitivity, its noise and its event in one object, so they can't disagree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError, PrivacyError
from understudy.privacy.checks import require_positive
from understudy.privacy.events import Event, GaussianEvent, PureEvent
from understudy.privacy.noise import NoiseKind, NoiseSource
from understudy.privacy.plan import Receipt

Data_contra = TypeVar("Data_contra", contravariant=True)
Data = TypeVar("Data")

SMALLEST_SIGMA = 16384.0
"""In grid units. Below it a discrete Gaussian is noticeably worse than the continuous one it is accounted as: at 4096
units the excess of delta passes 2e-7 for epsilon above 50 and delta of 1e-12, here it stays below 5e-8."""

LARGEST_SCALE = 2.0**57
"""In grid units. Beyond it noise may leave the 64-bit integers, where the sampler clamps it, and a sum added to a
clamped value is bare. Here the chance is below e^-63 a value."""


LARGEST_RELEASE = 100_000_000
"""Numbers in one noisy value: 0.8 GB, of which the run's store holds no more in one piece; their noise takes a quarter
of an hour."""


class IntegerSum(Protocol[Data_contra]):
    """A query that sums one integer vector a unit.

    The sensitivities bound the integer vectors themselves, after all rounding; ``grid`` is how many integer
    steps make 1.0 of the released value.
    """

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def grid(self) -> float: ...
    @property
    def l1_sensitivity(self) -> float: ...
    @property
    def l2_sensitivity(self) -> float: ...
    def evaluate(self, data: Data_contra) -> NDArray[np.int64]:
        """The exact sum, ``Int64[shape]``. Private: only :class:`NoisySum` may call it."""
        ...


def noise_event(noise: NoiseKind, noise_multiplier: float) -> Event:
    """The event of a sum with ``noise`` of ``noise_multiplier`` times its sensitivity (L2 or L1)."""
    if noise == "gaussian":
        return GaussianEvent(noise_multiplier)
    return PureEvent(1 / noise_multiplier)


def require_releasable(name: str, numbers: int, *, cure: str) -> None:
    """See that a value can be stored, and its noise drawn, before anything is charged.

    Args:
        name: of the charge.
        numbers: that it will hold.
        cure: what makes them fewer.

    Raises:
        ConfigError: if they are more than LARGEST_RELEASE.
    """
    if numbers > LARGEST_RELEASE:
        raise ConfigError(
            f"The release {name!r} would hold {numbers:.3g} numbers, and {LARGEST_RELEASE:.0e} is the most.",
            cure,
        )


class Shaped(Protocol):
    """What is known of a query's answer beforehand."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def grid(self) -> float: ...


def with_noise(
    exact: NDArray[np.int64], query: Shaped, *, noise: NoiseKind, scale: float, source: NoiseSource
) -> NDArray[np.float64]:
    """An exact sum with discrete noise of ``scale`` grid units on every coordinate, in the query's own units.

    Only a mechanism that has paid may call it.

    Raises:
        PrivacyError: if the query answered with another type or shape than it declared.
    """
    if exact.dtype != np.int64 or exact.shape != query.shape:
        raise PrivacyError(
            f"The query {query.name!r} answered with the wrong type or shape.",
            "A query returns int64 sums of its declared shape whatever the data holds.",
        )
    drawn = source.draw(noise, scale=scale, size=exact.size).reshape(exact.shape)
    return np.asarray((exact + drawn) / query.grid, dtype=np.float64)


@dataclass(frozen=True)
class NoisySum(Generic[Data]):
    """Release an integer sum with discrete noise.

    Guarantee:
        Unit: whatever one vector of ``query`` stands for (record or owner); neighbours add or remove one.
        Sensitivity: ``query.l2_sensitivity`` in L2 (gaussian) or ``query.l1_sensitivity`` in L1 (laplace), of the
        integer vectors after rounding.
        Noise: discrete Gaussian with sigma = noise_multiplier * L2 sensitivity, or discrete Laplace with
        scale = noise_multiplier * L1 sensitivity, independent on every coordinate, zero or not.
        Event: (1/noise_multiplier)-GDP for gaussian up to a relative excess of delta below 2e-7, which the accountant
        adds (sigma is at least SMALLEST_SIGMA grid units); exactly (1/noise_multiplier)-DP for laplace.
        Source: Canonne, Kamath and Steinke 2020; Dong, Roth and Su 2022, Theorem 2.7.

    Raises:
        PrivacyError: if the grid is too coarse for the noise, or the noise too large for 64-bit integers.
    """

    query: IntegerSum[Data]
    noise: NoiseKind
    noise_multiplier: float

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.noise_multiplier)
        if self.noise == "gaussian" and self.scale < SMALLEST_SIGMA:
            raise PrivacyError(
                f"The grid of {self.query.name!r} is too coarse: sigma is {self.scale:g} grid units.",
                f"Scale the query's integers up until sigma is at least {SMALLEST_SIGMA:g}.",
            )
        if self.scale > LARGEST_SCALE:
            raise PrivacyError(
                f"The noise of {self.query.name!r} does not fit into 64-bit integers: its scale is {self.scale:g}.",
                "Spend more epsilon on it, or ask a query of lower sensitivity (fewer features).",
            )

    @property
    def event(self) -> Event:
        """What one run costs; known before it runs."""
        return noise_event(self.noise, self.noise_multiplier)

    @property
    def scale(self) -> float:
        """sigma or b, in grid units."""
        sensitivity = self.query.l2_sensitivity if self.noise == "gaussian" else self.query.l1_sensitivity
        return math.nextafter(self.noise_multiplier * sensitivity, math.inf)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on one released value."""
        return self.scale / self.query.grid * (1.0 if self.noise == "gaussian" else math.sqrt(2))

    def run(self, data: Data, *, receipt: Receipt, source: NoiseSource) -> NDArray[np.float64]:
        """Pay, sum, add noise: ``Float64[query.shape]`` in the query's own units.

        Raises:
            PrivacyError: if ``receipt`` holds no unused charge of this name and event.
        """
        receipt.pay(self.query.name, self.event)
        return with_noise(self.query.evaluate(data), self.query, noise=self.noise, scale=self.scale, source=source)


@dataclass(frozen=True)
class GroupSum(Generic[Data]):
    """``query`` where one unit is up to ``records`` records, each of which adds one of its vectors.

    Guarantee:
        Unit: all records that hold one secret, at most ``records`` of them.
        Sensitivity: ``records`` times that of ``query``, by the triangle inequality.
    """

    query: IntegerSum[Data]
    records: int

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.query.shape

    @property
    def grid(self) -> float:
        return self.query.grid

    @property
    def l1_sensitivity(self) -> float:
        return self.records * self.query.l1_sensitivity

    @property
    def l2_sensitivity(self) -> float:
        return math.nextafter(self.records * self.query.l2_sensitivity, math.inf)

    def evaluate(self, data: Data) -> NDArray[np.int64]:
        return self.query.evaluate(data)
