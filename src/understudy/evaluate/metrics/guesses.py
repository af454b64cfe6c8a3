"""Bounds on how often an attacker can guess which records a private run used.

Suppose that a fair coin decides for each of some records whether it is used in an (epsilon, delta)-private run. Nobody
can then guess these coins from the result much better than with randomised response: a guess is right with probability
at most e^epsilon / (e^epsilon + 1), jointly over all guesses, plus a term in delta.

Source: Steinke, Nasr and Jagielski 2023, *Privacy Auditing with One (1) Training Run* (arXiv:2305.08846), Theorem 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from understudy.base.lazy import stats
from understudy.privacy.search import to_the_last_bit

CEILING = 50.0
"""Largest lower bound on epsilon that is reported; larger values would mean nothing."""


def p_value(correct: int, guesses: int, *, canaries: int, epsilon: float, delta: float) -> float:
    """Return the largest chance that an (epsilon, delta)-private run allows ``correct`` or more right guesses.

    With W ~ Binomial(r, e^epsilon / (e^epsilon + 1)), r the guesses, v the right ones and m the canaries::

        P[W >= v] + 2 m delta max over i of P[v > W >= v - i] / i

    The guesses' number is fixed before the run, each canary is planted by a fair coin, and the promise is for adding or
    removing one canary. Source: Theorem 5.2, for guesses of -1, 0 and 1.
    """
    share = 1 / (1 + math.exp(-epsilon))
    chance = float(stats.binom.sf(correct - 1, guesses, share))
    if delta > 0 and correct > 0:
        steps = np.arange(1, correct + 1)
        below = np.cumsum(stats.binom.pmf(correct - steps, guesses, share))
        chance += 2 * canaries * delta * float(np.max(below / steps))
    return min(chance, 1.0)


@lru_cache(maxsize=256)
def lower_bound(correct: int, guesses: int, *, canaries: int, delta: float, confidence: float) -> float:
    """Return the epsilon, at most CEILING, below which this many guesses are right in ``1 - confidence`` of all cases.

    >>> round(lower_bound(1000, 1000, canaries=1000, delta=0, confidence=0.95), 3)
    5.809
    """

    def rejected(epsilon: float) -> bool:
        return p_value(correct, guesses, canaries=canaries, epsilon=epsilon, delta=delta) <= 1 - confidence

    return largest_rejected(rejected)


def largest_rejected(rejected: Callable[[float], bool]) -> float:
    """Return the largest epsilon, at most CEILING, that a test rejects, as it rejects all smaller ones; 0 for none."""
    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, 2 * high
        if low >= CEILING:
            return CEILING
    return to_the_last_bit(rejected, holds_at=low, fails_at=high)
