"""Several noisy sums over one Poisson sample of the units, one after another: what is slow to read is read of few."""

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
    """Discrete Gaussian noise on integer sums that are all over *one* Poisson sample of the units.

    Guarantee:
        Unit: a record; or an owner, whose records are all in the sample or none of them. Neighbours add or remove one.
        Sampling: each unit is in the sample with probability ``rate``, which is public, independently of all others,
        once for all sums. Nobody may learn who is in it, and nothing but these sums is made of it.
        Sums: each at most once, with the sensitivity that a *sampled* unit has. What is summed may follow in any way
        from public values and from the noisy sums before it; from the sample by no other way.
        Noise: as of :class:`~understudy.privacy.mechanisms.NoisySum`, whatever ``rate`` is, fresh for each sum.
        Event: one Gaussian of m = (sum of multiplier^-2)^-1/2, at least LEAST_NOISE, on one Poisson sample of ``rate``.
        Given the coins of all other units, whose sample is S: all answers together are one randomised function M of
        the sample. As an adaptive composition of Gaussian mechanisms M is 1/m-GDP (Dong, Roth and Su 2022, Theorem 3.2
        and Corollary 3.3), which is to say that one randomised map F takes N(0, 1) to M(S) and N(1/m, 1) to M(S with
        the unit) (their Theorem 2.10, of Blackwell). The unit's coin falls before M and holds for all of it, so that
        with the unit the answers are distributed as (1 - rate) M(S) + rate M(S with the unit). That is F of
        (1 - rate) N(0, 1) + rate N(1/m, 1), and without the unit it is F of N(0, 1): the event's pair, either way
        round. The law of S is the same in both worlds, and divergences are jointly convex. Zhu, Dong and Wang 2022,
        Theorem 11, say so of any M that a pair dominates.
        It would be wrong to charge each sum as one over a sample of its own: a unit that is in is in all of them. Nor
        may a sum be over another sample: a unit would have several chances to be in.
        Discrete noise: the excess of delta of one sum falls with the square of its sigma. Each is at least
        SMALLEST_SIGMA sqrt(sums) grid units, so that all sums exceed by no more than one may, which the accountant
        adds; sampling raises no such factor (Balle, Barthe and Gaboardi 2018, Theorem 2).

    Args:
        sums: each with its name, no two alike.

    Raises ConfigError if the noise is too little, ``rate`` is not in (0, 1], or the sums are not as said.

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
            raise ConfigError("Sums over one sample lack names of their own, or Gaussian noise.", "Plan them so.")
        if self.event.noise_multiplier < LEAST_NOISE:
            raise out_of_range("who is sampled would be given away")
        if min(each.scale for _, each in self.sums) < SMALLEST_SIGMA * math.sqrt(len(self.sums)):
            raise out_of_range("its noise is too small for an integer grid")

    @cached_property
    def event(self) -> SubsampledGaussianEvent:
        try:
            joint = (1 - 1e-15) / math.sqrt(math.fsum(each.noise_multiplier**-2 for _, each in self.sums))
        except (OverflowError, ZeroDivisionError):
            raise out_of_range("no number says how much noise there is") from None
        return SubsampledGaussianEvent(joint, self.rate, 1)

    @property
    def shape(self) -> tuple[tuple[str, Shape], ...]:
        return tuple((name, each.shape) for name, each in self.sums)

    def open(self, source: NoiseSource) -> PaidSubsampledSums:
        """What a paid charge gives. Only what has paid may call it."""
        return PaidSubsampledSums(self, source)


class PaidSubsampledSums(PaidInParts["SubsampledSums"]):
    """A charge that was paid: a sample, and each sum over it, once."""

    _taken = False

    def sample(self, data: Batches[Any], keep: Callable[[Callable[[], Arrays]], Arrays]) -> SampleOf:
        """The one sample that all sums are over, also those of a run that is resumed. Private.

        Args:
            keep: returns what is stored, or calls what it is given and stores what that returns, before a sum is made.
        """
        kept = keep(lambda: self._drawn(data))
        self._taken = True
        return SampleOf(data, kept)

    def _drawn(self, data: Batches[Any]) -> Arrays:
        self._once("the sample")
        return take_sample(data, self._mechanism.rate, self._source)

    def measure(self, name: str, query: Query[Any], sample: Batches[Any]) -> NDArray[np.float64]:
        """The noisy sum of this name: ``Float64[query.shape]``.

        Args:
            sample: the records of :meth:`sample`, or what is made of each of them alone.

        Raises PrivacyError as :func:`~understudy.privacy.measurement.measure`, if no sample was taken, or if the sum
        was made before.
        """
        if not self._taken:
            raise bug(f"The sum {name!r} would be over all units.", "the sample is taken before a sum is made")
        self._once(name)
        return measure(dict(self._mechanism.sums)[name], query, sample, source=self._source)
