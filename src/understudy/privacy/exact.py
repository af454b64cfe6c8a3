"""The numbers of budgets: exactly as typed, and within a public range.

Such numbers from users, configurations and files are read here. A number is a decimal in ASCII digits
(``3``, ``0.5``, ``1e-6``) or a ratio of whole numbers (``1/3``), and is kept as a fraction. The ranges are wide enough
for every use, and such that everything that is computed from a number in them stays clear of what doubles cannot hold.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from understudy.base.errors import ConfigError

Number = float | int | str | Decimal | Fraction

EPSILONS = (Fraction("1e-9"), Fraction(100_000))
"""Least and largest epsilon of a budget or cap."""
DELTAS = (Fraction("1e-14"), Fraction("0.5"))
"""Least and largest delta of a budget or cap, apart from 0."""
CHANCES = (Fraction("1e-100"), Fraction("0.999999999"))
"""Least and largest prior and posterior of a secret."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_RATIO = re.compile(r"[0-9]+/[0-9]+")
_MOST_TYPED = 60
_MOST_STORED = 2000


def exact(text: str) -> Fraction:
    """The fraction that a stored number spells: what ``str`` of a Fraction writes, or a decimal. Of any size.

    Raises ValueError: it spells no number. Takes no time, whatever the text.

    >>> exact("1e-6"), exact("1/3")
    (Fraction(1, 1000000), Fraction(1, 3))
    """
    if isinstance(text, str) and len(text) <= _MOST_STORED and (_DECIMAL.fullmatch(text) or _RATIO.fullmatch(text)):
        try:
            return Fraction(text)
        except ZeroDivisionError:
            pass
    raise ValueError("this spells no number")


def typed(value: object) -> str:
    """What a user typed, or a number of Python's or NumPy's as it is shown: ``0.1`` is one tenth, whatever its type.

    Raises ValueError: it is neither text nor a number.

    >>> typed(0.1), typed(" 3 ")
    ('0.1', '3')
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, numbers.Number):  # NumPy's numbers are, its booleans are not
        raise ValueError("expected a number")
    return str(value)


def require_epsilon(**named: Number | None) -> Fraction:
    """The one named value as an exact fraction within :data:`EPSILONS`.

    >>> require_epsilon(epsilon=0.1)
    Fraction(1, 10)
    """
    return _within(named, EPSILONS)


def require_budget_delta(**named: Number | None) -> Fraction:
    """The one named value as an exact fraction: 0, or within :data:`DELTAS`.

    >>> require_budget_delta(delta="1e-6")
    Fraction(1, 1000000)
    """
    return _within(named, DELTAS, or_zero=True)


def require_chance(**named: Number | None) -> Fraction:
    """The one named value as an exact fraction within :data:`CHANCES`.

    >>> require_chance(secret_prior="1e-3")
    Fraction(1, 1000)
    """
    return _within(named, CHANCES)


def as_typed(number: Fraction) -> str:
    """A number in full: never rounded to 0, nor to fewer digits than a double has.

    >>> as_typed(Fraction(6)), as_typed(Fraction("1.0000049")), as_typed(Fraction("1e-6")), as_typed(Fraction("1e-400"))
    ('6', '1.0000049', '1e-06', '1e-400')
    """
    if number.denominator == 1 and abs(number) < 10**21:
        return str(number)
    if abs(number) < 10**300 and (number == 0 or abs(number) > Fraction("1e-300")):
        double = float(number)
        if number in (Fraction(double), Fraction(repr(double))):
            return repr(double)
    whole = Context(prec=_MOST_TYPED)
    found = whole.divide(Decimal(number.numerator), Decimal(number.denominator))
    if Fraction(found) != number:
        found = Context(prec=17).plus(found)
    return str(found.normalize(whole)).lower()


def round_up(value: float) -> str:
    """Four digits, never less than the value.

    >>> round_up(0.123401)
    '0.1235'
    """
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value))):g}"


def in_a_hundred(rate: float) -> str:
    """A rate in percent, never less than it is.

    >>> in_a_hundred(0.05)
    '5'
    """
    return round_up(min(100 * rate, 100.0))


def _within(
    named: Mapping[str, Number | None], limits: tuple[Fraction, Fraction], *, or_zero: bool = False
) -> Fraction:
    ((name, value),) = named.items()
    if value is None:
        raise ConfigError(f"{name} is missing.", f"Give {name}: it has no default.")
    low, high = limits
    wanted = f"{'0, or ' * or_zero}{_range(low)} to {_range(high)}"
    try:
        text = typed(value)
        if len(text) > _MOST_TYPED and not isinstance(value, Fraction):
            raise ValueError
        number = exact(text)
    except ValueError:
        raise ConfigError(
            f"Expected a number for {name}, got {_shortened(value)}.",
            f"Give {name} ({wanted}) in digits, such as 3, 0.5 or 1e-6.",
        ) from None
    if not (low <= number <= high or (or_zero and number == 0)):
        raise ConfigError(f"Expected {name} of {wanted}, got {_shortened(value)}.", f"Choose {name} in this range.")
    return number


def _range(number: Fraction) -> str:
    return f"{float(number):.9g}"


def _shortened(value: object) -> str:
    try:
        text = str(value)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _MOST_TYPED else f"{text[:_MOST_TYPED]}..."


def _read(name: str, value: Number | None) -> Fraction:
    if value is None:
        raise ConfigError(f"{name} is missing.", f"Give {name}: it has no default.")
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        return value if isinstance(value, Fraction) else exact(str(value))
    except ValueError:
        raise ConfigError(f"Expected a finite number for {name}, got {value!r}.", f"Give {name} as a number.") from None


def require_positive(**named: Number | None) -> Fraction:
    """The one named value as an exact fraction, greater than 0.

    >>> require_positive(noise=0.5)
    Fraction(1, 2)
    """
    ((name, value),) = named.items()
    number = _read(name, value)
    if number <= 0:
        raise ConfigError(f"Expected {name} > 0, got {value}.", f"Choose a positive {name}.")
    return number


def require_nonnegative(**named: Number | None) -> Fraction:
    """The one named value as an exact fraction, 0 or more (infinity is an error).

    >>> require_nonnegative(rho=0)
    Fraction(0, 1)
    """
    ((name, value),) = named.items()
    number = _read(name, value)
    if number < 0:
        raise ConfigError(f"Expected {name} >= 0, got {value}.", f"Choose {name} of 0 or more.")
    return number


def require_delta(*, delta: Number | None, allow_zero: bool) -> Fraction:
    """delta as an exact fraction in (0, 1), or [0, 1) with ``allow_zero``.

    >>> require_delta(delta=0, allow_zero=True)
    Fraction(0, 1)
    """
    number = _read("delta", delta)
    if not 0 <= number < 1 or (number == 0 and not allow_zero):
        wanted = "0 <= delta < 1" if allow_zero else "0 < delta < 1"
        raise ConfigError(
            f"Expected {wanted}, got {delta}.",
            "Choose delta well below one over the number of people in the data, for example 1e-6.",
        )
    return number
