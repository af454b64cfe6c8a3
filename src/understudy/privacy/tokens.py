"""Sample a text's next token as a private mechanism.

Amin et al. 2024, *Private prediction for large-scale synthetic text generation*: the logits that a model gives for
each of a batch's private texts are clipped and averaged, and sampling from the softmax of the average *is* the
exponential mechanism. A sparse-vector test may first check whether the model predicts much the same without private
text. If so, the public token is taken, at no cost (docs/decisions/016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, PrivacyError, bug
from understudy.privacy.accountant import zcdp_within
from understudy.privacy.events import ZCDPEvent
from understudy.privacy.exact import NONNEGATIVE, POSITIVE
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import LARGEST_SCALE, out_of_range
from understudy.privacy.noise import NoiseSource, PaidInParts

_UP = 1 + 2**-48  # more than all rounding of the few products below: a cost is never understated
_PUBLIC_GRID = 2**20  # integer steps of a public logit; free to choose
_LARGEST_CLIP = 1e6  # beyond it, or below its inverse, float32 cannot clip
LARGEST_BATCH = 2**20
"""Rows beyond which public values times the number of rows could leave the 64-bit integers."""


@dataclass(frozen=True)
class TokenTest:
    """Test by a sparse vector whether a batch predicts nearly the same as the public prompt.

    Guarantee:
        Unit, neighbours: those of :class:`PrivateTokens`. The divisor s is the declared batch size.
        Sensitivity: ``grid`` of each integer distance sum_i abs(S_i - s P_i), in either direction.
        Noise: discrete Laplace of scale b = sigma s grid on the threshold, once per run, and of scale 2b on each
        distance. A run ends with the first distance above the threshold; the next run has a fresh threshold.
        Event: one run, however long, is epsilon-DP with epsilon = 2 grid / b = 2 / (s sigma): moving the threshold's
        noise by one sensitivity, and the last distance's noise by two, maps a run on a dataset to the same run on its
        neighbour, and costs grid / b each. All moves are integers, so discrete noise costs the same as continuous
        noise. rho = epsilon^2 / 2. An interrupted run costs no more.
        Source: Dwork and Roth 2014, Theorem 3.23; Lyu, Su and Li 2017 (faults of six variants).

    Args:
        threshold: theta in [0, 2], an L1 distance of distributions.
        noise: sigma > 0, in the same unit.

    >>> round(TokenTest(threshold=1.0, noise=0.5).epsilon(batch_size=100), 6)
    0.04
    """

    threshold: float
    noise: float

    grid: ClassVar[int] = 2**18
    """Integer steps of probability 1."""

    def __post_init__(self) -> None:
        POSITIVE.of(noise=self.noise)
        NONNEGATIVE.of(threshold=self.threshold)
        if self.threshold > 2:
            raise ConfigError(
                f"Expected threshold <= 2, got {self.threshold}.", "Two distributions are at most 2 apart in L1."
            )

    def scale(self, batch_size: int) -> float:
        """Return b, in steps of ``grid`` times ``batch_size``."""
        return self.noise * batch_size * self.grid * _UP

    def epsilon(self, batch_size: int) -> float:
        """Return the pure epsilon of one run."""
        return 2 * self.grid / self.scale(batch_size)

    def begin(self, batch_size: int, source: NoiseSource) -> Run:
        """Return a new run with a fresh noisy threshold; the caller has paid for it."""
        scale = self.scale(batch_size)
        exact = round(self.threshold * batch_size * self.grid)
        return Run(_noisy(exact, scale, source), scale, source)


@dataclass
class Run:
    """One run of a :class:`TokenTest`, with its noisy threshold."""

    _threshold: int
    _scale: float
    _source: NoiseSource
    open: bool = True

    def is_above(self, distance: int) -> bool:
        """Return whether ``distance`` with its noise reaches the threshold; then the run is over."""
        if not self.open:
            raise bug("This run of the test is over.", "each run answers up to its first distance above the threshold")
        self.open = _noisy(distance, 2 * self._scale, self._source) < self._threshold
        return not self.open

    def __repr__(self) -> str:
        return f"Run(open={self.open})"  # a noisy threshold stays in memory


_FARTHEST = 2**61
"""Distances beyond it count as it, which moves no distance further, so that none overflows."""


def _noisy(exact: int, scale: float, source: NoiseSource) -> int:
    within = max(-_FARTHEST, min(exact, _FARTHEST))
    return int(source.added(np.array([within], dtype=np.int64), "laplace", scale=scale)[0])


@dataclass(frozen=True)
class PrivateTokens:
    """Choose tokens for batches of private texts, up to ``tokens`` private ones in each.

    Guarantee:
        Unit: a record (one row of one batch), or an owner whose k rows have weight 1/k: each row is then scaled to
        floor(grid / k) steps, so that all of them together stay within ``grid`` (in a test: the test's).
        Neighbours add or remove one; the divisor is the declared ``batch_size``, whatever a batch contains.
        Sensitivity: ``grid`` in L-infinity of the integers summed for a token: a row adds a value clipped to
        [-clip, clip] and rounded to [-grid, grid] for each candidate; the candidates and everything else that is added
        are public. The bound is exact, after all rounding.
        Noise: the choice is the exponential mechanism with ``scale`` = grid batch_size temperature / clip, which is
        the softmax of (mean / temperature).
        Event: ``rho_token`` = (clip / (batch_size temperature))^2 / 2 for each private token: log-ratios of the
        chances of any two tokens move by at most 2 grid / scale (bounded range). With a test, ``rho_run`` =
        2 / (batch_size sigma)^2 for each of ``tokens`` + 1 runs of it (:class:`TokenTest`), since public tokens may
        follow the last private one. A public token costs nothing beyond its run.
        Batches: *one* charge pays for any number of them, as long as they are disjoint. A record is in one, so its
        presence moves only one of several independent mechanisms (parallel composition). An owner's records may be in
        several labels or batches l, with weights w_l that sum to at most 1: batch l then moves by w_l of the
        sensitivities, and both costs are quadratic in them, so that the batches cost
        sum_l w_l^2 rho <= rho sum_l w_l <= rho together.
        Crash: an example that was not stored is decoded again, since nobody saw it. A run that was open counts as
        spent and is not continued, as its noise is lost: the next test begins a new run.
        Source: Amin et al. 2024, Theorem 1; Cesar and Rogers 2021, and Rogers and Steinke 2021 (a range of epsilon
        is epsilon^2 / 8 zCDP).

    Args:
        clip: c > 0, in logits; or C of differences of log-probabilities.
        batch_size: s, the declared number of private texts in a batch; 1 or more.
        temperature: tau > 0 of the softmax.
        tokens: r, the most private tokens per batch; 1 or more.
        test: decides which tokens are public; None makes every token private.

    Raises ConfigError if a parameter is out of its range, or the noise does not fit into 64-bit integers.

    >>> round(PrivateTokens(clip=10.0, batch_size=100, temperature=2.0, tokens=50).rho_token, 6)
    0.00125
    """

    clip: float
    batch_size: int
    temperature: float
    tokens: int
    test: TokenTest | None = None

    kind: ClassVar[str] = "private-tokens"
    grid: ClassVar[int] = 2**12
    """Integer steps of one clip."""

    def __post_init__(self) -> None:
        POSITIVE.of(clip=self.clip)
        if not 1 / _LARGEST_CLIP <= self.clip <= _LARGEST_CLIP or self.batch_size > LARGEST_BATCH:
            raise ConfigError(
                f"A clip range of {self.clip:g} or a batch of {self.batch_size} is out of range.",
                f"Clip to 1e-6 to {_LARGEST_CLIP:g} nats, and declare batches of {LARGEST_BATCH} texts at most.",
            )
        POSITIVE.of(batch_size=self.batch_size)
        POSITIVE.of(temperature=self.temperature)
        POSITIVE.of(tokens=self.tokens)
        if not 1 / LARGEST_SCALE < self.scale < LARGEST_SCALE:
            raise out_of_range(
                f"a token's choice does not fit into 64-bit integers (scale {self.scale:g})",
                cure="Choose an epsilon nearer to 1, or batch size, clip range and temperature nearer to the defaults.",
            )
        if self.test is not None and 2 * self.test.scale(self.batch_size) > LARGEST_SCALE:
            raise out_of_range(
                f"the noise of the test does not fit into 64-bit integers (sigma {self.test.noise:g})",
                cure="Test with less noise, or declare smaller batches.",
            )

    @property
    def scale(self) -> float:
        """Return the divisor of the utilities, in grid units."""
        return self.grid * self.batch_size * self.temperature / self.clip * _UP

    @property
    def log_odds(self) -> float:
        """Return the most that one record moves the log-odds of two tokens."""
        return 2 * self.clip / (self.batch_size * self.temperature)

    @property
    def rho_token(self) -> float:
        return (self.grid / self.scale) ** 2 / 2

    @property
    def rho_run(self) -> float:
        return 0.0 if self.test is None else self.test.epsilon(self.batch_size) ** 2 / 2

    @property
    def runs(self) -> int:
        """Return how many runs of the test are paid for in each batch."""
        return 0 if self.test is None else self.tokens + 1

    @property
    def rho(self) -> float:
        """Return the cost of all batches, in parallel."""
        return (self.tokens * self.rho_token + self.runs * self.rho_run) * _UP

    @cached_property
    def event(self) -> ZCDPEvent:
        return ZCDPEvent(self.rho)

    def open(self, source: NoiseSource) -> PaidTokens:
        """Return the tokens that a paid charge allows, once for all batches. Only code that has paid may call it."""
        return PaidTokens(self, source)


class PaidTokens(PaidInParts["PrivateTokens"]):
    """The charged private tokens: each batch takes its share here, and only once."""

    def batch(self, name: str | None = None, *, tokens_spent: int = 0, runs_spent: int = 0) -> BatchTokens:
        """Return the remaining tokens of one batch. Call it once per batch: a second call would spend the charge twice.

        Args:
            name: of the batch; if it is given, a second call for the same batch is refused.
            tokens_spent: private tokens in this batch's stored examples.
            runs_spent: runs of the test that began in them.

        Raises PrivacyError if the stored examples contain more than was charged, or the batch was opened before.
        """
        if name is not None:
            self._once(f"batch {name}")
        return BatchTokens(self._mechanism, self._source, tokens_spent=tokens_spent, runs_spent=runs_spent)


class BatchTokens:
    """The private tokens of one batch, counted before each is chosen. One object per batch; one thread at a time."""

    def __init__(self, mechanism: PrivateTokens, source: NoiseSource, *, tokens_spent: int, runs_spent: int) -> None:
        if not (0 <= tokens_spent <= mechanism.tokens and 0 <= runs_spent <= mechanism.runs):
            raise PrivacyError(
                "The stored examples of a batch contain more private tokens or tests than were charged.",
                "The run folder comes from another charge: start the release again in a new folder.",
            )
        self._mechanism = mechanism
        self._source = source
        self._run: Run | None = None
        self.tokens_spent = tokens_spent
        self.runs_spent = runs_spent

    @property
    def left(self) -> int:
        """Return how many private tokens may still be chosen."""
        return self._mechanism.tokens - self.tokens_spent

    @property
    def can_test(self) -> bool:
        """Return whether a run of the test is open, or one is left. If not, every further token is private."""
        return (self._run is not None and self._run.open) or self.runs_spent < self._mechanism.runs

    def is_private(self, distance: int) -> bool:
        """Return whether the next token has to be private. Begins a run, and counts it first, if none is open.

        Args:
            distance: sum_i abs(S_i - batch_size P_i), in steps of the test's ``grid``.

        Raises PrivacyError if no run is open and none is left.
        """
        if self._run is None or not self._run.open:
            test = self._mechanism.test
            if test is None or self.runs_spent >= self._mechanism.runs:
                raise bug("No run of the test is left for this batch.", "it asks whether it can test first")
            self.runs_spent += 1
            self._run = test.begin(self._mechanism.batch_size, self._source)
        return self._run.is_above(distance)

    def choose(self, utilities: NDArray[np.int64]) -> int:
        """Return the index of a candidate, chosen by a private token.

        Args:
            utilities: ``Int64[candidates]``: a sum over the batch's rows of sensitivity ``grid``, plus what is public.

        Raises PrivacyError if no private token is left, or the utilities are not such a vector.
        """
        if self.left < 1:
            raise bug("No private token is left for this batch.", "it counts before each token")
        self.tokens_spent += 1
        return self._source.choose(utilities, scale=self._mechanism.scale)

    def choose_public(self, logits: NDArray[np.float64], *, temperature: float) -> int:
        """Return the index of a candidate, sampled from the softmax of public ``logits / temperature``, at no cost."""
        steps = np.maximum((logits - logits.max()) * _PUBLIC_GRID, -(2.0**60)).round().astype(np.int64)
        return self._source.choose(steps, scale=_PUBLIC_GRID * temperature)


def tokens_within(
    budget: Budget, *, clip: float, batch_size: int, temperature: float, test: TokenTest | None = None
) -> int:
    """Return the most private tokens per batch within ``budget``; 0 if it does not allow one.

    The arguments other than ``budget`` are those of :class:`PrivateTokens`.

    Returns:
        r, the largest with r rho_token + (r + 1) rho_run within the rho that ``budget`` allows.

    Raises ConfigError if delta is 0, or a parameter out of its range.
    """
    allowed, one = zcdp_within(budget), PrivateTokens(clip, batch_size, temperature, 1, test)
    tokens = max(0, math.floor((allowed - one.rho_run) / (one.rho_token + one.rho_run)))
    while tokens > 0 and PrivateTokens(clip, batch_size, temperature, tokens, test).rho > allowed:
        tokens -= 1  # rounding, at the edge
    return tokens


def clip_for(
    budget: Budget, tokens: int, *, batch_size: int, temperature: float, test: TokenTest | None = None
) -> float:
    """Return the largest clip range at which ``tokens`` private tokens per batch are within ``budget``.

    The other parameters are as for :class:`PrivateTokens`. The budget first pays for the runs of its threshold test,
    if it has one. Raises ConfigError if the test alone costs more, delta is 0, or a parameter is out of its range.
    """
    tests = PrivateTokens(1.0, batch_size, temperature, tokens, test)
    left = (allowed := zcdp_within(budget)) - tests.runs * tests.rho_run
    if left <= 0:
        raise ConfigError(
            f"Testing for public tokens {tests.runs:,} times costs more than the budget {budget}.",
            "Turn sparse_vector off, raise threshold_noise, ask for fewer private tokens, or declare larger batches.",
        )
    clip = batch_size * temperature * math.sqrt(2 * left / tokens)
    while PrivateTokens(clip, batch_size, temperature, tokens, test).rho > allowed:
        clip *= 1 - 1e-12
    return clip
