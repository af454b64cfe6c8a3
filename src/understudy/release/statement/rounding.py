"""Numbers of a promise for people: rounded to the side that promises nothing too much."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context


def round_up(value: float) -> str:
    """Four digits, never less than the value."""
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value))):g}"


def in_a_hundred(rate: float) -> str:
    """A rate in percent, never less than it is."""
    return round_up(min(100 * rate, 100.0))
