"""Release several noisy sums over one Poisson sample of the units, so that only few units are read slowly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, bug
from understudy.privacy.events import SubsampledGaussianEvent
from understudy.privacy.measurement import Batches, Query, SampleOf, measure, take_sample
from understudy.privacy.mechanisms import LEAST_NOISE, SMALLEST_SIGMA, NoisySum, Shape, out_of_range
from understudy.privacy.noise import NoiseSource, PaidInParts
from understudy.privacy.sealed import Arrays


@dataclass(frozen=True)
class SubsampledSums:
    """Add discrete Gaussian noise to integer sums that are all over *one* Poisson sample of the units.

    Guarantee:
        Unit: a record; or an owner, whose records are sampled all together or not at all. Neighbours add or remove one.
        Sampling: each unit is in the sample with probability ``rate``, which is public, independently of all others,
        once for all sums. The sample must stay secret, and it is only used for these sums.
        Sums: each at most once, with the sensitivity of a *sampled* unit. A query may depend in any way on public
        values and on the noisy sums before it, but on the sample in no other way.
        Noise: as of :class:`~understudy.privacy.mechanisms.NoisySum`, whatever ``rate`` is, fresh for each sum.
        Event: one Gaussian of m = (sum of multiplier^-2)^-1/2, at least LEAST_NOISE, on one Poisson sample of ``rate``.
        Condition on the coins of all other units, whose sample is S. All answers are one randomised function M of
        the sample. As an adaptive composition of Gaussian mechanisms M is 1/m-GDP (Dong, Roth and Su 2022, Theorem 3.2
        and Corollary 3.3), which is to say that one randomised map F takes N(0, 1) to M(S) and N(1/m, 1) to M(S with
        the unit) (their Theorem 2.10, of Blackwell). The unit's coin is tossed once, before M, so that
        with the unit the answers are distributed as (1 - rate) M(S) + rate M(S with the unit). That is F of
        (1 - rate) N(0, 1) + rate N(1/m, 1), and without the unit it is F of N(0, 1): the event's pair, either way
        round. S is distributed alike in both datasets, and divergences are jointly convex. Zhu, Dong and Wang 2022,
        Theorem 11, show this for any M that a pair dominates.
        It would be wrong to charge each sum as if it had a fresh sample: a sampled unit is in all of the sums. Nor may
        a sum be over a different sample: a unit would have several chances to be sampled.
        Discrete noise: the excess of delta of one sum falls with the square of its sigma. Each is at least
        SMALLEST_SIGMA sqrt(sums) grid units, so that the excess of all sums together is at most that of one sum, which
        the accountant adds; sampling does not raise that factor (Balle, Barthe and Gaboardi 2018, Theorem 2).

    Args:
        sums: each with a unique name.

    Raises ConfigError if the noise is too small, ``rate`` is not in (0, 1], or a sum has another noise or a used name.

    >>> from understudy.privacy.mechanisms import Sensitivity
    >>> counts = NoisySum("gaussian", 2.0, Sensitivity.of_counts(1), (10,))
    >>> round(SubsampledSums(0.1, (("first", counts), ("second", counts))).event.noise_multiplier, 4)
    1.4142
    """

    rate: float
    sums: tuple[tuple[str, NoisySum], ...]
    kind: ClassVar[str] = "subsampled-sums"

    def __post_init__(self) -> None:
        if not self.sums or len(dict(self.sums)) != len(self.sums) or any(s.noise != "gaussian" for _, s in self.sums):
            raise ConfigError(
                "There are no sums over the sample, or two share a name, or one has other noise than Gaussian.",
                "Give each sum a separate name, and Gaussian noise.",
            )
        if self.event.noise_multiplier < LEAST_NOISE:
            raise out_of_range("so little noise would reveal which units are sampled")
        if min(each.scale for _, each in self.sums) < SMALLEST_SIGMA * math.sqrt(len(self.sums)):
            raise out_of_range("its noise is too small for an integer grid")

    @cached_property
    def event(self) -> SubsampledGaussianEvent:
        try:
            joint = (1 - 1e-15) / math.sqrt(math.fsum(each.noise_multiplier**-2 for _, each in self.sums))
        except (OverflowError, ZeroDivisionError):
            raise out_of_range("no single number says how much noise there is") from None
        return SubsampledGaussianEvent(joint, self.rate, 1)

    @property
    def shape(self) -> tuple[tuple[str, Shape], ...]:
        return tuple((name, each.shape) for name, each in self.sums)

    def open(self, source: NoiseSource) -> PaidSubsampledSums:
        """Return the sums that a paid charge allows. Only code that has paid the charge may call it."""
        return PaidSubsampledSums(self, source)


class PaidSubsampledSums(PaidInParts["SubsampledSums"]):
    """A charged sample of the records and the noisy sums over it; the sample and each sum can be taken only once."""

    _taken = False

    def sample(self, data: Batches[Any], keep: Callable[[Callable[[], Arrays]], Arrays]) -> SampleOf:
        """Return the one sample that all sums are over, also those of a resumed run. Private.

        Args:
            keep: returns the stored sample, or calls its argument and stores the result, before a sum is made.
        """
        kept = keep(lambda: self._drawn(data))
        self._taken = True
        return SampleOf(data, kept)

    def _drawn(self, data: Batches[Any]) -> Arrays:
        self._once("the sample")
        return take_sample(data, self._mechanism.rate, self._source)

    def measure(self, name: str, query: Query[Any], sample: Batches[Any]) -> NDArray[np.float64]:
        """Return the noisy sum of this name: ``Float64[query.shape]``.

        Args:
            sample: the records of :meth:`sample`, or data made from each of these records separately.

        Raises PrivacyError as :func:`~understudy.privacy.measurement.measure`, if no sample was taken, or if the sum
        was made before.
        """
        if not self._taken:
            raise bug(
                f"The sum {name!r} was requested before the sample was taken.", "take the sample before a sum is made"
            )
        self._once(name)
        return measure(dict(self._mechanism.sums)[name], query, sample, source=self._source)
