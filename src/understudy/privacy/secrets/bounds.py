"""Bound how much one release raises an attacker's prior: the Poisson-binomial blow-up of SecPE, and its inverse.

Without a secret's records a release is N(0, sigma^2), with them K + N(0, sigma^2), K = how many of them are sampled.
The likelihood ratio grows with the value. So the best test that is wrong with probability p if the secret is absent
has the threshold q = sigma Phi^-1(1 - p), and is right with probability B(p) = sum_k P(K = k) Phi_bar((q - k) / sigma)
if it is present (Neyman and Pearson 1933; Wang et al. 2025, the reconstruction bound).

Nothing is understated: bounds and calibrated noise are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.base.lazy import special
from understudy.privacy.events import Inclusion
from understudy.privacy.guarantee import normal_quantile
from understudy.privacy.search import edge, log_ratio

DISCRETE_LOSS = 2e-10
"""Noise is discrete, of sigma >= 16384 grid units (``SMALLEST_SIGMA``), but the mathematics is continuous. Such noise
is a *rounded* continuous Gaussian of variance sigma^2 - 1/12, hence of a noise multiplier that is smaller by
1 / (24 sigma^2) < 1.6e-10 of itself; and rounding commutes with the integer vectors of the records. Rounding is
post-processing, so every bound holds at that multiplier: in any number of dimensions, for K = 1 and K = m alike, and
for any composition."""

DISCRETE_EXCESS = 1e-7
"""The remaining error: at y sigmas the two masses differ by at most (y^4 + 10) / (2880 sigma^4) of themselves, in each
of d coordinates: together by less than 1e-8 up to d = 10^8 (where all y < 40: but for e^-780). As the trade-off
curve is concave, r grows by at most twice that for each release; the rest of this margin is for rounding in doubles."""

LEAST_NOISE = 1e-3
"""The smallest noise multiplier that calibration returns. If a secret is sampled with a probability below about r - p,
(p, r) needs no noise at all, and without noise the few sampled ones would be revealed."""

_PRECISION = 1e-9
_NOISE_CEILING = 1e9


@lru_cache(maxsize=8192)
def poisson_binomial(inclusion: Inclusion) -> NDArray[np.float64]:
    """Return P(K = 0), ..., P(K = n) for n independent records, in groups of (probability of being sampled, how many).

    Args:
        inclusion: probabilities in [0, 1].

    Returns:
        ``Float64[n + 1]``, read-only, every entry exact up to its own rounding: all terms are positive.

    Raises ConfigError if a probability is outside [0, 1] or a number of records negative.
    """
    drawn = np.ones(1)
    for rate, records in inclusion:
        if not 0 <= rate <= 1 or records < 0:
            raise ConfigError(
                f"Expected a probability of being sampled in [0, 1], got {rate} for {records} records.",
                "Give inclusion as (probability, number of records) pairs.",
            )
        power = np.array([1 - rate, rate])
        while records:
            drawn = np.convolve(drawn, power) if records & 1 else drawn
            records >>= 1
            power = np.convolve(power, power) if records else power
    drawn.setflags(write=False)
    return drawn


def blow_up(prior: float, noise_multiplier: float, drawn: NDArray[np.float64]) -> float:
    """Return B(p) of one release at sigma = ``noise_multiplier``, for P(K = k) = ``drawn[k]``, without its margin."""
    threshold = -normal_quantile(prior)
    shifts = np.arange(len(drawn)) / (noise_multiplier * (1 - DISCRETE_LOSS))
    return float(drawn @ special.ndtr(shifts - threshold))


def smallest(bound: Callable[[float], float], limit: float, *, low: float = 1.0) -> float:
    """Return the smallest noise multiplier at which ``bound(noise_multiplier)`` is at most ``limit``, rounded up.

    Args:
        bound: falls with the noise multiplier.
        limit: in (0, 1).
        low: start of the search.

    Raises ConfigError if no amount of noise is enough.
    """
    noise = edge(
        lambda noise: log_ratio(bound(noise), limit * (1 - _PRECISION)),
        near=low,
        safe=_NOISE_CEILING,
        unsafe=LEAST_NOISE,
        tolerance=_PRECISION,
    )
    if noise is None:
        raise ConfigError(
            f"No noise keeps the posterior at {limit:g}.",
            "Choose a posterior that is further above the prior, for example ten times the prior.",
        )
    return noise


Floats = NDArray[np.float64]

_STEP = 1e-3  # for one release
_MOST_STEPS = 2**18
_MOST_CELLS = 2**17
_TAIL = 1e-12  # of the prior: the ends of a grid lose at most this
_ROUNDS = 3
_ROUNDING = 5e-16  # times releases + log2 of the size: ten times what is seen against 80-bit numbers
_ORDERS = np.geomspace(0.1, 1000, 24)


@dataclass(frozen=True)
class Draws:
    """``releases`` equal releases: each with fresh noise on K sampled records, P(K = k) = ``drawn[k]``."""

    noise_multiplier: float
    drawn: Floats
    releases: int


def best_test(draws: Sequence[Draws], prior: float) -> float:
    """Return a bound on how often any test after all releases is right if it is wrong with probability ``prior``.

    Returns:
        An upper bound in [prior, 1], for fresh samples in every release.
    """
    releases = sum(each.releases for each in draws)
    tail = _TAIL * prior / releases
    cells = [_cut(each, tail) for each in draws]
    step = _STEP / math.sqrt(releases)
    step = max(step, *(float(each.loss[-1] - each.loss[0]) / _MOST_STEPS for each in cells))
    total = _Total(step, tuple(_on_grid(each, step) for each in cells))
    bound, order = 1.0, 0.0
    for _ in range(_ROUNDS):
        found, threshold = total.best_test(prior, order, tail)
        bound = min(bound, found + tail * (1 + 3 * releases))
        order = min(total.log_moments, key=lambda at: total.log_moments[at] - at * threshold)
    return bound


@dataclass(frozen=True)
class _Cells:
    """The real line in cells: ``loss`` at their edges, and the masses of both distributions in them."""

    loss: Floats
    present: Floats
    absent: Floats
    releases: int


def _cut(draws: Draws, tail: float) -> _Cells:
    """Return the cells of one release. They miss less than ``2 * tail``, and ``tail`` for values of K left out."""
    sigma = draws.noise_multiplier * (1 - DISCRETE_LOSS)
    least = int(np.searchsorted(np.cumsum(draws.drawn), tail))
    most = len(draws.drawn) - 1 - int(np.searchsorted(np.cumsum(draws.drawn[::-1]), tail))
    chances = draws.drawn[least : most + 1].copy()
    chances[0] += draws.drawn[:least].sum()  # more sampled records are only easier to detect
    reach = -normal_quantile(tail)
    low, high = least / sigma - reach, most / sigma + reach
    edges = np.linspace(low, high, min(_MOST_CELLS, math.ceil((high - low) / _STEP * math.sqrt(draws.releases))) + 1)
    loss, present = np.full(len(edges), -np.inf), np.zeros(len(edges) - 1)
    for records, chance in enumerate(chances, least):
        if chance > 0:
            shift = records / sigma
            loss = np.logaddexp(loss, math.log(chance) + shift * (edges - shift / 2))
            present += chance * _normal_masses(edges - shift)
    return _Cells(loss, present, _normal_masses(edges), draws.releases)


def _normal_masses(edges: Floats) -> Floats:
    """Return the standard normal mass between neighbouring edges, exact in both tails."""
    tails = special.ndtr(-np.abs(edges))
    astride = (edges[:-1] < 0) & (edges[1:] > 0)
    return np.asarray(np.where(astride, 1 - tails[:-1] - tails[1:], np.abs(np.diff(tails))))


@dataclass(frozen=True)
class _Grid:
    """If the secret is present, one release has loss ``(first + i) * step`` with probability ``masses[i]``."""

    first: int
    loss: Floats
    masses: Floats
    releases: int

    def log_moment(self, order: float) -> float:
        """Return log E[e^(order * loss)] of all releases together."""
        return self.releases * self._tilt(order)[1]

    def transform(self, order: float, size: int) -> NDArray[np.complex128]:
        """Return the Fourier transform of all releases together, tilted, on a circle of ``size`` grid points."""
        places = np.arange(self.first, self.first + len(self.masses)) % size
        return np.asarray(np.fft.rfft(np.bincount(places, self._tilt(order)[0], size)) ** self.releases)

    def _tilt(self, order: float) -> tuple[Floats, float]:
        exponents = np.where(self.masses > 0, order * self.loss, -np.inf)
        peak = float(exponents.max())
        weights = self.masses * np.exp(exponents - peak)
        total = float(weights.sum())
        return weights / total, peak + math.log(total)


def _on_grid(cells: _Cells, step: float) -> _Grid:
    low = np.floor(cells.loss[:-1] / step).astype(np.int64)
    high = np.maximum(np.ceil(cells.loss[1:] / step).astype(np.int64), low + 1)
    with np.errstate(divide="ignore"):
        if_low = np.exp(np.log(cells.absent) + low * step)  # the mass if present, were all of the cell at low
    raised = np.clip((cells.present - if_low) / -np.expm1((low - high) * step), 0, cells.present)
    first = int(low[0])
    size = int(high[-1]) - first + 1
    masses = np.bincount(high - first, raised, size) + np.bincount(low - first, cells.present - raised, size)
    return _Grid(first, step * np.arange(first, first + size, dtype=np.float64), np.asarray(masses), cells.releases)


@dataclass(frozen=True)
class _Total:
    step: float
    grids: tuple[_Grid, ...]

    def log_moment(self, order: float) -> float:
        """Return log E[e^(order * loss)] if the secret is present."""
        return sum(grid.log_moment(order) for grid in self.grids)

    @cached_property
    def log_moments(self) -> dict[float, float]:
        """Return the log moments by order, of order 0 and of all orders that are tried."""
        return {order: self.log_moment(order) for order in (0.0, *_ORDERS)}

    def best_test(self, prior: float, order: float, tail: float) -> tuple[float, float]:
        """Return a bound on how often the best test is right, and its threshold.

        The distribution is tilted by e^(order * loss) for the Fourier transform, whose rounding errors are the same
        everywhere: with the threshold in the middle they are small near it. Their bound is added to the mass under one
        hypothesis and subtracted from that under the other, so that any order gives a bound.
        """
        from scipy.fft import next_fast_len

        low, high = self._window(order, math.log(1 / tail))
        size = int(next_fast_len(high - low + 1, real=True))
        together = np.prod([grid.transform(order, size) for grid in self.grids], axis=0)
        tilted = np.roll(np.fft.irfft(together, size), -(low % size))
        error = _ROUNDING * (sum(grid.releases for grid in self.grids) + math.log2(size)) * float(tilted.max())
        loss = self.step * np.arange(low, low + size, dtype=np.float64)
        scale = self.log_moment(order) - order * loss
        right = np.cumsum(((np.maximum(tilted, 0) + error) * _exp(scale))[::-1])
        wrong = np.cumsum((np.maximum(tilted - error, 0) * _exp(scale - loss))[::-1])
        at = int(np.searchsorted(wrong, prior))
        if at == size:
            return 1.0, float(loss[0])
        found = float(np.interp(prior, [0, *wrong[: at + 1]], [0, *right[: at + 1]]))
        return found, float(loss[size - 1 - at])

    def _window(self, order: float, exponent: float) -> tuple[int, int]:
        """Return grid points that contain all but e^-exponent of the sum (Chernoff): untilted above, tilted below."""
        high = min((self.log_moments[at] + exponent) / at for at in _ORDERS)
        whole = self.log_moment(order)
        low = max((whole - self.log_moment(order - at) - exponent) / at for at in _ORDERS)
        first = sum(grid.releases * grid.first for grid in self.grids)
        last = sum(grid.releases * (grid.first + len(grid.masses) - 1) for grid in self.grids)
        return max(first, math.floor(low / self.step)), min(last, math.ceil(high / self.step))


def _exp(x: Floats) -> Floats:
    return np.asarray(np.exp(np.minimum(x, 700)))
