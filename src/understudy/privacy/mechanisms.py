"""Define the mechanisms as plain values: typed, without data, each with its event. Each charge owns one.

A :class:`~understudy.privacy.measurement.Query` says what is summed. :mod:`understudy.privacy.measurement` turns a
mechanism and a query into a noisy value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, bug
from understudy.privacy.events import (
    Event,
    GaussianEvent,
    Inclusion,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
)
from understudy.privacy.exact import POSITIVE
from understudy.privacy.noise import NoiseKind, NoiseSource

SMALLEST_SIGMA = 16384.0
"""In grid units. Below it a discrete Gaussian is noticeably worse than the continuous one it is accounted as: at 4096
units the excess of delta passes 2e-7 for epsilon above 50 and delta of 1e-12, here it stays below 5e-8."""

LARGEST_SCALE = 2.0**57
"""In grid units. Beyond it, noise may leave the 64-bit integers. The sampler then clamps it, and a clamped value does
not protect the sum it is added to. At this scale the chance is below e^-63 per value."""

LEAST_NOISE = 0.25
"""Least noise multiplier on a sample. Less noise would reveal the few sampled units, however low the rate is."""

LARGEST_RELEASE = 100_000_000
"""Most numbers in one noisy value: 0.8 GB, the most that the run's store keeps in one piece. Sampling their noise takes
a quarter of an hour."""

_MOST_DIMENSIONS = 8

COUNT_GRID = 1 << 20
"""Integer steps of 1 in a count."""

Shape = tuple[int | None, ...]
"""None for a dimension that is only known when the value is made (that of an embedding or a population)."""

NEARER = "Choose an epsilon nearer to 1 (to see results without noise there is --insecure-no-noise)."


def out_of_range(problem: str, *, cure: str = NEARER) -> ConfigError:
    """Return the error for a budget that no mechanism with these parameters can spend; ``problem`` says why."""
    return ConfigError(f"This budget is out of range for these parameters: {problem}.", cure)


class Mechanism(Protocol):
    """The mechanism of a charge: a frozen dataclass of numbers, which checks them when it is made."""

    kind: ClassVar[str]

    @cached_property
    def event(self) -> Event:
        """Return the cost of one run, which is known before it runs."""
        ...


@dataclass(frozen=True)
class Sensitivity:
    """Bound how far one unit moves an integer sum: the largest norms of its integer vector, after all rounding.

    Args:
        l1, l2: in grid units; ``l1`` is None if only Gaussian noise is calibrated to it.
        grid: how many integer steps make 1.0 of the released value.

    >>> Sensitivity.of_counts(4, grid=1)
    Sensitivity(l1=4.0, l2=2.0000000000000004, grid=1.0)
    >>> Sensitivity.of_counts(4, grid=1).within(Sensitivity(4, 3), "gaussian")
    True
    """

    l1: float | None
    l2: float
    grid: float = 1.0

    def __post_init__(self) -> None:
        for name in ("l1", "l2", "grid"):  # one form in JSON, whatever they were computed from
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, float(POSITIVE.of(**{name: value})))

    @classmethod
    def of_counts(cls, cells: int, *, grid: float = COUNT_GRID) -> Sensitivity:
        """Return the sensitivity of counts if one unit raises at most ``cells`` of them, each by at most 1."""
        return cls(grid * cells, grid if cells == 1 else math.nextafter(grid * math.sqrt(cells), math.inf), grid)

    @classmethod
    def of_shared_weight(cls, noise: NoiseKind, cells: int, *, grid: float = COUNT_GRID) -> Sensitivity:
        """Return the sensitivity if a unit divides a weight of 1, in the noise's norm, over at most ``cells`` cells.

        Each gets at most 1/sqrt(cells used) for gaussian noise (L2 norm 1), or 1/(cells used) for laplace (L1 norm 1).
        """
        l1 = grid if noise == "laplace" or cells == 1 else math.nextafter(grid * math.sqrt(cells), math.inf)
        return cls(l1, grid, grid)

    def in_blocks(self, blocks: int) -> Sensitivity:
        """Return the sensitivity if a unit adds such a vector to each of ``blocks`` disjoint parts of the sum.

        L1 norms add up, and so do the squares of L2 norms."""
        if blocks == 1:
            return self
        return Sensitivity(
            self.l1 and blocks * self.l1, math.nextafter(math.sqrt(blocks) * self.l2, math.inf), self.grid
        )

    def times(self, records: int) -> Sensitivity:
        """Return the sensitivity if a unit has up to ``records`` records of one vector each (triangle inequality)."""
        if records == 1:
            return self
        return Sensitivity(self.l1 and records * self.l1, math.nextafter(records * self.l2, math.inf), self.grid)

    def of(self, noise: NoiseKind) -> float:
        """Return the norm that this noise is calibrated to."""
        if noise == "gaussian":
            return self.l2
        if self.l1 is None:
            raise bug("A sum without an L1 sensitivity has Laplace noise.")
        return self.l1

    def within(self, paid: Sensitivity, noise: NoiseKind) -> bool:
        """Return whether noise that was calibrated to the sensitivity ``paid`` is enough for this one."""
        return self.grid == paid.grid and self.of(noise) <= paid.of(noise)


class QuerySpec(Protocol):
    """Describe a noisy sum before any data is read: the one place that states its sensitivity and its shape.

    A frozen value of public numbers. The charge is planned with it, and the measured query is built from it.
    """

    @property
    def sensitivity(self) -> Sensitivity: ...

    @property
    def shape(self) -> Shape: ...


class _Sum:
    """Base of the noisy sums: their noise is a multiple of the norm that it is calibrated to."""

    noise: NoiseKind
    noise_multiplier: float
    sensitivity: Sensitivity
    shape: Shape
    cure: ClassVar[str] = NEARER
    """What to do if the noise does not fit its grid."""

    def __post_init__(self) -> None:
        POSITIVE.of(noise_multiplier=self.noise_multiplier)
        require_scale(self.scale, least=SMALLEST_SIGMA if self.noise == "gaussian" else 0.0, cure=self.cure)
        require_releasable(self.shape)

    @property
    def scale(self) -> float:
        return math.nextafter(self.noise_multiplier * self.sensitivity.of(self.noise), math.inf)

    @property
    def noise_std(self) -> float:
        """Return the standard deviation of the noise on one released value."""
        return self.scale / self.sensitivity.grid * (1.0 if self.noise == "gaussian" else math.sqrt(2))

    def with_noise(self, exact: NDArray[np.int64], source: NoiseSource) -> NDArray[np.float64]:
        """Return an exact sum with noise, in units of 1.0. Only code that has paid the charge may call it."""
        return np.asarray(source.added(exact, self.noise, scale=self.scale) / self.sensitivity.grid, dtype=np.float64)


@dataclass(frozen=True)
class NoisySum(_Sum):
    """Add discrete noise to an integer sum.

    Guarantee:
        Unit: the record or owner that one vector of the query represents, or the records of one secret
        (:meth:`Sensitivity.times`); neighbours add or remove one.
        Sensitivity: ``sensitivity.l2`` (gaussian) or ``sensitivity.l1`` (laplace), of the integer vectors after
        rounding. The query states its sensitivity, which must not be larger.
        Noise: discrete Gaussian with sigma = noise_multiplier * L2 sensitivity, or discrete Laplace with
        scale = noise_multiplier * L1 sensitivity, independent on every coordinate, zero or not.
        Event: (1/noise_multiplier)-GDP for gaussian up to a relative excess of delta below 2e-7, which the accountant
        adds (sigma is at least SMALLEST_SIGMA grid units); exactly (1/noise_multiplier)-DP for laplace.
        Source: Canonne, Kamath and Steinke 2020; Dong, Roth and Su 2022, Theorem 2.7.

    Raises ConfigError if the grid is too coarse for the noise, if the noise is too large for 64-bit integers, or if the
    sum has more than LARGEST_RELEASE numbers.

    >>> counts = NoisySum("gaussian", 2.0, Sensitivity.of_counts(4), (100,))
    >>> round(counts.noise_std, 6), counts.event
    (4.0, GaussianEvent(noise_multiplier=2.0))
    """

    noise: NoiseKind
    noise_multiplier: float
    sensitivity: Sensitivity
    shape: Shape
    kind: ClassVar[str] = "noisy-sum"
    rate: ClassVar[float] = 1.0
    """All units are summed; there is no sampling."""

    @cached_property
    def event(self) -> Event:
        return (
            GaussianEvent(self.noise_multiplier) if self.noise == "gaussian" else PureEvent(1 / self.noise_multiplier)
        )


@dataclass(frozen=True)
class SampledSum(_Sum):
    """Add discrete Gaussian noise to an integer sum over records that are sampled independently.

    Guarantee:
        Unit: a secret; neighbours are the corpus with and without all records that contain it.
        Sensitivity: ``sensitivity.l2`` for each *sampled* record of the secret; K of them are sampled, K
        Poisson-binomial with the rates of ``inclusion``. The vectors of sampled records add up to at most K in norm,
        and a mixture of shifted Gaussians is dominated by the one whose shifts all point one way.
        Noise: discrete Gaussian, sigma = noise_multiplier * L2 sensitivity, at least SMALLEST_SIGMA grid units.
        Event: :class:`~understudy.privacy.events.MixtureEvent`; every run samples records and noise again.
        Source: SecPE (Wang et al. 2025); Choquette-Choo et al. 2024 for the domination of mixtures.

    Args:
        inclusion: the sampling rates of each secret's records.
        incidence: SHA-256 of the file that says which record contains which secret, if that is public.

    Raises ConfigError as :class:`NoisySum`.

    >>> SampledSum(2.0, (((0.5, 3),),), Sensitivity.of_counts(1), (10,)).event.rho
    1.125
    """

    noise_multiplier: float
    inclusion: tuple[Inclusion, ...]
    sensitivity: Sensitivity
    shape: Shape
    incidence: str | None = None
    kind: ClassVar[str] = "sampled-sum"
    noise: ClassVar[NoiseKind] = "gaussian"  # type: ignore[misc]  # no field
    cure: ClassVar[str] = "Choose a prior and a posterior that are nearer to each other, or further apart."

    @cached_property
    def event(self) -> MixtureEvent:
        return MixtureEvent(self.noise_multiplier, self.inclusion)


@dataclass(frozen=True)
class SubsampledSum(_Sum):
    """Add discrete Gaussian noise to an integer sum over a Poisson sample of the units.

    Guarantee:
        Unit: a record; or an owner, whose records are sampled all together or not at all. Neighbours add or remove one.
        A secret cannot be the unit: its records would be sampled one by one.
        Sampling: each unit is in the sample with probability ``rate``, which is public, independently of all other
        units and again in every run. The sample must stay secret: it is used for this sum only.
        Sensitivity: ``sensitivity.l2``, of a *sampled* unit, in the integer vectors after rounding. The query states
        its sensitivity, which must not be larger.
        Noise: discrete Gaussian with sigma = noise_multiplier * L2 sensitivity, at least SMALLEST_SIGMA grid units, on
        every coordinate, whatever ``rate`` is. ``noise_multiplier`` is at least LEAST_NOISE.
        Event: one release of a Gaussian of ``noise_multiplier`` on a Poisson sample of ``rate`` (up to the excess of
        delta that the accountant adds). Condition on the coins of all other units. The value's distribution with the
        unit is then (1 - rate) times that without it, plus rate times one that is shifted by at most the sensitivity.
        The other coins have the same distribution in both datasets, and divergences are jointly convex.
        Source: Balle, Barthe and Gaboardi 2018; Mironov, Talwar and Zhang 2019; Zhu, Dong and Wang 2022, Theorem 11
        (Poisson sampling, both directions).

    Raises ConfigError as :class:`NoisySum`, or if the noise is less than LEAST_NOISE, or ``rate`` is not in (0, 1].

    >>> print(SubsampledSum(2.0, 0.1, Sensitivity.of_counts(1), (10,)).event)
    Gaussian noise, noise multiplier 2, once on a Poisson sample of rate 0.1
    """

    noise_multiplier: float
    rate: float
    sensitivity: Sensitivity
    shape: Shape
    kind: ClassVar[str] = "subsampled-sum"
    noise: ClassVar[NoiseKind] = "gaussian"  # type: ignore[misc]  # no field

    def __post_init__(self) -> None:
        _ = self.event  # checks multiplier and rate
        if self.noise_multiplier < LEAST_NOISE:
            raise out_of_range("so little noise would reveal which units are sampled")
        super().__post_init__()

    @cached_property
    def event(self) -> SubsampledGaussianEvent:
        return SubsampledGaussianEvent(self.noise_multiplier, self.rate, 1)


@dataclass(frozen=True)
class Declared:
    """Declare a mechanism by its event only: one from a third party, whose code samples the noise itself.

    >>> Declared(PureEvent(0.5)).event.pure_epsilon
    0.5
    """

    event: Event
    kind: ClassVar[str] = "declared"


def require_scale(scale: float, *, least: float, cure: str = NEARER) -> None:
    if scale < least:
        raise out_of_range(f"its noise is too small for an integer grid ({scale:g} grid units)", cure=cure)
    if not scale <= LARGEST_SCALE:
        raise out_of_range(f"its noise does not fit into 64-bit integers ({scale:g} grid units)", cure=cure)


def require_releasable(shape: Shape, *, cure: str = "Declare fewer labels, or ask for less.") -> None:
    """Check that a value can be stored and its noise sampled, before anything is charged.

    Raises ConfigError if it has more than LARGEST_RELEASE numbers.
    """
    numbers = 1
    for size in shape if len(shape) <= _MOST_DIMENSIONS else (LARGEST_RELEASE + 1,):
        if size is not None and size < 0:
            raise ConfigError("One noisy value would have a negative size.", cure)
        numbers = min(numbers, LARGEST_RELEASE + 1) * min(1 if size is None else size, LARGEST_RELEASE + 1)
    if numbers > LARGEST_RELEASE:
        raise ConfigError(
            f"One noisy value would have {numbers:.3g} numbers; the limit is {LARGEST_RELEASE:.0e}.", cure
        )
