"""A noisy sum over records that are drawn at random: sampler, noise and event in one object, so they can't disagree."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from understudy.errors import PrivacyError
from understudy.privacy.checks import require_positive
from understudy.privacy.events import Inclusion, MixtureEvent
from understudy.privacy.mechanisms import LARGEST_SCALE, SMALLEST_SIGMA, Data, Data_contra, with_noise
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Receipt

Draw = Callable[[int], NDArray[np.bool_]]
"""Of the next n records, in the corpus's order: which are drawn."""


class DrawnSum(Protocol[Data_contra]):
    """A query that sums one integer vector a record, over the records that are drawn.

    ``l2_sensitivity`` bounds one record's integer vector, after all rounding.
    """

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def grid(self) -> float: ...
    @property
    def l2_sensitivity(self) -> float: ...
    def evaluate(self, data: Data_contra, draw: Draw) -> NDArray[np.int64]:
        """The exact sum, ``Int64[shape]``. Private: only :class:`SampledSum` may call it."""
        ...


@dataclass(frozen=True)
class SampledSum(Generic[Data]):
    """Draw records independently, sum their integer vectors, add discrete Gaussian noise.

    Guarantee:
        Unit: a secret; neighbours are the corpus with and without all records that hold it.
        Sensitivity: ``query.l2_sensitivity`` in L2 for each *drawn* record of the secret; K of them are drawn, K
        Poisson-binomial with the rates of ``inclusion``. The vectors of drawn records add up to at most K in norm, and
        a mixture of shifted Gaussians is dominated by the one whose shifts all point one way.
        Noise: discrete Gaussian, sigma = noise_multiplier * query.l2_sensitivity, at least SMALLEST_SIGMA grid units.
        Event: :class:`~understudy.privacy.events.MixtureEvent`; every run draws records and noise anew.
        Source: SecPE (Wang et al. 2025); Choquette-Choo et al. 2024 for the domination of mixtures.

    Args:
        query: what is summed.
        rates: the probability of every record, or ``Float64[n]``, one a record of the corpus, in its order.
        inclusion: what ``rates`` means for each secret, as the event states it.
        noise_multiplier: in sensitivities of one record.

    Raises:
        PrivacyError: if the grid does not fit the noise, a rate is no probability, or one rate for all is not the rate
            of ``inclusion``.
    """

    query: DrawnSum[Data]
    rates: float | NDArray[np.float64]
    inclusion: tuple[Inclusion, ...]
    noise_multiplier: float

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.noise_multiplier)
        if not SMALLEST_SIGMA <= self.scale <= LARGEST_SCALE:
            raise PrivacyError(
                f"The grid of {self.query.name!r} does not fit its noise: sigma is {self.scale:g} grid units.",
                "Choose a prior and a posterior that are further apart, or nearer to each other.",
            )
        if not np.all((np.asarray(self.rates) >= 0) & (np.asarray(self.rates) <= 1)):
            raise PrivacyError(
                f"The sum {self.query.name!r} draws with a rate that is no probability.",
                "This is a fault of the method: its rates must lie in [0, 1].",
            )
        stated = {rate for secret in self.inclusion for rate, _ in secret}
        if isinstance(self.rates, float) and stated != {self.rates}:
            raise PrivacyError(
                f"The sum {self.query.name!r} draws with another rate than its event states.",
                "This is a fault of the method: its sampler and its event disagree.",
            )

    @property
    def event(self) -> MixtureEvent:
        """What one run costs; known before it runs."""
        return MixtureEvent(self.noise_multiplier, self.inclusion)

    @property
    def scale(self) -> float:
        """sigma in grid units."""
        return math.nextafter(self.noise_multiplier * self.query.l2_sensitivity, math.inf)

    def run(self, data: Data, *, receipt: Receipt, source: NoiseSource) -> NDArray[np.float64]:
        """Pay, draw, sum, add noise: ``Float64[query.shape]`` in the query's own units.

        Raises:
            PrivacyError: if ``receipt`` holds no unused charge of this name and event, or the corpus does not hold as
                many records as there are rates.
        """
        receipt.pay(self.query.name, self.event)
        coins = _Coins(self.rates, source)
        exact = self.query.evaluate(data, coins)
        coins.finish()
        return with_noise(exact, self.query, noise="gaussian", scale=self.scale, source=source)


class _Coins:
    """One coin a record, in order."""

    def __init__(self, rates: float | NDArray[np.float64], source: NoiseSource) -> None:
        self._rates = rates
        self._source = source
        self._next = 0

    def __call__(self, count: int) -> NDArray[np.bool_]:
        if isinstance(self._rates, float):
            return self._source.include(np.full(count, self._rates))
        rates = self._rates[self._next : self._next + count]
        self._next += count
        if len(rates) < count:
            raise _other_corpus()
        return self._source.include(rates)

    def finish(self) -> None:
        """See that every record had its coin."""
        if not isinstance(self._rates, float) and self._next != len(self._rates):
            raise _other_corpus()


def _other_corpus() -> PrivacyError:
    return PrivacyError(
        "The corpus does not hold as many records as there are inclusion probabilities.",
        "Make the incidence file anew from the corpus as it is now.",
    )
