"""DP-SGD: noisy sums of clipped per-example gradients over Poisson samples. Sampler, noise and event are one object.

Abadi et al. 2016, *Deep learning with differential privacy*, Algorithm 1. The sum is a
:class:`~understudy.privacy.measurement.Query` whose vectors are clipped and rounded to integers, so it is exact in
any order and with any micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, PrivacyError, bug
from understudy.privacy.events import SubsampledGaussianEvent
from understudy.privacy.exact import POSITIVE
from understudy.privacy.measurement import Batches, Query, exact_sum
from understudy.privacy.mechanisms import Sensitivity, out_of_range
from understudy.privacy.noise import NoiseSource, PaidInParts

MOST_STEPS = 1_000_000
_LEAST_CLIP = 1e-6
_PRIORITIES = 2**62
_LARGEST_SCALE = 2.0**49
"""In grid units: noise then stays below 2^53, up to which floating point represents every integer."""


@dataclass(frozen=True)
class DPSGD:
    """Release ``steps`` noisy gradient sums, each over a fresh Poisson sample.

    Guarantee:
        Unit: one of the n units passed to ``sample``: a record, or an owner, of whom one record is then used.
        Neighbours add or remove one. The number n is used for nothing else: a step divides by a declared number.
        Sampling: each unit is included with probability ``rate``, independently of all others and of every other step.
        Sensitivity: an *included* unit adds one vector of integers, of L2 norm at most ``grid`` after clipping
        to ``clipping_norm`` and rounding towards zero. Integers are summed exactly, so the sum with the unit is the sum
        without it plus that vector, bit for bit, if its gradient and those of others do not depend on one another
        (which is probed on the device: :func:`understudy.models.training.require_separate_gradients`).
        Noise: Gaussian on every coordinate, sigma = noise_multiplier * grid, rounded to integers. It is sampled in
        floating point (from the operating system's entropy, by the Box-Muller transform, each number from a separate
        pair): tails end at 12 sigma. Rounding the noise is rounding the noisy sum, hence post-processing. The samples
        are not exactly Gaussian: this is the only approximation, and the statement names it. An empty sample has noise
        like any other.
        Event: ``steps`` releases, each a Gaussian of ``noise_multiplier`` on a Poisson sample of ``rate``. Each may
        depend in any way on earlier releases (adaptive composition).
        Crash: steps whose result was not stored are sampled again, since nobody saw it.
        Source: Abadi et al. 2016, Algorithm 1; Zhu, Dong and Wang 2022 (Poisson sampling, both directions).

    Args:
        noise_multiplier: sigma in clipping norms.
        rate: q in (0, 1], public.
        steps: 1 or more.
        clipping_norm: C > 0, in the L2 norm of one example's whole gradient.

    >>> DPSGD(noise_multiplier=1.0, rate=0.01, steps=100, clipping_norm=1.0).event.count
    100
    """

    noise_multiplier: float
    rate: float
    steps: int
    clipping_norm: float

    kind: ClassVar[str] = "dp-sgd"
    grid: ClassVar[int] = 2**32
    """Integer steps of the clipping norm."""

    def __post_init__(self) -> None:
        if not _LEAST_CLIP <= POSITIVE.of(clipping_norm=self.clipping_norm) <= 1 / _LEAST_CLIP:
            raise ConfigError(
                f"Expected a clipping norm of {_LEAST_CLIP:g} to {1 / _LEAST_CLIP:g}, got {self.clipping_norm}.",
                "Give one near 1: gradients of texts have norms of about 1.",
            )
        object.__setattr__(self, "steps", self.event.count)  # checks the others; JSON may bring a float
        if self.steps > MOST_STEPS:
            raise ConfigError(
                f"{self.steps} steps are planned, but at most {MOST_STEPS} are allowed.", "Plan fewer --steps."
            )
        if not self.noise_multiplier * self.grid <= _LARGEST_SCALE:
            raise out_of_range(f"its noise multiplier is too large ({self.noise_multiplier:g})")

    @cached_property
    def event(self) -> SubsampledGaussianEvent:
        return SubsampledGaussianEvent(self.noise_multiplier, self.rate, self.steps)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Return the sensitivity of the integer sum, which a query must not exceed."""
        return Sensitivity(None, self.grid, self.grid / self.clipping_norm)

    def open(self, source: NoiseSource) -> PaidSteps:
        """Return the steps that a paid charge allows. Only code that has paid the charge may call it."""
        return PaidSteps(self, source)


class PaidSteps(PaidInParts["DPSGD"]):
    """The DP-SGD steps that the run has charged: training takes them here, and each can be taken only once."""

    @property
    def noisy(self) -> bool:
        return self._source.origin != "none"

    def between(self, first: int, last: int) -> Steps:
        """Return the steps after ``first`` up to ``last``, if ``first`` of them are stored already.

        Raises PrivacyError if one of them was requested before, or was not charged.
        """
        if not 0 <= first < last <= self._mechanism.steps:
            raise PrivacyError(
                "Some of the requested steps were not charged.",
                "The run folder comes from another charge: start the release again in a new folder.",
            )
        for number in range(first, last):
            self._once(f"step {number}")
        return Steps(self._mechanism, self._source, last - first)


class Steps:
    """Steps that may be taken in order: a sample, then its noisy sum. One thread at a time."""

    def __init__(self, mechanism: DPSGD, source: NoiseSource, left: int) -> None:
        self._mechanism = mechanism
        self._source = source
        self._sampled = False
        self.left = left

    def sample(self, units: int) -> NDArray[np.bool_]:
        """Return ``Bool[units]``: which units are in the next step's sample.

        Raises PrivacyError if the last sample has not been summed, or no step is left.
        """
        if self._sampled or self.left < 1:
            raise bug(
                "A sample was requested, but no step is left or the last sample was not summed.",
                "each step has one fresh sample",
            )
        self._sampled = True
        return self._source.include(np.full(units, self._mechanism.rate))

    def one_of(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a random number below each entry: which of its records a sampled owner contributes."""
        return self._source.uniform(len(counts), below=_PRIORITIES) % counts

    def without_noise(self) -> None:
        """Discard the last sample, as its result gets no noise and is not private.

        Raises PrivacyError if the run has noise, and so a guarantee.
        """
        if self._source.origin != "none" or not self._sampled:
            raise bug(
                "A training step without noise was requested in a run that has noise.",
                "only a run that is stamped NOT PRIVATE may do so",
            )
        self._sampled = False
        self.left -= 1

    def noisy_sum(self, query: Query[Any], data: Batches[Any]) -> NDArray[np.float64]:
        """Return the sum of ``query`` over the last sample, ``data``, with noise: ``Float64[query.shape]``, unscaled.

        Raises PrivacyError if nothing was sampled for this step, or the sensitivity or grid is not the charged one.
        """
        if not self._sampled:
            raise bug("A noisy sum was requested without a sample.", "each step has one fresh sample")
        paid = self._mechanism.sensitivity
        if not query.sensitivity.within(paid, "gaussian"):
            raise bug(
                "A gradient query is not the one that was planned: its sensitivity or grid differs.",
                "clip to the clipping norm of the mechanism",
            )
        exact = exact_sum(query, data)
        self._sampled = False
        self.left -= 1
        noisy = self._source.added_normal(exact, scale=self._mechanism.noise_multiplier * self._mechanism.grid)
        return np.asarray(noisy / paid.grid, dtype=np.float64)
