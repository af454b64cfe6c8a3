"""Private tokens: sampling a text's next token as a mechanism.

Amin et al. 2024, *Private prediction for large-scale synthetic text generation*: the logits that a model gives for
each of a batch's private texts are clipped and averaged, and sampling from the softmax of the average *is* the
exponential mechanism. (The sparse vector that may go before it is only read, in older charges: docs/decisions/077.)
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
from understudy.privacy.exact import require_positive
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import LARGEST_SCALE, out_of_range
from understudy.privacy.noise import NoiseSource, PaidInParts

_UP = 1 + 2**-48  # more than all rounding of the few products below: a cost is never understated
_LARGEST_CLIP = 1e6  # beyond it, or below its inverse, float32 cannot clip
LARGEST_BATCH = 2**20
"""Rows beyond which sums of what is public times their number could leave 64-bit integers."""


@dataclass(frozen=True)
class TokenTest:
    """What older charges say of a sparse vector: its threshold, and the scale of the Laplace noise on it."""

    threshold: float
    noise: float

    def __post_init__(self) -> None:
        require_positive(noise=self.noise)


@dataclass(frozen=True)
class PrivateTokens:
    """Choose tokens for batches of private texts, up to ``tokens`` private ones in each.

    Guarantee:
        Unit: a record (one row of one batch), or an owner whose k rows have weight 1/k: each row is then scaled to
        floor(grid / k) steps, so that all of them together stay within ``grid``.
        Neighbours add or remove one; the divisor is the declared ``batch_size`` whatever a batch holds.
        Sensitivity: ``grid`` in L-infinity of the integers summed for a token: a row adds a value clipped to
        [-clip, clip] and rounded to [-grid, grid] for each candidate, candidates and all else that is added being
        public. It holds exactly, after all rounding.
        Noise: the choice is the exponential mechanism with ``scale`` = grid batch_size temperature / clip, which is
        the softmax of (mean / temperature).
        Event: ``rho_token`` = (clip / (batch_size temperature))^2 / 2 for each private token: log-ratios of the
        chances of any two tokens move by at most 2 grid / scale (bounded range).
        Batches: *one* charge pays for any number of them, as long as they are disjoint. A record lies in one, so its
        presence moves one of independent mechanisms (parallel composition). An owner's records may lie in several
        labels or batches l, with weights w_l that sum to at most 1: batch l then moves by w_l of the sensitivity, and
        the cost is quadratic in it, so that the batches cost sum_l w_l^2 rho <= rho sum_l w_l <= rho together.
        Crash: an example that was not stored is decoded again, since nobody saw it.
        Source: Amin et al. 2024, Theorem 1; Cesar and Rogers 2021, and Rogers and Steinke 2021 (a range of epsilon
        is epsilon^2 / 8 zCDP).

    Args:
        clip: c > 0, in logits; or C of differences of log-probabilities.
        batch_size: s, the declared number of private texts in a batch; 1 or more.
        temperature: tau > 0 of the softmax.
        tokens: r, private tokens in a batch at most; 1 or more.
        test: None, but in older charges, which paid for ``tokens`` + 1 runs of a test with it.

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

    @property
    def scale(self) -> float:
        """Utilities are divided by it, in grid units."""
        return self.grid * self.batch_size * self.temperature / self.clip * _UP

    @property
    def log_odds(self) -> float:
        """How far one record moves the log-odds of two tokens, at most."""
        return 2 * self.clip / (self.batch_size * self.temperature)

    @property
    def rho_token(self) -> float:
        return (self.grid / self.scale) ** 2 / 2

    @property
    def rho(self) -> float:
        """What all batches cost, in parallel."""
        tests = 0.0
        if self.test is not None:  # each run of the test was epsilon-DP with epsilon = 2 / (batch_size noise)
            tests = (self.tokens + 1) * (2 / (self.test.noise * self.batch_size * _UP)) ** 2 / 2
        return (self.tokens * self.rho_token + tests) * _UP

    @cached_property
    def event(self) -> ZCDPEvent:
        return ZCDPEvent(self.rho)

    def open(self, source: NoiseSource) -> PaidTokens:
        """What a paid charge gives, once for all batches. Only what has paid may call it."""
        assert self.test is None, "no plan has a test any more"
        return PaidTokens(self, source)


class PaidTokens(PaidInParts["PrivateTokens"]):
    """A charge that was paid, from which each batch has its tokens."""

    def batch(self, name: str | None = None, *, tokens_spent: int = 0) -> BatchTokens:
        """What is left to one batch. Ask once per batch: two for the same records would spend twice what was paid.

        Args:
            name: the batch's own; with it a second one for the same batch is refused.
            tokens_spent: private tokens in this batch's stored examples.

        Raises PrivacyError if the stored examples hold more than was charged, or the batch was opened before.
        """
        if name is not None:
            self._once(f"batch {name}")
        return BatchTokens(self._mechanism, self._source, tokens_spent=tokens_spent)


class BatchTokens:
    """The private tokens of one batch, counted before each is chosen. Each batch has its own; one thread at a time."""

    def __init__(self, mechanism: PrivateTokens, source: NoiseSource, *, tokens_spent: int) -> None:
        if not 0 <= tokens_spent <= mechanism.tokens:
            raise PrivacyError(
                "The stored examples of a batch hold more private tokens than were charged.",
                "The run folder does not belong to this charge: release into a new one.",
            )
        self._mechanism = mechanism
        self._source = source
        self.tokens_spent = tokens_spent

    @property
    def left(self) -> int:
        """Private tokens that may still be chosen."""
        return self._mechanism.tokens - self.tokens_spent

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


def tokens_within(budget: Budget, *, clip: float, batch_size: int, temperature: float) -> int:
    """The most private tokens per batch within ``budget``; 0 if not even one.

    All but ``budget`` are of :class:`PrivateTokens`.

    Returns:
        r, the largest with r rho_token within the rho that ``budget`` allows.

    Raises ConfigError if delta is 0, or a parameter out of its range.
    """
    allowed = zcdp_within(budget)
    tokens = math.floor(allowed / PrivateTokens(clip, batch_size, temperature, 1).rho_token)
    while tokens > 0 and PrivateTokens(clip, batch_size, temperature, tokens).rho > allowed:
        tokens -= 1  # rounding, at the edge
    return tokens


def clip_for(budget: Budget, tokens: int, *, batch_size: int, temperature: float) -> float:
    """The largest clip range at which ``tokens`` private tokens per batch are within ``budget``.

    All but ``budget`` are of :class:`PrivateTokens`. Raises ConfigError if delta is 0, or a parameter is out of its
    range.
    """
    allowed = zcdp_within(budget)
    clip = batch_size * temperature * math.sqrt(2 * allowed / tokens)
    while PrivateTokens(clip, batch_size, temperature, tokens).rho > allowed:
        clip *= 1 - 1e-12
    return clip
