"""What a cell of a typed column says: values of each kind as files have them, and as numbers on a line."""

from __future__ import annotations

import datetime
import decimal
import re
from typing import Any, Literal, cast, get_args

from understudy.base.labels import Label, as_type, canonical

Kind = Literal["category", "boolean", "integer", "number", "date", "datetime", "identifier"]
Value = Label | datetime.date | datetime.datetime
KINDS: tuple[str, ...] = get_args(Kind)
_MOST = 2**53


def parse(value: object, kind: Kind) -> Any:
    """A value of this kind, None where it is none."""
    if isinstance(value, decimal.Decimal):
        value = str(value)
    if kind in ("date", "datetime"):
        return _parse_time(value, whole_days=kind == "date")
    number = as_type(value, "float" if kind == "number" else None)
    if kind == "integer":
        try:
            whole_one = None if number is None or isinstance(number, bool) else canonical(number)
            found = None if whole_one is None else int(re.sub(r"\.0+$", "", whole_one.strip()))
        except ValueError:
            return None
        return found if found is not None and abs(found) <= _MOST else None
    return number if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _parse_time(value: object, *, whole_days: bool) -> Any:
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None and not whole_days:
            try:
                value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            except OverflowError:
                return None
        return value.date() if whole_days else value.replace(microsecond=0)
    if isinstance(value, datetime.date):
        return value if whole_days else datetime.datetime.combine(value, datetime.time())
    return None


_EPOCH = datetime.datetime(1970, 1, 1)


def number_of(value: Any) -> float | int:
    """A value on the line that its range is on: days, or seconds."""
    if isinstance(value, datetime.datetime):
        return int((value - _EPOCH).total_seconds())
    return value.toordinal() if isinstance(value, datetime.date) else cast("float | int", value)


def from_number(kind: Kind, number: int) -> Value:
    if kind == "date":
        return datetime.date.fromordinal(number)
    return _EPOCH + datetime.timedelta(seconds=number) if kind == "datetime" else number
