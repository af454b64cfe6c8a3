"""Search for the least noise, most steps or highest rate that a budget allows. Never errs on the unsafe side.

The constraint is given as an *excess*: a monotone function that is 0 or less where the budget suffices, best
the logarithm of the spending over the budget. Whatever a root finder returns, the answer is a number at which
the excess itself was computed, and was 0 or less. It has few digits beyond the tolerance. A different processor or
library, whose last bits differ, finds the same number, so a run can be resumed there under its charge.
"""

from __future__ import annotations

import math
from collections.abc import Callable

TOLERANCE = 1e-3
"""Relative distance of an answer from the exact limit, on the safe side."""

_FINITE = 1e3  # stands for an infinite excess: root finders need numbers
_LARGEST_STEP = math.log(16)


def log_ratio(spent: float, budget: float) -> float:
    """Return the excess of ``spent`` over ``budget``, both 0 or more: ln(spent / budget), within +-1000."""
    if spent <= 0:
        return -_FINITE
    return min(max(math.log(spent / budget), -_FINITE), _FINITE) if math.isfinite(spent) else _FINITE


def edge(
    excess: Callable[[float], float], *, near: float, safe: float, unsafe: float, tolerance: float = TOLERANCE
) -> float | None:
    """Return the number closest to ``unsafe`` that the budget allows.

    Args:
        excess: monotone between ``safe`` and ``unsafe``, and 0 or less where the budget suffices.
        near: the start of the search, between the two.
        safe: the end that spends least (more noise, fewer steps), above 0.
        unsafe: the other end, above 0.
        tolerance: of the result, as a share of the number.

    Returns:
        ``x`` with ``excess(x) <= 0``: ``unsafe`` if the budget allows it, else a number within ``tolerance`` of one
        that it does not allow; None if it does not even allow ``safe``.
    """
    from scipy.optimize import brentq

    first, last = math.log(safe), math.log(unsafe)
    direction = math.copysign(1.0, last - first)  # towards the unsafe end
    margin = tolerance / 4
    bits = 6 - math.frexp(margin)[1]
    known: dict[float, float] = {}

    def number(log: float) -> float:
        if log in (first, last):
            return safe if log == first else unsafe
        mantissa, exponent = math.frexp(math.exp(log))
        short = math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)
        return min(max(short, min(safe, unsafe)), max(safe, unsafe))

    def at(log: float) -> float:
        if log not in known:
            known[log] = excess(number(log))
        return known[log]

    def moved(log: float, step: float) -> float:
        """Move by ``step`` towards the unsafe end, and never beyond an end."""
        return min(max(log + direction * step, min(first, last)), max(first, last))

    kept = broken = None
    here, step = moved(math.log(near), 0.0), 0.0
    while kept is None or broken is None:
        value = at(here)
        if value <= 0:
            kept = here
            if here == last:
                return unsafe
        else:
            broken = here
            if here == first:
                return None
        # what is spent is most often about a first power of the number: a little further than where that ends
        step = max(2 * step, min(1.1 * abs(value) + 0.01, _LARGEST_STEP))
        here = moved(here, step if value <= 0 else -step)
    found = kept
    if at(kept) + margin < 0:
        found = brentq(lambda log: at(log) + margin, kept, broken, xtol=margin, rtol=1e-12, disp=False)
    step = margin
    while at(found) > 0:
        found = moved(found, -step)
        step *= 2
    return number(found)


def last_number(holds: Callable[[int], bool], *, holds_at: int, fails_at: int) -> int:
    """Return the whole number closest to ``fails_at`` at which ``holds``; it must be monotone between the two."""
    while abs(fails_at - holds_at) > 1:
        middle = (holds_at + fails_at) // 2
        if holds(middle):
            holds_at = middle
        else:
            fails_at = middle
    return holds_at


def to_the_last_bit(holds: Callable[[float], bool], *, holds_at: float, fails_at: float) -> float:
    """Return the double closest to ``fails_at`` at which ``holds``; it must be monotone between the two, and cheap."""
    while (middle := (holds_at + fails_at) / 2) not in (holds_at, fails_at):
        if holds(middle):
            holds_at = middle
        else:
            fails_at = middle
    return holds_at
