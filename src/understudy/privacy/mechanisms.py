"""Mechanisms as plain values: typed, without data, each with its event. A charge owns one.

What is summed is a :class:`~understudy.privacy.measurement.Query`; how a mechanism and a query become a noisy value is
in :mod:`understudy.privacy.measurement`.
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
"""In grid units. Beyond it noise may leave the 64-bit integers, where the sampler clamps it, and a sum added to a
clamped value is bare. Here the chance is below e^-63 per value."""

LEAST_NOISE = 0.25
"""Least noise multiplier on a sample: below it the few sampled units would be given away, however rare they are."""

LARGEST_RELEASE = 100_000_000
"""Numbers in one noisy value: 0.8 GB, of which the run's store holds no more in one piece; their noise takes a quarter
of an hour."""

_MOST_DIMENSIONS = 8

COUNT_GRID = 1 << 20
"""Integer steps of 1 in a count."""

Shape = tuple[int | None, ...]
"""None for a dimension that is known only when the value is made (of an embedding, of a population)."""

NEARER = "Choose an epsilon nearer to 1 (to see results without noise there is --insecure-no-noise)."


def out_of_range(problem: str, *, cure: str = NEARER) -> ConfigError:
    """A budget that no mechanism of these parameters can spend."""
    return ConfigError(f"This budget is out of range for these parameters: {problem}.", cure)


class Mechanism(Protocol):
    """What a charge owns: a frozen dataclass of numbers, checked when it is made."""

    kind: ClassVar[str]

    @cached_property
    def event(self) -> Event:
        """What one run costs; known before it runs."""
        ...


@dataclass(frozen=True)
class Sensitivity:
    """How far one unit moves an integer sum: the largest norms of its integer vector, after all rounding.

    Args:
        l1, l2: in grid units; ``l1`` is None where only Gaussian noise is calibrated to it.
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
        """The sensitivity of counts of which a unit raises at most ``cells``, each by 1 at most."""
        return cls(grid * cells, grid if cells == 1 else math.nextafter(grid * math.sqrt(cells), math.inf), grid)

    @classmethod
    def of_shared_weight(cls, noise: NoiseKind, cells: int, *, grid: float = COUNT_GRID) -> Sensitivity:
        """The sensitivity of a weight of 1, in the noise's own norm, that a unit shares out over at most ``cells``.

        Each gets at most 1/sqrt(cells used) for gaussian noise (L2 norm 1), or 1/(cells used) for laplace (L1 norm 1).
        """
        l1 = grid if noise == "laplace" or cells == 1 else math.nextafter(grid * math.sqrt(cells), math.inf)
        return cls(l1, grid, grid)

    def in_blocks(self, blocks: int) -> Sensitivity:
        """That of a unit that adds such a vector to each of ``blocks`` disjoint parts of the sum: L1 norms add up, and
        so do the squares of L2 norms."""
        if blocks == 1:
            return self
        return Sensitivity(
            self.l1 and blocks * self.l1, math.nextafter(math.sqrt(blocks) * self.l2, math.inf), self.grid
        )

    def times(self, records: int) -> Sensitivity:
        """That of a unit of up to ``records`` records, each of which adds one vector (the triangle inequality)."""
        if records == 1:
            return self
        return Sensitivity(self.l1 and records * self.l1, math.nextafter(records * self.l2, math.inf), self.grid)

    def of(self, noise: NoiseKind) -> float:
        """The norm that this noise is calibrated to."""
        if noise == "gaussian":
            return self.l2
        if self.l1 is None:
            raise bug("A sum without an L1 sensitivity has Laplace noise.")
        return self.l1

    def within(self, paid: Sensitivity, noise: NoiseKind) -> bool:
        """Whether noise for ``paid`` is enough."""
        return self.grid == paid.grid and self.of(noise) <= paid.of(noise)


class QuerySpec(Protocol):
    """What a noisy sum is, before any data: the one place that states how far a unit moves it, and its shape.

    A frozen value of public numbers. A charge is planned with it, and the query that is measured is built from it.
    """

    @property
    def sensitivity(self) -> Sensitivity: ...

    @property
    def shape(self) -> Shape: ...


class _Sum:
    """What noisy sums have in common: the noise is a multiple of the norm that it is calibrated to."""

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
        """Standard deviation of the noise on one released value."""
        return self.scale / self.sensitivity.grid * (1.0 if self.noise == "gaussian" else math.sqrt(2))

    def with_noise(self, exact: NDArray[np.int64], source: NoiseSource) -> NDArray[np.float64]:
        """An exact sum with noise, in units of 1.0. Only what has paid may call it."""
        return np.asarray(source.added(exact, self.noise, scale=self.scale) / self.sensitivity.grid, dtype=np.float64)


@dataclass(frozen=True)
class NoisySum(_Sum):
    """Discrete noise on an integer sum.

    Guarantee:
        Unit: whatever one vector of the query stands for (record or owner), or the records of one secret
        (:meth:`Sensitivity.times`); neighbours add or remove one.
        Sensitivity: ``sensitivity.l2`` (gaussian) or ``sensitivity.l1`` (laplace), of the integer vectors after
        rounding. What is summed states its own, which must be no larger.
        Noise: discrete Gaussian with sigma = noise_multiplier * L2 sensitivity, or discrete Laplace with
        scale = noise_multiplier * L1 sensitivity, independent on every coordinate, zero or not.
        Event: (1/noise_multiplier)-GDP for gaussian up to a relative excess of delta below 2e-7, which the accountant
        adds (sigma is at least SMALLEST_SIGMA grid units); exactly (1/noise_multiplier)-DP for laplace.
        Source: Canonne, Kamath and Steinke 2020; Dong, Roth and Su 2022, Theorem 2.7.

    Raises ConfigError if the grid is too coarse for the noise, the noise too large for 64-bit integers, or the sum has
    more than LARGEST_RELEASE numbers.

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
    """All units are summed, none is sampled."""

    @cached_property
    def event(self) -> Event:
        return (
            GaussianEvent(self.noise_multiplier) if self.noise == "gaussian" else PureEvent(1 / self.noise_multiplier)
        )


@dataclass(frozen=True)
class SampledSum(_Sum):
    """Discrete Gaussian noise on an integer sum over records that are sampled independently.

    Guarantee:
        Unit: a secret; neighbours are the corpus with and without all records that hold it.
        Sensitivity: ``sensitivity.l2`` for each *sampled* record of the secret; K of them are sampled, K
        Poisson-binomial with the rates of ``inclusion``. The vectors of sampled records add up to at most K in norm,
        and a mixture of shifted Gaussians is dominated by the one whose shifts all point one way.
        Noise: discrete Gaussian, sigma = noise_multiplier * L2 sensitivity, at least SMALLEST_SIGMA grid units.
        Event: :class:`~understudy.privacy.events.MixtureEvent`; every run samples records and noise again.
        Source: SecPE (Wang et al. 2025); Choquette-Choo et al. 2024 for the domination of mixtures.

    Args:
        inclusion: what the records' rates mean for each secret.
        incidence: SHA-256 of the file that says which record holds which secret, where that is public.

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
    """Discrete Gaussian noise on an integer sum over a Poisson sample of the units.

    Guarantee:
        Unit: a record; or an owner, whose records are all in the sample or none of them. Neighbours add or remove one.
        No secret: its records would be sampled one by one.
        Sampling: each unit is in the sample with probability ``rate``, which is public, independently of all other
        units and afresh in every run. Nobody may learn who is in it: it is used for this sum alone.
        Sensitivity: ``sensitivity.l2``, of a *sampled* unit, in the integer vectors after rounding. What is summed
        states its own, which must be no larger.
        Noise: discrete Gaussian with sigma = noise_multiplier * L2 sensitivity, at least SMALLEST_SIGMA grid units, on
        every coordinate, whatever ``rate`` is. ``noise_multiplier`` is at least LEAST_NOISE.
        Event: one release of a Gaussian of ``noise_multiplier`` on a Poisson sample of ``rate`` (up to the excess of
        delta that the accountant adds). Given the coins of all other units, the value's law with the unit is
        (1 - rate) times that without it plus rate times one at most the sensitivity away; over these coins, which are
        alike in both worlds, divergences are jointly convex.
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
            raise out_of_range("who is sampled would be given away")
        super().__post_init__()

    @cached_property
    def event(self) -> SubsampledGaussianEvent:
        return SubsampledGaussianEvent(self.noise_multiplier, self.rate, 1)


@dataclass(frozen=True)
class Declared:
    """A mechanism that is known by its event alone: a third party's, whose code samples its own noise.

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
    """See that a value can be stored, and its noise sampled, before anything is charged.

    Raises ConfigError if it has more than LARGEST_RELEASE numbers.
    """
    numbers = 1
    for size in shape if len(shape) <= _MOST_DIMENSIONS else (LARGEST_RELEASE + 1,):
        if size is not None and size < 0:
            raise ConfigError("One noisy value would have a negative size.", cure)
        numbers = min(numbers, LARGEST_RELEASE + 1) * min(1 if size is None else size, LARGEST_RELEASE + 1)
    if numbers > LARGEST_RELEASE:
        raise ConfigError(
            f"One noisy value would hold {numbers:.3g} numbers, and {LARGEST_RELEASE:.0e} is the most.", cure
        )
