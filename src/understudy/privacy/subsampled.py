"""Choose tokens by many small random subsets of the private records: few-shot examples with privacy.

Tang et al. 2024, *Privacy-preserving in-context learning with differentially private few-shot generation*: for each
token a fresh sample of the records is divided into subsets, each subset's prompt gives a distribution over public
candidates (or one vote), and the noisy sum decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, PrivacyError, bug
from understudy.privacy.accountant import DISCRETE_EXCESS, Composition, pure_split
from understudy.privacy.events import GaussianEvent, SubsampledGaussianEvent, SubsampledPureEvent, epsilon_of
from understudy.privacy.exact import POSITIVE
from understudy.privacy.guarantee import Budget, gaussian_noise_multiplier
from understudy.privacy.mechanisms import LARGEST_SCALE, LEAST_NOISE, SMALLEST_SIGMA, out_of_range
from understudy.privacy.noise import NoiseSource, PaidInParts, require_utilities
from understudy.privacy.search import TOLERANCE, edge, log_ratio

SubsetNoise = Literal["gaussian", "votes"]

_UP = 1 + 2**-48  # more than all rounding of the few products below: noise is never less than is charged


@dataclass(frozen=True)
class SubsampledTokens:
    """Choose ``tokens`` tokens, each by ``subsets`` subsets of a fresh Poisson sample: sampler, noise and event in one.

    Guarantee:
        Unit: one of the n units passed to ``sample``: a record, or an owner, of whom one record is then sampled.
        Neighbours add or remove one; n is not used for anything else.
        Sampling: each unit is sampled with probability ``rate`` and joins one subset, uniform over all ``subsets``,
        both independently of all other units (if an ordered sample were divided into equal parts, one unit would move
        all that follow it). A subset may use its units in any way, such as keeping a few of them at random.
        Sensitivity: a *sampled* unit changes the answer of one subset. gaussian: sqrt(2) ``grid`` in L2, since a
        subset adds a vector of non-negative integers that sum to at most ``grid``, and two such vectors are at most
        that far apart (their inner product is not negative). votes: 1 in L-infinity, since a subset adds 1 to one
        candidate. An empty subset gives the model's answer without private text, and counts like any other.
        Noise: gaussian: discrete Gaussian on every candidate's sum, sigma = sqrt(2) noise_multiplier grid, at least
        SMALLEST_SIGMA grid units, and the largest noisy sum is chosen. votes: the exponential mechanism on the counts
        with scale 2 / noise_multiplier.
        Event: ``tokens`` releases, each a Gaussian of ``noise_multiplier`` on a Poisson sample (up to the excess of
        delta that the accountant adds), or pure DP of epsilon ``noise_multiplier`` on one. Given the coins of all
        other units, a token's distribution with the unit is (1 - rate) times that without it, plus rate times one
        at the distance above. The earlier tokens may depend on the data in any way (adaptive composition).
        Labels: one charge pays for ``tokens`` tokens of each label, counted per label, if each unit is in one label:
        its presence moves only one of the independent mechanisms (parallel composition). An owner has one record.
        Crash: a token that was not stored is sampled and chosen again, since nobody saw it.
        Source: Tang et al. 2024, Algorithm 2; Zhu, Dong and Wang 2022 (Poisson sampling, both directions); Balle,
        Barthe and Gaboardi 2018.

    Args:
        noise: ``gaussian`` on sums of probabilities, or ``votes``.
        subsets: M, 1 or more.
        noise_multiplier: gaussian: sigma, in sensitivities; votes: epsilon of one choice on its sample.
        rate: q in (0, 1], public.
        tokens: the most that are chosen; 1 or more.

    >>> SubsampledTokens("gaussian", 10, 1.0, 0.01, 500).event.count
    500
    """

    noise: SubsetNoise
    subsets: int
    noise_multiplier: float
    rate: float
    tokens: int

    kind: ClassVar[str] = "subsampled-tokens"
    grid: ClassVar[int] = 2**20
    """Integer steps of probability 1 in one subset's vector (gaussian)."""

    def __post_init__(self) -> None:
        POSITIVE.of(subsets=self.subsets)
        _ = self.event  # checks rate, tokens and noise
        smallest = SMALLEST_SIGMA if self.noise == "gaussian" else 0.0
        if not smallest <= self.scale <= LARGEST_SCALE / self.subsets:
            raise out_of_range(f"its noise does not fit the integer grid ({self.scale:g} grid units)")

    @cached_property
    def event(self) -> SubsampledGaussianEvent | SubsampledPureEvent:
        if self.noise == "gaussian":
            return SubsampledGaussianEvent(self.noise_multiplier, self.rate, self.tokens)
        return SubsampledPureEvent(self.noise_multiplier, self.rate, self.tokens)

    @property
    def scale(self) -> float:
        """Return sigma in grid units, or the divisor of vote counts."""
        if self.noise == "gaussian":
            return math.sqrt(2) * self.noise_multiplier * self.grid * _UP
        return 2 / self.noise_multiplier * _UP

    def open(self, source: NoiseSource) -> PaidSubsampledTokens:
        """Return the tokens that a paid charge allows, once for all labels. Only code that has paid may call it."""
        return PaidSubsampledTokens(self, source)


class PaidSubsampledTokens(PaidInParts["SubsampledTokens"]):
    """The charged subsampled tokens: each label takes its share here, and only once."""

    def label(self, number: int, *, spent: int = 0) -> LabelTokens:
        """Return the remaining tokens of the label ``number``, whose stored examples contain ``spent`` tokens.

        Raises PrivacyError if the label was requested before, or more tokens are stored than were charged.
        """
        self._once(f"label {number}")
        return LabelTokens(self._mechanism, self._source, spent=spent)


_PRIORITIES = 2**62


@dataclass(frozen=True, repr=False)
class Sample:
    """The coins of each unit, independent of all other units'. Private; its ``repr`` shows nothing.

    Args:
        included: ``Bool[n]``, whether it is in the sample.
        subset: ``Int64[n]``, the subset that it would join.
        priority: ``Int64[n]``, uniform: the order of a subset's units.
    """

    included: NDArray[np.bool_]
    subset: NDArray[np.int64]
    priority: NDArray[np.int64]


class LabelTokens:
    """The tokens of one label, each counted as it is chosen. One thread at a time."""

    def __init__(self, mechanism: SubsampledTokens, source: NoiseSource, *, spent: int) -> None:
        if not 0 <= spent <= mechanism.tokens:
            raise PrivacyError(
                "The stored examples contain more tokens than were charged.",
                "The run folder comes from another charge: start the release again in a new folder.",
            )
        self._mechanism = mechanism
        self._source = source
        self._sampled = False
        self.spent = spent

    @property
    def left(self) -> int:
        """Return how many tokens may still be chosen."""
        return self._mechanism.tokens - self.spent

    def sample(self, units: int) -> Sample:
        """Return a fresh sample, for the next token only.

        Raises PrivacyError if no token was chosen by the last sample, or no token is left.
        """
        if self._sampled or self.left < 1:
            raise bug(
                "A sample was requested, but no token is left or the last sample has not chosen one.",
                "each token has one fresh sample",
            )
        self._sampled = True
        included = self._source.include(np.full(units, self._mechanism.rate))
        subset = self._source.uniform(units, below=self._mechanism.subsets)
        return Sample(included, subset, self._source.uniform(units, below=_PRIORITIES))

    def skip(self) -> None:
        """Discard the last sample, of which nothing was used, without choosing a token."""
        self._sampled = False

    def choose(self, sums: NDArray[np.int64]) -> int:
        """Return the index of the candidate that the last sample chooses.

        Args:
            sums: ``Int64[candidates]``, over all subsets: probabilities on ``grid``, or votes.

        Raises PrivacyError if no sample was taken for this token, or ``sums`` cannot be a sum over the subsets.
        """
        if not self._sampled:
            raise bug("A token was requested without a sample.", "each token has one fresh sample")
        require_utilities(sums)
        gaussian = self._mechanism.noise == "gaussian"
        most = self._mechanism.subsets * (self._mechanism.grid if gaussian else 1)
        if sums.min() < 0 or sum(sums.tolist()) > most:
            raise bug(
                "The subsets add more than they may: their sum is not within its grid.",
                "a subset's integers are 0 or more and sum to its grid at most",
            )
        self._sampled = False
        self.spent += 1
        if not gaussian:
            return self._source.choose(sums, scale=self._mechanism.scale)
        return int(np.argmax(self._source.added(sums, "gaussian", scale=self._mechanism.scale)))


@lru_cache(maxsize=16)
def subsampled_multiplier(budget: Budget, *, rate: float, count: int, others: tuple[GaussianEvent, ...] = ()) -> float:
    """Return the smallest noise multiplier (to a thousandth, never less) at which ``count`` releases fit ``budget``.

    A release is a token or, in DP-SGD, a step. ``others`` are further Gaussian events of the same plan. The multiplier
    is at least a quarter: less noise could reveal the few sampled units. Raises ConfigError if delta is
    0, or the others spend the whole budget.
    """
    if budget.delta == 0:
        raise ConfigError(
            "Gaussian noise cannot give pure differential privacy (delta = 0).",
            "Give a delta such as 1e-6, or choose votes, which need no delta.",
        )
    _ = SubsampledGaussianEvent(1.0, rate, count)  # checks the two
    whole = gaussian_noise_multiplier(float(budget.epsilon), float(budget.delta))
    most = max(whole * math.sqrt(count), LEAST_NOISE)  # as if every unit were sampled each time
    # Bu, Dong, Long and Su 2020: about mu-GDP, mu = rate sqrt(count (e^(1/multiplier^2) - 1))
    near = 1 / math.sqrt(math.log1p(1 / (whole * rate) ** 2 / count))
    found = edge(
        lambda multiplier: coarse_excess(budget, SubsampledGaussianEvent(multiplier, rate, count), others),
        near=min(max(near, LEAST_NOISE), most),
        safe=most * _MORE,
        unsafe=LEAST_NOISE,
    )
    if found is None:
        raise ConfigError("The other releases spend the whole budget.", "Give it a smaller share.")
    while (
        Composition((*others, SubsampledGaussianEvent(found, rate, count))).epsilon(float(budget.delta))
        > budget.epsilon
    ):
        found *= _ONE_MORE_TOLERANCE
    return found


_MORE = 2.0**20
"""The noise may be this many times larger with other events, or if the losses of a step are finer than their grid."""
_ONE_MORE_TOLERANCE = 1 + TOLERANCE


def coarse_excess(budget: Budget, event: SubsampledGaussianEvent, others: tuple[GaussianEvent, ...]) -> float:
    """Return ln(epsilon of the events / the budget's), by losses on a grid that is coarser than the accountant's.

    The result is a little higher than the accountant's, and five times as fast.
    """
    epsilon = float(budget.epsilon)
    delta = float(budget.delta) / (1 + DISCRETE_EXCESS * (event.count + len(others)))
    interval = min(max(epsilon / 3000, 1e-4), 2e-3)
    loss = event.to_pld(interval=interval)
    for other in others:
        loss = loss.compose(other.to_pld(interval=interval))
    return log_ratio(epsilon_of(loss, delta), epsilon)


_MOST_EPSILON = 20.0


@lru_cache(maxsize=16)
def votes_epsilon(budget: Budget, *, rate: float, count: int) -> float:
    """Return the largest epsilon of one choice (to a thousandth) at which ``count`` fit ``budget``; delta may be 0.

    Never more than fits, and at most 20, for the same reason that :func:`subsampled_multiplier` has a minimum.
    """
    most = math.log1p(rate * math.expm1(_MOST_EPSILON))
    each = min(pure_split(budget, [1.0] * count)[0] * (1 - 1e-9), most)

    def excess(each: float) -> float:
        event = SubsampledPureEvent(_before_sampling(each, rate), rate, count)
        return log_ratio(Composition((event,)).epsilon(float(budget.delta)), float(budget.epsilon))

    if budget.delta > 0:
        each = edge(excess, near=each, safe=each * (1 - TOLERANCE), unsafe=most) or each
    while excess(each) > 0:
        each /= _ONE_MORE_TOLERANCE
    return _before_sampling(each, rate)


def _before_sampling(each: float, rate: float) -> float:
    """Return epsilon with ln(1 + rate (e^epsilon - 1)) = ``each``."""
    return math.log1p(math.expm1(each) / rate)
