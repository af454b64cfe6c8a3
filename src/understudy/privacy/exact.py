"""Read the numbers of budgets exactly as typed, and check that they are within a public range.

The numbers come from users, configurations and files. A number is a decimal in ASCII digits
(``3``, ``0.5``, ``1e-6``) or a ratio of whole numbers (``1/3``), and is kept as a fraction. The ranges are wide enough
for every use, and narrow enough that no computation from a number in them overflows or underflows a double.
"""

from __future__ import annotations

import numbers
import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from understudy.base.errors import ConfigError

Number = float | int | str | Decimal | Fraction


@dataclass(frozen=True)
class Range:
    """A range of allowed numbers. Every number of a budget or mechanism is checked by one.

    Args:
        low, high: its ends; None if it is unbounded.
        words: the range in words, as after "Expected epsilon".
        without: ends that are excluded.
        or_zero: whether 0 is included though it is below ``low``.

    >>> EPSILONS.of(epsilon=0.1), DELTAS.of(delta="1e-6"), POSITIVE.of(noise=0.5)
    (Fraction(1, 10), Fraction(1, 1000000), Fraction(1, 2))
    """

    low: Fraction
    high: Fraction | None
    words: str
    without: tuple[int, ...] = ()
    or_zero: bool = False

    def of(self, **named: Number | None) -> Fraction:
        """Return the one named value as an exact fraction. Raises ConfigError if it is not in this range."""
        ((name, value),) = named.items()
        if value is None:
            raise ConfigError(f"{name} is missing.", f"Give {name}: it has no default.")
        try:
            text = typed(value)
            if len(text) > _MOST_TYPED and not isinstance(value, Fraction):
                raise ValueError
            number = value if isinstance(value, Fraction) else exact(text)
        except ValueError:
            raise ConfigError(
                f"Expected a number for {name}, got {_shortened(value)}.",
                f"Give {name} ({self.words}) in digits, such as 3, 0.5 or 1e-6.",
            ) from None
        if number not in self:
            problem = f"Expected {name} {self.words}, got {_shortened(value)}."
            raise ConfigError(problem, f"Choose {name} in this range.")
        return number

    def __contains__(self, number: Fraction) -> bool:
        within = self.low <= number and (self.high is None or number <= self.high) and number not in self.without
        return within or (self.or_zero and number == 0)


EPSILONS = Range(Fraction("1e-9"), Fraction(100_000), "of 1e-09 to 100000")
"""Of a budget or cap."""
DELTAS = Range(Fraction("1e-14"), Fraction("0.5"), "of 0, or 1e-14 to 0.5", or_zero=True)
"""Of a budget or cap."""
CHANCES = Range(Fraction("1e-100"), Fraction("0.999999999"), "of 1e-100 to 0.999999999")
"""Of a prior and a posterior of a secret."""
POSITIVE = Range(Fraction(0), None, "> 0", without=(0,))
NONNEGATIVE = Range(Fraction(0), None, ">= 0")
PROBABILITIES = Range(Fraction(0), Fraction(1), "> 0 and < 1", without=(0, 1))
PROBABILITIES_OR_ZERO = Range(Fraction(0), Fraction(1), ">= 0 and < 1", without=(1,))
RATES = Range(Fraction(0), Fraction(1), "> 0 and <= 1", without=(0,))

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_RATIO = re.compile(r"[0-9]+/[0-9]+")
_MOST_TYPED = 60
_MOST_STORED = 2000


def exact(text: str) -> Fraction:
    """Return the fraction that a stored text spells: a decimal, or as ``str`` of a Fraction writes it. Of any size.

    Raises ValueError if it does not spell a number. Fast for any text.

    >>> exact("1e-6"), exact("1/3")
    (Fraction(1, 1000000), Fraction(1, 3))
    """
    if isinstance(text, str) and len(text) <= _MOST_STORED and (_DECIMAL.fullmatch(text) or _RATIO.fullmatch(text)):
        try:
            return Fraction(text)
        except ZeroDivisionError:
            pass
    raise ValueError("this does not spell a number")


def typed(value: object) -> str:
    """Return the text that a user typed, or the text of a Python or NumPy number: ``0.1`` is one tenth in any type.

    Raises ValueError if it is neither text nor a number.

    >>> typed(0.1), typed(" 3 ")
    ('0.1', '3')
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, numbers.Number):  # NumPy's numbers are, its booleans are not
        raise ValueError("expected a number")
    return str(value)


def as_typed(number: Fraction) -> str:
    """Return a number in full: never rounded to 0, nor to fewer digits than a double has.

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
    """Return the value in four digits, rounded up.

    >>> round_up(0.123401)
    '0.1235'
    """
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value))):g}"


def in_a_hundred(rate: float) -> str:
    """Return a rate in percent, rounded up.

    >>> in_a_hundred(0.05)
    '5'
    """
    return round_up(min(100 * rate, 100.0))


def _shortened(value: object) -> str:
    try:
        text = str(value)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _MOST_TYPED else f"{text[:_MOST_TYPED]}..."
