"""Estimating which of many noisy sums are real, and the expectation of each: empirical Bayes.

The model is spike and slab: a true value is 0 with probability 1 - p, and else exponential with mean b. Both numbers
are estimated from the noisy values themselves by expectation maximisation, and the noise is known. All of it is
post-processing of noisy values: no guarantee depends on the model, and if it is wrong, the results are less useful.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.base.lazy import special
from understudy.privacy.noise import NoiseKind

Values = NDArray[np.float64]

FIRST_BIN = 64  # terms in the first bin of ranks; every further one ends at twice the rank
_FITTED = 1 << 17  # largest number of values from which two numbers are estimated
_SMALLEST, _LARGEST = -1e3, 1e100  # in units of the noise: nothing is lost below, and squares are finite
_ROUNDS = 100


@dataclass(frozen=True)
class Posterior:
    """Estimates from noisy values: the expected true values, and the probability that each is not 0."""

    probability: Values  # probability that the true value is not 0
    mean: Values  # the true value's expectation: 0 and above


@dataclass(frozen=True)
class KnownNoise:
    """The noise on every value: its distribution, and its standard deviation (0 if noise is off)."""

    kind: NoiseKind
    std: float


@dataclass(frozen=True)
class SpikeAndSlab:
    """The assumed distribution of true values, in units of the noise: 0 with probability 1 - ``share``, else
    exponential with mean ``slab_mean``.

    ``prior_real`` of ``prior_values`` values are added when the share is estimated, so that it is never 0 or 1.
    """

    share: float
    slab_mean: float
    prior_real: float = 0.5
    prior_values: float = 1.0
    least_mean: float = 0.3

    def fitted(self, values: Values, kind: NoiseKind) -> SpikeAndSlab:
        """Return the same model with the share and mean that make ``values`` (in units of the noise) most likely."""
        share, mean = self.share, self.slab_mean
        for _ in range(_ROUNDS):
            real, slab = _posterior(values, share, mean, kind)
            total = float(real.sum())
            previous = share, mean
            share = (total + self.prior_real) / (values.size + self.prior_values)
            mean = max(float((real * slab).sum()) / max(total, 1e-9), self.least_mean)
            if abs(share - previous[0]) < 1e-5 and abs(mean - previous[1]) < 1e-3 * mean:
                break
        return SpikeAndSlab(share, mean, self.prior_real, self.prior_values, self.least_mean)

    def posterior(self, values: Values, kind: NoiseKind) -> Posterior:
        """Return the posterior of ``values`` in units of the noise."""
        real, slab = _posterior(values, self.share, self.slab_mean, kind)
        return Posterior(real, real * slab)


def shrink(values: Values, noise: KnownNoise) -> Posterior:
    """Return the posterior of terms' noisy scores ``[..., terms]``, with the terms likelier to be real first.

    Terms of similar rank share a model, for all kinds of scores: the first :data:`FIRST_BIN`, then bins that double the
    total each time. So a rare term needs a larger score than a frequent one to count as real. If the terms are in
    another order, all bins become similar and only this precision is lost.
    """
    if noise.std == 0:
        return Posterior((values > 0).astype(np.float64), np.maximum(values, 0.0))
    with np.errstate(over="ignore"):
        scaled = np.clip(np.asarray(values, dtype=np.float64) / noise.std, _SMALLEST, _LARGEST)
    probability, mean = np.empty_like(scaled), np.empty_like(scaled)
    for ranks in rank_bins(scaled.shape[-1]):
        here = scaled[..., ranks]
        typical = max(3.0, float(np.maximum(here, 0.0).mean())) if here.size else 3.0
        if ranks.start == 0:
            model = SpikeAndSlab(share=0.5, slab_mean=typical, least_mean=0.5)
        else:  # as if twenty more terms had been seen, none of them real
            model = SpikeAndSlab(share=0.1, slab_mean=typical, prior_values=21.0, least_mean=0.5)
        some = here.ravel()
        if some.size > _FITTED:
            some = np.random.default_rng(0).choice(some, _FITTED, replace=False)
        model = model.fitted(some, noise.kind)
        for scores, real, expected in zip(
            *map(np.atleast_2d, (here, probability[..., ranks], mean[..., ranks])), strict=True
        ):
            found = model.posterior(scores, noise.kind)  # one row at a time, for the memory
            real[:], expected[:] = found.probability, found.mean
    return Posterior(probability, mean * noise.std)


def rank_bins(size: int) -> Iterator[slice]:
    """Yield the ranges of ranks whose terms share a model: the first FIRST_BIN, then bins that double the total each
    time."""
    first, end = 0, FIRST_BIN
    while first < size:
        yield slice(first, min(end, size))
        first, end = end, 2 * end


def sure_terms(scores: Posterior, listed: Values, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return ``Bool[labels, N]``: the terms that the texts contain with a probability of at least SURE, and that more
    likely than not belong to the label.

    A term has two independent measurements: its count in all texts, by which it is real with the probability
    ``listed``, and its score under each label. If no text contains it, all of its scores are noise. So by Bayes

        odds = listed / (1 - listed) * product over ``present`` labels of (1 - share) / (1 - probability)

    where share, the prior of each score's probability, is the mean of the scores of terms of similar rank.
    """
    real = np.clip(listed, _UNSURE, 1 - _UNSURE)
    odds = np.log(real) - np.log1p(-real)
    for ranks in rank_bins(scores.probability.shape[1]):
        here = np.minimum(scores.probability[present, ranks], 1 - _UNSURE)
        share = min(float(here.mean()), 1 - _UNSURE)
        odds[ranks] += (np.log1p(-share) - np.log1p(-here)).sum(axis=0)
    sure: NDArray[np.bool_] = (odds >= math.log(SURE / (1 - SURE))) & (scores.probability > LIKELY)
    return sure


SURE = 0.98
"""Least probability at which a term counts as real for human readers."""
LIKELY = 0.5
"""Least probability at which a term belongs to a label; the number of such terms bounds the length of sequences."""
_UNSURE = 1e-9


def _posterior(values: Values, share: float, slab_mean: float, kind: NoiseKind) -> tuple[Values, Values]:
    """Return (probability that the true value is not 0, its mean if so), for noise of standard deviation 1."""
    likelihoods = _under_gaussian if kind == "gaussian" else _under_laplace
    spike, slab, mean = likelihoods(values, slab_mean)
    return np.asarray(special.expit(np.log(share) - np.log1p(-share) + slab - spike)), mean


def _under_gaussian(values: Values, slab_mean: float) -> tuple[Values, Values, Values]:
    """Return log densities of spike and slab, and the mean of the true value in the slab, under N(0, 1).

    The slab's marginal is exp(1/(2 b^2) - x/b) Phi(x - 1/b) / b; given x, the true value is N(x - 1/b, 1), cut at 0.
    """
    centre = values - 1 / slab_mean
    slab = 1 / (2 * slab_mean**2) - values / slab_mean + special.log_ndtr(centre) - np.log(slab_mean)
    mean = centre + np.sqrt(2 / np.pi) / special.erfcx(-centre / np.sqrt(2))  # the second is the density over Phi
    return -(values**2) / 2 - np.log(2 * np.pi) / 2, slab, np.maximum(mean, 0.0)


def _under_laplace(values: Values, slab_mean: float) -> tuple[Values, Values, Values]:
    """Do as :func:`_under_gaussian`, under Laplace noise of standard deviation 1: its rate is a = sqrt(2).

    With c = 1/b, the true value t has the density a c / 2 exp(-c t - a |x - t|), up to the marginal: two pieces, t
    below x (an exponential of rate c - a, cut to [0, x]) and t above it (an exponential of rate a + c).
    """
    noise_rate, slab_rate = float(np.sqrt(2.0)), 1 / slab_mean
    slower, gap = min(noise_rate, slab_rate), abs(noise_rate - slab_rate)
    positive = np.maximum(values, 0.0)
    weight, moment = _cut_exponential(gap * positive)  # of exp(-gap w) over [0, x]
    weight, moment = weight * positive, moment * positive**2
    within = moment if slab_rate > noise_rate else positive * weight - moment  # w is t, or x - t
    above = np.exp(-(slab_rate - slower) * positive) / (noise_rate + slab_rate)
    total = weight + above  # without the factor a c / 2 exp(-slower x), or exp(a x) below 0
    mean = (within + above * (positive + 1 / (noise_rate + slab_rate))) / total
    slab = np.log(noise_rate * slab_rate / 2) + np.log(total) - slower * positive - noise_rate * (positive - values)
    return np.log(noise_rate / 2) - noise_rate * np.abs(values), slab, mean


def _cut_exponential(ends: Values) -> tuple[Values, Values]:
    """Return the integrals of exp(-u v) and of v exp(-u v) over v in [0, 1], for u = ``ends``, including 0."""
    small = ends < 1e-3
    u = np.where(small, 1.0, ends)
    weight = np.where(small, 1 - ends / 2 + ends**2 / 6, -np.expm1(-u) / u)
    moment = np.where(small, 1 / 2 - ends / 3 + ends**2 / 8, (-np.expm1(-u) - u * np.exp(-u)) / u**2)
    return weight, moment


MOST_TERMS, FEWEST_TERMS = 5000, 300
"""Bounds on the size of a privatised vocabulary that follows from the noise."""
_ROOM = 2
"""Number of its terms for each one that is expected to be real."""


def require_enough_terms(top: int, vocabulary_size: int) -> None:
    """Raise ConfigError if the public vocabulary has fewer terms than the requested privatised one."""
    if top > vocabulary_size:
        raise ConfigError(
            f"The privatised vocabulary (top_terms = {top}) is larger than the public one ({vocabulary_size} terms).",
            "Lower top_terms or give a larger vocabulary.",
        )


def top_terms(noisy_counts: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Return the indices of the ``size`` largest noisy counts, the largest first: ``Int64[size]``. Post-processing."""
    return np.argsort(-noisy_counts, kind="stable")[:size].astype(np.int64)


def likely_terms(found: Posterior, *, fewest: int) -> NDArray[np.int64]:
    """Return the indices of the terms with the largest expected counts, the largest first. Post-processing.

    Returns twice as many terms as are expected to be real (the sum of the posterior probabilities), since uncertain
    terms are weighed once more when texts are sampled: leaving it out cost up to 21 points of accuracy on tables of a
    thousand records (docs/decisions/041). At most :data:`MOST_TERMS`, and at least ``fewest`` and :data:`FEWEST_TERMS`,
    if there are enough. ``found`` is the posterior of the public vocabulary's counts, its most frequent terms first.
    """
    size = min(math.ceil(_ROOM * float(found.probability.sum())), MOST_TERMS)
    return np.argsort(-found.mean, kind="stable")[: max(size, FEWEST_TERMS, fewest)].astype(np.int64)


def noise_floor(noise_std: float, size: int) -> float:
    """Return the level that pure Gaussian noise on ``size`` terms exceeds at about one term: std * sqrt(2 ln size).

    Noisy counts above it are most likely real; below it the top N is filled with chance terms.
    """
    return noise_std * math.sqrt(2 * math.log(max(size, 2)))
