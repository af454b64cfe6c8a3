"""Validators called with keyword names, so that the message writes itself."""

from __future__ import annotations

import math
from fractions import Fraction

from understudy.errors import ConfigError
from understudy.privacy.exact import Number, exact


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
    """The one named value as an exact fraction, greater than 0."""
    ((name, value),) = named.items()
    number = _read(name, value)
    if number <= 0:
        raise ConfigError(f"Expected {name} > 0, got {value}.", f"Choose a positive {name}.")
    return number


def require_nonnegative(**named: Number | None) -> Fraction:
    """The one named value as an exact fraction, 0 or more (infinity is an error)."""
    ((name, value),) = named.items()
    number = _read(name, value)
    if number < 0:
        raise ConfigError(f"Expected {name} >= 0, got {value}.", f"Choose {name} of 0 or more.")
    return number


def require_delta(*, delta: Number | None, allow_zero: bool) -> Fraction:
    """delta as an exact fraction in (0, 1), or [0, 1) with ``allow_zero``."""
    number = _read("delta", delta)
    if not 0 <= number < 1 or (number == 0 and not allow_zero):
        wanted = "0 <= delta < 1" if allow_zero else "0 < delta < 1"
        raise ConfigError(
            f"Expected {wanted}, got {delta}.",
            "Choose delta well below one over the number of people in the data, for example 1e-6.",
        )
    return number
