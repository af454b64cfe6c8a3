"""Private tokens: sampling a text's next token as a mechanism, and the test that saves some of the samples.

Amin et al. 2024, *Private prediction for large-scale synthetic text generation*: the logits that a model gives for
each of a batch's private texts are clipped and averaged, and sampling from the softmax of the average *is* the
exponential mechanism. A sparse vector may tell beforehand that the model without private text would say much the
same: then its token is taken, for nothing.
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
from understudy.privacy.exact import require_nonnegative, require_positive
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import LARGEST_SCALE, out_of_range
from understudy.privacy.noise import NoiseSource, PaidInParts


@dataclass(frozen=True)
class SparseVector:
    """Say of one integer answer after another whether it is above ``threshold``, up to the first that is.

    Guarantee:
        Unit: whatever ``sensitivity`` is of; neighbours add or remove one.
        Sensitivity: each answer changes by at most ``sensitivity`` (an integer, of integers), in either direction.
        Noise: discrete Laplace of scale b = ``scale`` on the threshold, once per run, and of scale 2b on each answer.
        Event: one run, however long, is epsilon-DP with epsilon = 2 sensitivity / b: moving the threshold's noise by
        one sensitivity and that of the answer that ended the run by two turns a run on one dataset into the same run
        on its neighbour, and costs sensitivity / b each. On integers the moves are integers, so discrete noise pays
        exactly what continuous noise does. rho = epsilon^2 / 2. A run that is broken off costs no more than a whole
        one. After an answer above the threshold its noise is used up: a new run samples a new one and is a new charge.
        Source: Dwork and Roth 2014, Theorem 3.23; Lyu, Su and Li 2017 (what goes wrong in six variants).

    Args:
        threshold: in the answers' units.
        sensitivity: of one answer, in the same units; an owner's rows together.
        scale: b, the threshold's noise, in the same units.

    Raises ConfigError if the noise does not fit into 64-bit integers.
    """

    threshold: int
    sensitivity: int
    scale: float

    def __post_init__(self) -> None:
        require_positive(sensitivity=self.sensitivity)
        require_positive(scale=self.scale)
        if 2 * self.scale > LARGEST_SCALE:
            raise out_of_range(
                f"the noise of the test does not fit into 64-bit integers (scale {2 * self.scale:g})",
                cure="Test with less noise, or in smaller batches.",
            )

    @property
    def epsilon(self) -> float:
        return 2 * self.sensitivity / self.scale

    @property
    def rho(self) -> float:
        return self.epsilon**2 / 2

    def begin(self, source: NoiseSource) -> Run:
        """A new run with a threshold of its own; the caller has paid for it."""
        return Run(self, source)


class Run:
    """One run of a :class:`SparseVector`; over once an answer was above."""

    def __init__(self, vector: SparseVector, source: NoiseSource) -> None:
        self._vector = vector
        self._source = source
        self._threshold = vector.threshold + int(source.draw("laplace", scale=vector.scale, size=1)[0])
        self.open = True

    def is_above(self, answer: int) -> bool:
        """Whether ``answer`` with its noise reaches the noisy threshold; if so the run is over.

        Raises PrivacyError if the run is over.
        """
        if not self.open:
            raise PrivacyError(
                "This run of the sparse vector is over: its threshold has been answered.",
                "Begin a new run, with its own noise and charge.",
            )
        noise = int(self._source.draw("laplace", scale=2 * self._vector.scale, size=1)[0])
        above = int(answer) + noise >= self._threshold
        self.open = not above
        return above


_UP = 1 + 2**-48  # more than all rounding of the few products below: a cost is never understated


_LARGEST_CLIP = 1e6  # beyond it, or below its inverse, float32 cannot clip
LARGEST_BATCH = 2**20
"""Rows beyond which sums of what is public times their number could leave 64-bit integers."""


@dataclass(frozen=True)
class TokenTest:
    """When a token is public: the batch's mean distribution is near the one without private text.

    Args:
        threshold: theta in [0, 2], an L1 distance of distributions.
        noise: sigma > 0, scale of the Laplace noise on the threshold, in the same unit; twice that on each distance.
    """

    threshold: float
    noise: float

    def __post_init__(self) -> None:
        require_positive(noise=self.noise)
        require_nonnegative(threshold=self.threshold)
        if self.threshold > 2:
            raise ConfigError(
                f"Expected threshold <= 2, got {self.threshold}.", "Two distributions are at most 2 apart in L1."
            )


@dataclass(frozen=True)
class PrivateTokens:
    """Choose tokens for batches of private texts, up to ``tokens`` private ones in each.

    Guarantee:
        Unit: a record (one row of one batch), or an owner whose k rows have weight 1/k: each row is then scaled to
        floor(grid / k) steps, so that all of them together stay within ``grid`` (``distance_grid`` in the test).
        Neighbours add or remove one; the divisor is the declared ``batch_size`` whatever a batch holds.
        Sensitivity: ``grid`` in L-infinity of the integers summed for a token: a row adds a value clipped to
        [-clip, clip] and rounded to [-grid, grid] for each candidate, candidates and all else that is added being
        public. ``distance_grid`` of the integer distance sum_i abs(S_i - batch_size P_i) in the test: a row adds
        non-negative integers that sum to at most ``distance_grid`` to S. Both hold exactly, after all rounding.
        Noise: the choice is the exponential mechanism with ``scale`` = grid batch_size temperature / clip, which is
        the softmax of (mean / temperature); the test has discrete Laplace noise of scale sigma batch_size
        distance_grid on its threshold, afresh each run, and twice that on each distance.
        Event: ``rho_token`` = (clip / (batch_size temperature))^2 / 2 for each private token: log-ratios of the
        chances of any two tokens move by at most 2 grid / scale (bounded range). ``rho_run`` =
        2 / (batch_size sigma)^2 for each run of the test, whole or broken off; ``tokens`` + 1 runs, since public
        tokens may follow the last private one. A public token costs nothing beyond its run.
        Batches: *one* charge pays for any number of them, as long as they are disjoint. A record lies in one, so its
        presence moves one of independent mechanisms (parallel composition). An owner's records may lie in several
        labels or batches l, with weights w_l that sum to at most 1: batch l then moves by w_l of the sensitivities,
        and both costs are quadratic in them (the exponential mechanism's by its formula, the test's because its pure
        epsilon is linear in the sensitivity and rho is epsilon^2 / 2), so that the batches cost
        sum_l w_l^2 rho <= rho sum_l w_l <= rho together.
        Crash: an example that was not stored is decoded again, since nobody saw it; a run of the test that was open at
        the crash counts as spent and is never gone on with (its noise is lost): the next test begins a new one.
        Source: Amin et al. 2024, Theorem 1; Cesar and Rogers 2021, and Rogers and Steinke 2021 (a range of epsilon
        is epsilon^2 / 8 zCDP); Dwork and Roth 2014, Theorem 3.23.

    Args:
        clip: c > 0, in logits; or C of differences of log-probabilities.
        batch_size: s, the declared number of private texts in a batch; 1 or more.
        temperature: tau > 0 of the softmax.
        tokens: r, private tokens in a batch at most; 1 or more.
        test: what makes a token public; None has every token private.

    Raises ConfigError if a parameter is out of its range, or the noise does not fit into 64-bit integers.
    """

    clip: float
    batch_size: int
    temperature: float
    tokens: int
    test: TokenTest | None = None

    kind: ClassVar[str] = "private-tokens"
    grid: ClassVar[int] = 2**12
    """Integer steps of one clip."""
    distance_grid: ClassVar[int] = 2**18
    """Integer steps of a probability of 1, in the test."""

    def __post_init__(self) -> None:
        require_positive(clip=self.clip)
        if not 1 / _LARGEST_CLIP <= self.clip <= _LARGEST_CLIP or self.batch_size > LARGEST_BATCH:
            raise ConfigError(
                f"A clip range of {self.clip:g} or a batch of {self.batch_size} is out of range.",
                f"Clip to 1e-6 to {_LARGEST_CLIP:g} nats, and declare batches of {LARGEST_BATCH} texts at most.",
            )
        require_positive(batch_size=self.batch_size)
        require_positive(temperature=self.temperature)
        require_positive(tokens=self.tokens)
        if not 1 / LARGEST_SCALE < self.scale < LARGEST_SCALE:
            raise out_of_range(
                f"a token's choice does not fit into 64-bit integers (scale {self.scale:g})",
                cure="Choose an epsilon nearer to 1, or batch size, clip range and temperature nearer to the defaults.",
            )
        _ = self.vector  # it has its own range

    @property
    def scale(self) -> float:
        """Utilities are divided by it, in grid units."""
        return self.grid * self.batch_size * self.temperature / self.clip * _UP

    @property
    def vector(self) -> SparseVector | None:
        """The test's mechanism, in units of ``distance_grid`` times ``batch_size``."""
        if self.test is None:
            return None
        whole = self.batch_size * self.distance_grid
        return SparseVector(round(self.test.threshold * whole), self.distance_grid, self.test.noise * whole * _UP)

    @property
    def log_odds(self) -> float:
        """How far one record moves the log-odds of two tokens, at most."""
        return 2 * self.clip / (self.batch_size * self.temperature)

    @property
    def rho_token(self) -> float:
        return (self.grid / self.scale) ** 2 / 2

    @property
    def rho_run(self) -> float:
        return 0.0 if self.vector is None else self.vector.rho

    @property
    def runs(self) -> int:
        return 0 if self.test is None else self.tokens + 1

    @property
    def rho(self) -> float:
        """What all batches cost, in parallel."""
        return (self.tokens * self.rho_token + self.runs * self.rho_run) * _UP

    @cached_property
    def event(self) -> ZCDPEvent:
        return ZCDPEvent(self.rho)

    def open(self, source: NoiseSource) -> PaidTokens:
        """What a paid charge gives, once for all batches. Only what has paid may call it."""
        return PaidTokens(self, source)


class PaidTokens(PaidInParts["PrivateTokens"]):
    """A charge that was paid, from which each batch has its tokens."""

    def batch(self, name: str | None = None, *, tokens_spent: int = 0, runs_spent: int = 0) -> BatchTokens:
        """What is left to one batch. Ask once per batch: two for the same records would spend twice what was paid.

        Args:
            name: the batch's own; with it a second one for the same batch is refused.
            tokens_spent: private tokens in this batch's stored examples.
            runs_spent: runs of the test that its stored examples began.

        Raises PrivacyError if the stored examples hold more than was charged, or the batch was opened before.
        """
        if name is not None:
            self._once(f"batch {name}")
        return BatchTokens(self._mechanism, self._source, tokens_spent=tokens_spent, runs_spent=runs_spent)


class BatchTokens:
    """The private tokens of one batch, counted before each is chosen. Each batch has its own; one thread at a time."""

    def __init__(self, mechanism: PrivateTokens, source: NoiseSource, *, tokens_spent: int, runs_spent: int) -> None:
        if not (0 <= tokens_spent <= mechanism.tokens and 0 <= runs_spent <= mechanism.runs):
            raise PrivacyError(
                "The stored examples of a batch hold more private tokens or tests than were charged.",
                "The run folder does not belong to this charge: release into a new one.",
            )
        self._mechanism = mechanism
        self._vector = mechanism.vector
        self._source = source
        self._run: Run | None = None
        self.tokens_spent = tokens_spent
        self.runs_spent = runs_spent

    @property
    def left(self) -> int:
        """Private tokens that may still be chosen."""
        return self._mechanism.tokens - self.tokens_spent

    @property
    def runs_left(self) -> int:
        """Runs of the test that may still begin."""
        return self._mechanism.runs - self.runs_spent

    @property
    def can_test(self) -> bool:
        """Whether :meth:`is_private` may be asked: a run is open, or one is left."""
        return self._is_open or self.runs_left > 0

    def is_private(self, distance: int) -> bool:
        """Whether the batch is so far from public that a private token is due; begins a run where none is open.

        Args:
            distance: sum_i abs(S_i - batch_size P_i), in units of ``distance_grid``.

        Raises PrivacyError if no run is open and none is left.
        """
        if not self._is_open:
            if self._vector is None or self.runs_left < 1:
                raise bug("No run of the test is left to this batch.", "it asks whether it can test first")
            self.runs_spent += 1
            self._run = self._vector.begin(self._source)
        assert self._run is not None
        return self._run.is_above(distance)

    def choose(self, utilities: NDArray[np.int64]) -> int:
        """The index of a candidate, by a private token.

        Args:
            utilities: ``Int64[candidates]``: a sum over the batch's rows of sensitivity ``grid``, plus what is public.

        Raises PrivacyError if no private token is left, or the utilities are no such vector.
        """
        if self.left < 1:
            raise bug("No private token is left to this batch.", "it counts before each token")
        self.tokens_spent += 1
        return self._source.choose(utilities, scale=self._mechanism.scale)

    def choose_public(self, utilities: NDArray[np.int64], *, scale: float) -> int:
        """The index of a candidate by public ``utilities`` (:meth:`NoiseSource.choose`): it costs nothing."""
        return self._source.choose(utilities, scale=scale)

    @property
    def _is_open(self) -> bool:
        return self._run is not None and self._run.open


def tokens_within(
    budget: Budget, *, clip: float, batch_size: int, temperature: float, test: TokenTest | None = None
) -> int:
    """The most private tokens per batch within ``budget``; 0 if not even one.

    All but ``budget`` are of :class:`PrivateTokens`.

    Returns:
        r, the largest with r rho_token + (r + 1) rho_run within the rho that ``budget`` allows.

    Raises ConfigError if delta is 0, or a parameter out of its range.
    """
    one = PrivateTokens(clip, batch_size, temperature, 1, test)
    allowed = zcdp_within(budget)
    tokens = math.floor((allowed - one.rho_run) / (one.rho_token + one.rho_run))
    while tokens > 0 and PrivateTokens(clip, batch_size, temperature, tokens, test).rho > allowed:
        tokens -= 1  # rounding, at the edge
    return max(tokens, 0)


def clip_for(
    budget: Budget, tokens: int, *, batch_size: int, temperature: float, test: TokenTest | None = None
) -> float:
    """The largest clip range at which ``tokens`` private tokens per batch are within ``budget``.

    All but ``budget`` are of :class:`PrivateTokens`; the ``tokens`` + 1 runs of a test are paid for first.
    Raises ConfigError if the test alone costs more than the budget, delta is 0, or a parameter is out of its range.
    """
    allowed = zcdp_within(budget)
    tests = PrivateTokens(1.0, batch_size, temperature, tokens, test)
    left = allowed - tests.runs * tests.rho_run
    if left <= 0:
        raise ConfigError(
            f"Testing for public tokens {tests.runs:,} times costs more than the budget {budget}.",
            "Test with more noise, sample fewer private tokens, declare larger batches, or leave the test out.",
        )
    clip = batch_size * temperature * math.sqrt(2 * left / tokens)
    while PrivateTokens(clip, batch_size, temperature, tokens, test).rho > allowed:
        clip *= 1 - 1e-12
    return clip


def cost_of_test(*, clip: float, temperature: float, noise: float) -> float:
    """rho of one run of the test over rho of one private token: 4 tau^2 / (c^2 sigma^2).

    >>> [round(cost_of_test(clip=10, temperature=2, noise=noise), 1) for noise in (0.1, 0.2, 0.3)]
    [16.0, 4.0, 1.8]
    """
    return (2 * temperature / (clip * noise)) ** 2


def break_even(*, clip: float, temperature: float, noise: float) -> float:
    """The share of private tokens below which the test buys more text than it costs, in (0, 1).

    With the test on, a private token costs 1 + :func:`cost_of_test` times as much, and there are as many fewer. (The
    one run more than private tokens is left out.)

    >>> round(break_even(clip=10, temperature=2, noise=0.2), 6)
    0.2
    """
    return 1 / (1 + cost_of_test(clip=clip, temperature=temperature, noise=noise))
