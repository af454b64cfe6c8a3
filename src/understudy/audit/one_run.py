"""A lower bound on epsilon from one run, into which many canaries were planted by coin.

An (epsilon, delta)-private run lets nobody guess the coins of its own canaries much better than randomised response
does: a guess is right with chance at most e^epsilon / (e^epsilon + 1), jointly over all guesses, plus a term in delta.

Source: Steinke, Nasr and Jagielski 2023, *Privacy Auditing with One (1) Training Run* (arXiv:2305.08846), Theorem 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.privacy.search import last_number, to_the_last_bit

CEILING = 50.0
"""Epsilons above this mean nothing; no bound is larger."""
MOST_CANARIES = 100_000


def p_value(correct: int, guesses: int, *, canaries: int, epsilon: float, delta: float) -> float:
    """The chance, at most, that an (epsilon, delta)-private run lets ``correct`` or more guesses be right.

    With W ~ Binomial(r, e^epsilon / (e^epsilon + 1)), r the guesses, v the right ones and m the canaries::

        P[W >= v] + 2 m delta max over i of P[v > W >= v - i] / i

    Args:
        correct: v, guesses that are right, 0 to ``guesses``.
        guesses: r, fixed before the run: canaries of whose coin a guess is made, 0 to ``canaries``.
        canaries: m, each planted or not by a fair coin of its own.
        epsilon, delta: of the promise that is tested, for adding or removing one canary.

    Source: Theorem 5.2, for guesses of -1, 0 and 1.
    """
    from scipy.stats import binom

    share = 1 / (1 + math.exp(-epsilon))
    chance = float(binom.sf(correct - 1, guesses, share))
    if delta > 0 and correct > 0:
        steps = np.arange(1, correct + 1)
        below = np.cumsum(binom.pmf(correct - steps, guesses, share))
        chance += 2 * canaries * delta * float(np.max(below / steps))
    return min(chance, 1.0)


def lower_bound(correct: int, guesses: int, *, canaries: int, delta: float, confidence: float) -> float:
    """The epsilon below which a run would show so many right guesses in at most ``1 - confidence`` of all cases.

    Args:
        correct, guesses, canaries, delta: as in :func:`p_value`.
        confidence: in (0, 1).

    Returns:
        0 to :data:`CEILING`.

    >>> round(lower_bound(1000, 1000, canaries=1000, delta=0, confidence=0.95), 3)
    5.809
    """

    def rejected(epsilon: float) -> bool:
        return p_value(correct, guesses, canaries=canaries, epsilon=epsilon, delta=delta) <= 1 - confidence

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, 2 * high
        if low >= CEILING:
            return CEILING
    return to_the_last_bit(rejected, holds_at=low, fails_at=high)


@dataclass(frozen=True)
class GuessRule:
    """How many guesses are made: fixed before the run, whatever the scores.

    Args:
        name: in words.
        present: canaries of the highest scores, guessed to be in the data.
        absent: canaries of the lowest scores, guessed not to be.
    """

    name: str
    present: int
    absent: int

    @property
    def guesses(self) -> int:
        return self.present + self.absent

    def correct(self, scores: NDArray[np.float64], planted: NDArray[np.bool_]) -> int:
        """How many of the guesses are right. Equal scores are told apart by the canaries' order, which no coin knows.

        Args:
            scores: ``Float64[m]``, high where a canary seems to be in the data.
            planted: ``Bool[m]``, the coins.
        """
        order = np.argsort(-scores, kind="stable")
        absent = order[len(order) - self.absent :]
        return int(planted[order[: self.present]].sum() + (~planted[absent]).sum())


def guess_rules(canaries: int) -> tuple[GuessRule, ...]:
    """The rules that every attack is tried with; the bound pays for their number.

    - nearly all: perfect scores make perfect guesses, since the number planted is within five standard deviations of
      one half (but for one chance in a million);
    - the surest half and the surest tenth: for scores that tell some canaries clearly, and others not;
    - the highest twentieth only: for outputs that repeat a few canaries and say nothing of the others.
    """
    most = max(1, math.floor(canaries / 2 - 2.5 * math.sqrt(canaries)))
    quarter, few = max(1, canaries // 4), max(1, canaries // 20)
    return (
        GuessRule("nearly all", most, most),
        GuessRule("surest half", quarter, quarter),
        GuessRule("surest tenth", few, few),
        GuessRule("highest twentieth", few, 0),
    )


def largest_bound(rules: Sequence[GuessRule], *, canaries: int, delta: float, confidence: float) -> float:
    """The power of the test: the bound if every guess were right. No run can be shown to leak more."""
    return max(
        lower_bound(rule.guesses, rule.guesses, canaries=canaries, delta=delta, confidence=confidence) for rule in rules
    )


def canaries_needed(epsilon: float, *, delta: float, confidence: float) -> int | None:
    """The fewest canaries whose :func:`largest_bound` is above ``epsilon``; None if :data:`MOST_CANARIES` are too few.

    Args:
        epsilon, delta: the promise.
        confidence: of each single bound, corrected for how many are tried.
    """

    def enough(canaries: int) -> bool:
        return any(
            p_value(rule.guesses, rule.guesses, canaries=canaries, epsilon=epsilon, delta=delta) < 1 - confidence
            for rule in guess_rules(canaries)
        )

    low, high = 1, 64
    while not enough(high):
        if high == MOST_CANARIES:
            return None
        low, high = high, min(2 * high, MOST_CANARIES)
    return last_number(enough, holds_at=high, fails_at=low)
