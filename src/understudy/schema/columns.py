"""Define a typed column: a name, and a declared, finite domain of cells.

The domain is public: the values of a category, or a range in bins. Missing values have a separate cell, the last one,
unless the column is declared to be required.
Numbers outside their range count as its nearest end; a date outside its range, a value of a different kind, or a
category that is not declared makes a bad row.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, did_you_mean
from understudy.base.files import MOST_SETTINGS_BYTES, UnreadableText, cannot_read, read_whole
from understudy.base.lazy import pa
from understudy.schema.formats import (
    HINT,
    as_written,
    digits,
    formats_of,
    how_many,
    invented,
    marks_of,
    require_format,
    written,
)
from understudy.schema.labels import Label, Places, as_type, canonical, is_missing

T = TypeVar("T", int, float)
MOST_CELLS = 1_000
"""Most cells of one column."""
_BINS = 16
_SHOWN = 12
_MOST_DECIMALS = 12
_LARGEST_PLACE = 2**52
"""Largest number in units of its last decimal: up to here different numbers have different decimal texts."""
_MISSING = "missing"
_WRITTEN = ("boolean", "integer", "number", "date", "datetime")
_OF_WRITING = ("format", "missing")
_TIMES = ("date", "datetime")
_UNWRITTEN = object()
"""The marker of an invalid value."""
_FORMS = {
    "boolean": "it contains true or false, yes or no, 1 or 0",
    "integer": "it contains whole numbers such as 1200, without separators or units",
    "number": "it contains numbers such as 1200.50: a point before the decimals, no other separators, no units",
    "date": "it contains dates such as 2024-12-31",
    "datetime": "it contains times such as 2024-12-31T23:59",
    "identifier": "it is not read",
}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
FORM = (
    "Declare `NAME=A|B|C`, `NAME=0..100/20` (a range in 20 bins), `NAME=identifier P-####` or `NAME` (a boolean); in "
    "YAML and Python also `NAME: {kind: integer, range: [0, 100], bins: 20, required: true}`. docs/tables.md has all "
    "forms."
)
_IDENTIFIER = (
    "Declare `NAME: identifier P-####` in YAML and Python, or `NAME=identifier P-####` in short, where # is a digit "
    "and ? a letter; `identifier` alone makes random ones."
)

_ENDS = (
    "Write a range with a point before decimals, no thousands separator, and dates such as 2024-12-31: 0.0 and 2000.0, "
    "not 0,0 and 2.000,0. Next to a `format`, it may be written in this format, with years of four digits."
)

Span = tuple[int, int]
"""A part of a range with both ends: whole numbers, numbers in units of their last decimal, days or seconds."""


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition on the values of a column.

    Args:
        weights: ``Float64[size]``: the share of each cell's values that meet it.
        spans: the values within bins that meet it; all if empty.
    """

    weights: NDArray[np.float64]
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Column:
    """One typed column: its name and its domain.

    Args:
        values: of a category, in their own type.
        least, most: ends of the range, both included: whole numbers, decimals, dates (ISO 8601 where they are strings).
        bins: of equal width over the range, at most as many as it has values; each is a cell.
        decimals: digits after the point of a number; None: two, or as many as the ends have.
        required: no value may be missing: there is no cell for missing values, and a row without one is a bad row.
        format: how a text file writes its values (:mod:`understudy.schema.formats`); empty: as in :data:`_FORMS`.
        marks: cells of such a file that mean a missing value. Columns that only differ in form or marks are equal.
    """

    name: str
    kind: Kind
    values: tuple[Label, ...] = ()
    least: Any = None
    most: Any = None
    bins: int = 0
    decimals: Any = None
    required: bool = False
    format: str = field(default="", compare=False)
    marks: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise no_column("", "it has no name that can be shown")
        if self.kind not in KINDS:
            raise no_column(self.name, f"there is no kind {self.kind!r:.40}, only {', '.join(KINDS)}")
        if not isinstance(self.required, bool):
            raise no_column(self.name, "`required` is neither true nor false", "Write `required: true`.")
        try:
            object.__setattr__(self, "marks", marks_of(self.marks))
            if self.format != "":
                require_format(self.kind, self.format)
        except ValueError as error:
            raise no_column(self.name, str(error), _IDENTIFIER if self.kind == "identifier" else FORM) from None
        if self.kind == "identifier":
            if self.values or self.least is not None or self.most is not None or self.bins or self.required:
                problem = "an identifier has no values and no range, and is never required"
                raise no_column(self.name, problem, _IDENTIFIER)
        elif self.kind in ("category", "boolean"):
            self._check_values()
        else:
            self._check_range()
        if self.size > MOST_CELLS:
            raise no_column(self.name, f"it has more than {MOST_CELLS} cells", "Declare fewer values or bins.")

    def _check_values(self) -> None:
        if self.least is not None or self.most is not None or self.bins:
            raise no_column(self.name, f"a {self.kind} has no range")
        if self.kind == "boolean":
            if self.values:
                raise no_column(self.name, "a boolean does not take values")
            object.__setattr__(self, "values", (False, True))
        if len(self.values) >= MOST_CELLS:
            raise no_column(self.name, f"it has more than {MOST_CELLS} cells", "Declare fewer values.")
        usable = all(as_type(value, None) is not None and not is_missing(value) for value in self.values)
        if not self.values or not usable:
            raise no_column(self.name, "a category needs values: strings, numbers or booleans")
        if len({type(value) for value in self.values}) > 1 or any(
            isinstance(value, int) and abs(value) >> 63 for value in self.values
        ):
            raise no_column(self.name, "its values are not of one supported type", "Quote them all.")
        if len({canonical(value) for value in self.values}) < len(self.values):
            raise no_column(self.name, "a value is declared twice")
        if _MISSING in map(canonical, self.values):
            raise no_column(
                self.name,
                f"the value {_MISSING!r} is the name of a missing value",
                "Rename it in the table, or make these cells empty and leave the value out.",
            )

    def _check_range(self) -> None:
        if self.values:
            raise no_column(self.name, f"a column of the kind {self.kind} has a range, not values")
        least, most = self._end(self.least), self._end(self.most, last=True)
        if least is None or most is None:
            raise no_column(self.name, f"its range does not have two ends of the kind {self.kind}", _ENDS)
        if least > most or (least == most and self.kind == "number"):
            raise no_column(self.name, "its range ends before it begins")
        object.__setattr__(self, "least", least)
        object.__setattr__(self, "most", most)
        if self.kind == "integer" and not -(2**63) <= least <= most < 2**63:
            raise no_column(
                *(self.name, "an end of its range has more than 64 bits, which no table can store"),
                "Declare a narrower range; declare numbers that are names as a category or an identifier.",
            )
        if (
            self.kind in _TIMES
            and "%y" in self.format
            and (least.year + 100, *least.timetuple()[1:6]) <= most.timetuple()[:6]
        ):
            raise no_column(
                *(self.name, "its range has more than a hundred years, so a year of two digits is ambiguous"),
                "Declare a shorter range, or write the years with four digits (%Y).",
            )
        if not isinstance(self.bins, int) or isinstance(self.bins, bool) or self.bins < 0:
            raise no_column(self.name, "its bins are not a number from 1")
        if self.kind == "number":
            self._check_decimals()
        low, high = self._line
        object.__setattr__(self, "bins", min(self.bins or _BINS, high - low + 1))

    def _check_decimals(self) -> None:
        ends = float(self.least), float(self.most)
        if self.decimals is None:
            decimals = min(max(2, *map(_decimals_of, ends)), _MOST_DECIMALS)
            while decimals and max(map(abs, ends)) * 10**decimals > _LARGEST_PLACE:
                decimals -= 1
            object.__setattr__(self, "decimals", decimals)
        if not isinstance(self.decimals, int) or not 0 <= self.decimals <= _MOST_DECIMALS:
            raise no_column(self.name, f"its decimals are not a number from 0 to {_MOST_DECIMALS}")
        if max(map(abs, ends)) * 10**self.decimals > _LARGEST_PLACE:
            raise no_column(
                *(self.name, "its numbers have more digits than a decimal number can store"),
                "Declare fewer decimals, whole numbers (`kind: integer`), or another unit.",
            )
        if self._line[0] > self._line[1]:
            raise no_column(
                self.name,
                "no number with this many decimals is in its range",
                "Declare more decimals or a wider range.",
            )

    def _end(self, end: object, *, last: bool = False) -> Any:
        """Return an end of the range, written as in the table or in the standard form, with years of four digits. A day
        or minute that ends a range of times (``2024-12-31``) means its last second."""
        format_ = self.format.replace("%y", "%Y")
        written = as_written(end, self.kind, format_) if format_ and isinstance(end, str) else None
        found = parse(end if written is None else written, self.kind)
        if found is None or self.kind != "datetime" or not last or isinstance(end, datetime.datetime):
            return found
        colons = str(end).count(":")
        if colons == 0 and found.time() == datetime.time():
            return found.replace(hour=23, minute=59, second=59)
        return found.replace(second=59) if colons == 1 and found.second == 0 else found

    @cached_property
    def _line(self) -> Span:
        """Return the places of the first and the last value of the range."""
        return self._places(self.least, self.most)

    def _places(self, least: Any, most: Any) -> Span:
        """Return the places of the first and last value between two: for numbers, those with the column's decimals."""
        if self.kind != "number":
            return number_of(least), number_of(most)
        low, high = (decimal.Decimal(repr(float(end))).scaleb(self.decimals) for end in (least, most))
        return math.ceil(low), math.floor(high)

    @property
    def _width(self) -> int:
        """Return how many places the bins divide. Bins of several numbers begin at their edges (0.0..60.0 in 12 bins: 0
        to 5, 5 to 10, ...), and the last one includes the end of the range."""
        low, high = self._line
        return high - low + (self.kind != "number" or self.bins > high - low)

    @property
    def made_up(self) -> bool:
        """Return whether the column is an identifier: its values are never read, and every synthetic row gets a random
        one."""
        return self.kind == "identifier"

    @property
    def size(self) -> int:
        """Return the number of cells, including that of missing values if there is one."""
        return self.missing + (not self.required)

    @property
    def missing(self) -> int:
        """Return the number of cells with values, which is also the index of the cell for missing values."""
        return len(self.values) or self.bins

    @property
    def form(self) -> str:
        """Return, in words, how the column's values are written."""
        form = f"it is written as {self.format}" if self.format else _FORMS.get(self.kind, "")
        if self.format and self.kind == "integer":
            form += ", and contains whole numbers (a number with decimals is 0.0..100.0, or `kind: number`)"
        if self.kind in _TIMES:
            form += f", from {self.least} to {self.most}"
        if self.kind in _WRITTEN and not self.format:
            form += f"; {HINT}"
        if self.kind == "category":
            shown = ", ".join(map(canonical, self.values[:_SHOWN]))
            form = f"it declares {shown}{', ...' if len(self.values) > _SHOWN else ''} and no other value"
        return f"{form}; it is required, so no cell may be empty" if self.required else form

    @property
    def clamps(self) -> bool:
        """Return whether values beyond the range count as its nearest end, as for amounts; else they make bad rows."""
        return self.kind in ("integer", "number")

    def cell(self, value: object) -> int | None:
        """Return the index of the cell that a value from a file belongs to; None if the column cannot have the
        value."""
        return self.read(value)[0]

    def read(self, value: object) -> tuple[int | None, bool]:
        """Return the value's :meth:`cell`, and whether the value is beyond the range and counts as its nearest end."""
        if isinstance(value, np.generic):
            value = value.item()
        if self.kind in _TIMES and not is_missing(value):
            value = digits(value)
        if self.marks and isinstance(value, int | float) and not is_missing(value):
            spelled = isinstance(value, float) or as_type(value, None) is not None  # an integer may be too long
            value = canonical(value) if spelled and canonical(value) in self.marks else value
        if isinstance(value, str) and (self.format or self.marks):
            value = self._as_written(value)
        if is_missing(value):
            return (None if self.required else self.missing), False
        if self.values:
            label = self._label(value)
            return (None if label is None else self._index.of(label)), False
        parsed = parse(value, self.kind)
        if parsed is None:
            return None, False
        beyond = not self.least <= parsed <= self.most
        if beyond and not self.clamps:
            return None, False
        return self._bin(min(max(parsed, self.least), self.most)), beyond

    def _as_written(self, text: str) -> object:
        """Read a cell in the declared format; None if it is missing, :data:`_UNWRITTEN` if it has a different form."""
        if text.strip() in self.marks and text.strip() not in self._index:
            return None
        if not self.format:
            return text
        ends = (parse(self.least, "datetime"), _end_of_day(self.most)) if self.kind in _TIMES else None
        found = as_written(text, self.kind, self.format, ends)
        return found if found is not None else None if is_missing(text) else _UNWRITTEN

    @cached_property
    def plain(self) -> Column:
        """Return the same column with numbers and dates in the standard form, as in a synthetic table."""
        if not (self.format or self.marks):
            return self
        return Column.from_json({name: value for name, value in self.to_json().items() if name not in _OF_WRITING})

    def sample(self, cell: int, generator: np.random.Generator, within: Sequence[Span] = ()) -> Value | None:
        """Return a random value of a cell (within the spans ``within``, if there are any); None for the cell of missing
        values."""
        if self.made_up:
            return self.identifiers(1, generator)[0]
        if cell == self.missing:
            return None
        if self.values:
            return self.values[cell]
        pieces = self._pieces(cell, within or (self._line,))
        sizes = np.array([high - low + 1 for low, high in pieces], dtype=float)
        low, high = pieces[int(generator.choice(len(pieces), p=sizes / sizes.sum()))]
        return self._value(int(generator.integers(low, high + 1)))

    def identifiers(self, count: int, generator: np.random.Generator) -> list[str]:
        """Return this many made-up identifiers, all different if the pattern allows it."""
        if not self.format:
            return [f"{int(generator.integers(2**63)):016x}" for _ in range(count)]
        most = min(how_many(self.format), 2**62)
        random = Random(int(generator.integers(2**63)))
        places = random.sample(range(most), count) if count <= most else random.choices(range(most), k=count)
        return [invented(place, self.format) for place in places]

    def written(self, value: Any) -> Any:
        """Return a value as text in its declared format; a missing one as the first declared mark of missing values."""
        if value is None:
            return self.marks[0] if self.marks else None
        if not self.format or self.made_up or isinstance(value, str):
            return value
        return written(value, self.kind, self.format, decimals=self.decimals or 0)

    def _value(self, place: int) -> Value:
        return place / 10**self.decimals if self.kind == "number" else from_number(self.kind, place)

    def title(self, cell: int) -> str:
        """Return the values of a cell in words."""
        if cell == self.missing:
            return _MISSING
        if self.values:
            return canonical(self.values[cell])
        low, high = self._line
        if self.kind == "number" and self.bins <= high - low:
            edges = (
                (low * self.bins + each * (high - low)) / (self.bins * 10**self.decimals) for each in (cell, cell + 1)
            )
            return " to ".join(f"{edge:.12g}" for edge in edges)
        first, last = (self._value(end) for end in self._whole_bin(cell))
        return str(first) if first == last else f"{first} to {last}"

    def by_title(self, values: Sequence[T]) -> dict[str, T]:
        """Return the values keyed by the titles of the cells. Values of cells with the same title are added up."""
        found: dict[str, T] = {}
        for cell, value in enumerate(values):
            title = self.title(cell)
            found[title] = found[title] + value if title in found else value
        return found

    def asked(self, text: str) -> Condition:
        """Parse a condition on the column: ``A``, ``A|B``, ``5..9`` or ``missing``."""
        weights = np.zeros(self.size)
        spans: list[Span] = []
        plain = self.plain
        for part in (each.strip() for each in text.split("|")):
            first, dots, last = (each.strip() for each in part.partition(".."))
            cell = plain.cell(part) if part and self.values else None
            if cell is None and part == _MISSING and not self.required:
                cell = self.missing
            if cell is not None:
                weights[cell] = 1.0
            elif self.values:
                raise _unknown(self, part)
            else:
                spans.append(self._span(first, last if dots else first, part))
        for cell in range(self.missing if spans else 0):
            weights[cell] = min(1.0, weights[cell] + self._overlap(cell, spans))
        return Condition(weights, tuple(spans))

    def _span(self, first: str, last: str, part: str) -> Span:
        """Return the ends of a range, limited to the column's range."""
        ends = [parse(end, self.kind) for end in (first, last)]
        if None in ends:
            raise ConfigError(
                f"The column {self.name!r:.60} has no value {part.strip()!r:.60}.",
                f"Ask for one value or for FIRST..LAST, both ends written out, such as {self.least}..{self.most}: "
                f"{_FORMS[self.kind]}.",
            )
        if ends[0] > ends[1]:
            raise ConfigError(
                f"The range {part!r:.60} of the column {self.name!r:.60} ends before it begins.", "Write FIRST..LAST."
            )
        (low, high), (least, most) = self._places(*ends), self._line
        if low > high or high < least or low > most:
            shown = " to ".join(str(end) for end in (self.least, self.most))
            raise ConfigError(f"The column {self.name!r:.60} has no values in {part!r:.60}.", f"It goes from {shown}.")
        return max(low, least), min(high, most)

    def _pieces(self, cell: int, spans: Sequence[Span]) -> list[Span]:
        """Return the parts of a bin that are in the spans."""
        first, end = self._whole_bin(cell)
        inside = [(max(low, first), min(high, end)) for low, high in spans]
        return [(low, high) for low, high in inside if low <= high]

    def _overlap(self, cell: int, spans: Sequence[Span]) -> float:
        """Return the share of a bin's values that are in the spans."""
        first, last = self._whole_bin(cell)
        return sum(high - low + 1 for low, high in self._pieces(cell, spans)) / (last - first + 1)

    def arrow_type(self) -> Any:
        """Return the Arrow type of the synthetic column."""
        if self.values:
            kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
            return kinds.get(type(self.values[0]), pa.string())
        types = {"integer": pa.int64(), "number": pa.float64(), "date": pa.date32(), "datetime": pa.timestamp("us")}
        return types.get(self.kind, pa.string())

    def to_json(self) -> dict[str, Any]:
        """Return the declaration of the column as in a YAML file, with its name."""
        fields: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.required:  # if it is not, the field is left out, as in Releases without this field
            fields["required"] = True
        if self.format:
            fields["format"] = self.format
        if self.marks:
            fields["missing"] = list(self.marks)
        if self.kind == "category":
            return {**fields, "values": list(self.values)}
        if self.kind in ("boolean", "identifier"):
            return fields
        ends = [end.isoformat() if isinstance(end, datetime.date) else end for end in (self.least, self.most)]
        decimals = {"decimals": self.decimals} if self.kind == "number" else {}
        return {**fields, "range": ends, "bins": self.bins, **decimals}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Column:
        """Read what :meth:`to_json` made, or a file declares."""
        rest = dict(fields)
        name, ends = rest.pop("name", ""), rest.pop("range", [None, None])
        known = {"kind", "values", "bins", "decimals", "required", *_OF_WRITING}
        if unknown := sorted(map(str, set(rest) - known)):
            form = _IDENTIFIER if "identifier" in (rest.get("kind"), *unknown) or "pattern" in unknown else FORM
            near = did_you_mean(unknown[0], sorted({*known, "range"}), form)
            raise no_column(name, f"there is no field {unknown[0]!r:.40}", near)
        if not isinstance(ends, list | tuple) or len(ends) != 2:
            raise no_column(name, "its range does not have two ends", _ENDS)
        if type(rest.get("bins")) is int and rest["bins"] == 0:
            raise no_column(name, "its bins are not a number from 1", "Leave them out for 16.")
        values = rest.pop("values", ())
        if not isinstance(values, list | tuple):
            raise no_column(name, "its values are not a list")
        kind, marks = rest.pop("kind", None), rest.pop("missing", ())
        return cls(name, kind, values=tuple(values), least=ends[0], most=ends[1], marks=marks, **rest)

    @cached_property
    def _index(self) -> Places:
        return Places(self.values)

    def _label(self, value: object) -> Label | None:
        if self.kind != "boolean":
            return as_type(value, None)
        label = as_type(value, "string")
        return _BOOLEANS.get(label.strip().casefold()) if isinstance(label, str) else None

    def _bin(self, value: Any) -> int:
        """Return the bin of a value in the range; a number is rounded to the column's decimals."""
        low, high = self._line
        place = round(value * 10**self.decimals) if self.kind == "number" else number_of(value)
        return min((min(max(place, low), high) - low) * self.bins // self._width, self.bins - 1)

    def _whole_bin(self, cell: int) -> Span:
        """Return the places of the first and the last value of a bin."""
        (low, high), width = self._line, self._width
        last = high if cell + 1 == self.bins else low - (-(cell + 1) * width // self.bins) - 1
        return low - (-cell * width // self.bins), last


def no_column(name: object, problem: str, cure: str = FORM) -> ConfigError:
    return ConfigError(f"The column {name!r:.60} is not declared as it should be: {problem}.", cure)


def _unknown(column: Column, asked: str) -> ConfigError:
    shown = [column.title(cell) for cell in range(min(column.size, _SHOWN))]
    why = ": it is required" if asked.strip() == _MISSING and column.required else ""
    return ConfigError(
        f"The column {column.name!r} has no {asked.strip()!r:.60}{why}.",
        f"Its values are: {', '.join(shown)}{', ...' if column.size > len(shown) else ''}.",
    )


Kind = Literal["category", "boolean", "integer", "number", "date", "datetime", "identifier"]
Value = Label | datetime.date | datetime.datetime
KINDS: tuple[str, ...] = get_args(Kind)
_CLOCK = r"(?:[01][0-9]|2[0-3])(?P<colon>:?)[0-9]{2}(?:(?P=colon)[0-9]{2}(?:[.,][0-9]+)?)?|[01][0-9]|2[0-3]"
_ZONE = r"[Zz]|[-+](?:0[0-9]|1[0-3])(?::?[0-5][0-9])?|[-+]14(?::?00)?"
_TIME = re.compile(
    rf"(?P<day>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|[0-9]{{8}})(?:(?:[Tt]| +)(?P<time>(?:{_CLOCK})(?:{_ZONE})?))?"
)
"""ISO 8601, stricter than Python: a time follows T or blanks, and a zone follows a time and is at most 14 hours off."""


def parse(value: object, kind: Kind) -> Any:
    """Parse a value of this kind; return None if it is invalid."""
    if isinstance(value, decimal.Decimal):
        value = str(value)
    if kind in _TIMES:
        return _parse_time(digits(value), whole_days=kind == "date")
    if isinstance(value, bool):
        return None
    if kind == "number":
        return as_type(value, "float")
    whole_one = as_type(value, None)
    return None if whole_one is None else as_type(re.sub(r"\.0+$", "", canonical(whole_one).strip()), "int")


def _decimals_of(number: float | str) -> int:
    """Return how many decimals a number is written with: 2 for ``0.50`` and 3 for ``1e-3``."""
    return max(0, -cast(int, decimal.Decimal(str(number)).as_tuple().exponent))


def _end_of_day(time: datetime.date) -> datetime.datetime:
    """Return the last time of a day; a time stays as it is."""
    return time if isinstance(time, datetime.datetime) else datetime.datetime.combine(time, datetime.time.max)


def _parse_time(value: object, *, whole_days: bool) -> Any:
    if isinstance(value, str):
        if (written := _TIME.fullmatch(value.strip())) is None:
            return None
        try:
            value = datetime.datetime.fromisoformat(f"{written['day']}T{written['time'] or '00'}".upper())
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


def number_of(value: Any) -> int:
    """Return a value as a number: a whole number, or the days or seconds of a date or time."""
    if isinstance(value, datetime.datetime):
        return int((value - _EPOCH).total_seconds())
    return value.toordinal() if isinstance(value, datetime.date) else int(value)


def from_number(kind: Kind, number: int) -> Value:
    if kind == "date":
        return datetime.date.fromordinal(number)
    return _EPOCH + datetime.timedelta(seconds=number) if kind == "datetime" else number


def declared_columns(declared: object, formats: str | Mapping[str, Any] | None = None) -> tuple[Column, ...]:
    """Return typed columns from the user's declaration, in its order.

    Args:
        formats: of columns that state none, as :func:`understudy.schema.formats.formats_of` takes them.
        declared: a mapping from names to declarations, ``@FILE`` with one as YAML, or the short form
            ``"priority=low|high; stars=1..5; paid=0.0..99.9/20; urgent; opened=2024-01-01..2024-12-31/12"``.
    """
    declared = read_columns(declared)
    if isinstance(declared, list | tuple) and all(isinstance(each, Column) for each in declared):
        columns = list(declared)
    elif isinstance(declared, str):
        columns = [_of_short(part) for part in declared.split(";") if part.strip()]
    elif isinstance(declared, Mapping):
        columns = _of_mapping(declared, formats_of(formats))
    else:
        raise ConfigError("The columns must be declared by a mapping or a string.", FORM)
    if not columns:
        raise ConfigError("No column is declared.", FORM)
    for place, column in enumerate(columns):
        if any(column.name == other.name for other in columns[:place]):
            raise ConfigError(f"The column {column.name!r:.60} is declared twice.", "Declare each column once.")
    if written := formats_of(formats):
        columns = [Column.from_json(written.get(each.kind, {}) | each.to_json()) for each in columns]
    return tuple(columns)


def read_columns(declared: object) -> object:
    """Return the content of ``@FILE``; anything else as it is."""
    if isinstance(declared, str) and declared.startswith("@"):
        return {str(name): domain for name, domain in _read(Path(declared[1:])).items()}
    return declared


def _of_mapping(declared: Mapping[Any, Any], formats: Mapping[str, Mapping[str, Any]]) -> list[Column]:
    columns = []
    for name, domain in declared.items():
        if isinstance(domain, str):
            columns.append(_of_short(f"{name}={domain}"))
        elif isinstance(domain, list | tuple):
            columns.append(Column(str(name), "category", values=tuple(domain)))
        elif isinstance(domain, Mapping):
            columns.append(Column.from_json({**formats.get(str(domain.get("kind")), {}), **domain, "name": str(name)}))
        else:
            raise no_column(name, "it has neither values nor a range")
    return columns


def _of_short(text: str) -> Column:
    name, equals, domain = (part.strip() for part in text.partition("="))
    if not equals and name.casefold().endswith((".yaml", ".yml", ".json")):
        raise ConfigError(
            f"The declaration of columns, {name!r:.80}, looks like the name of a file.", f"Write @{name} to read it."
        )
    if not equals or domain in ("boolean", "identifier"):
        return Column(name, cast(Kind, domain or "boolean"))
    if domain.startswith("identifier "):
        return Column(name, "identifier", format=domain.partition(" ")[2].strip())
    if ".." not in domain:
        values = [value.strip() for value in domain.split("|")]
        numbers = [parse(value, "integer") for value in values]
        whole = [str(number) for number in numbers] == values  # then they are integers in the synthetic table
        return Column(name, "category", values=tuple(numbers if whole else values))
    ends, slash, bins = domain.partition("/")
    first, _, last = (end.strip() for end in ends.partition(".."))
    if slash and not bins.strip().isdecimal() and ".." in bins:
        raise no_column(name, "its range has slashes", "Dates are written 2024-12-31; bins follow one slash.")
    if slash and (not bins.strip().isdecimal() or not int(bins)):
        raise no_column(name, "its bins are not a number from 1")
    found: dict[str, Any] = {"bins": int(bins) if slash else 0, "least": first, "most": last}
    for kind, parses in _KINDS_OF_ENDS:
        if parses(first) and parses(last):
            if kind == "number":
                found["decimals"] = max(map(_decimals_of, (first, last)))
            return Column(name, kind, **found)
    raise no_column(name, "the ends of its range are not both numbers or both dates", _ENDS)


_KINDS_OF_ENDS: tuple[tuple[Kind, Callable[[str], bool]], ...] = (
    ("integer", lambda end: "." not in end and parse(end, "integer") is not None),
    ("number", lambda end: parse(end, "number") is not None),
    ("date", lambda end: parse(end, "date") is not None and len(end) == 10),
    ("datetime", lambda end: parse(end, "datetime") is not None),
)


def _read(path: Path) -> Mapping[Any, Any]:
    from understudy.base.yaml_text import load_yaml

    cure = "Give YAML with one `NAME: ...` per column."
    try:
        found = load_yaml(read_whole(path, most=MOST_SETTINGS_BYTES).decode("utf-8"))
    except (UnreadableText, UnicodeDecodeError) as error:
        raise cannot_read(f"The columns file {path.name!r}", error, cure) from None
    if isinstance(found, Mapping) and isinstance(found.get("columns"), Mapping):
        found = found["columns"]
    if not isinstance(found, Mapping):
        raise ConfigError(f"The columns file {path.name!r} cannot be read.", cure)
    return found


def crossed_columns(label: str | None, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the typed columns of a label such as ``product`` or ``product*priority``; empty for a label column."""
    names = [] if label is None else [part.strip() for part in label.split("*")]
    found = [column for name in names for column in columns if column.name == name and not column.made_up]
    if len(found) < len(names):
        return ()
    if len(set(names)) < len(names):
        raise ConfigError(f"The label {label!r:.60} names a column twice.", "Cross different columns.")
    if math.prod(column.missing for column in found) > MOST_CELLS:
        raise ConfigError(
            f"The columns of the label {label!r:.60} have more than {MOST_CELLS} combinations.",
            "Cross fewer columns, or declare fewer values and bins.",
        )
    return tuple(found)


def cross_labels(crossed: Sequence[Column]) -> tuple[str, ...]:
    """Return the label set of crossed columns, the last one varying fastest; missing values have no label."""
    titles = ([column.title(cell) for cell in range(column.missing)] for column in crossed)
    found = tuple(" / ".join(combination) for combination in product(*titles))
    if len(set(found)) < len(found):
        raise ConfigError(
            "Two combinations of the label's columns have the same name.", "Rename the values that contain a slash."
        )
    return found


def in_words(columns: Sequence[Column], cells: Sequence[int]) -> str:
    """Return a row's cells in words, without missing values: ``priority: high; paid: 0 to 5``."""
    named = zip(columns, cells, strict=True)
    return "; ".join(f"{column.name}: {column.title(cell)}" for column, cell in named if cell != column.missing)


def row_characters(columns: Sequence[Column]) -> float:
    """Return the estimated number of characters of a row :func:`in_words` without missing values: for each column, the
    mean over its cells."""
    lengths = ([len(in_words([each], [cell])) + 2 for cell in range(each.missing)] for each in columns)
    return sum(sum(each) / len(each) for each in lengths)


def require_own_names(columns: Sequence[Column], others: Iterable[str | None]) -> None:
    """Raise ConfigError if a typed column is also one of the ``others`` (text, label, owner)."""
    taken = set(others)
    if twice := [column.name for column in columns if column.name in taken]:
        raise ConfigError(
            f"The typed column {twice[0]!r} is also the text, the label, or the owner.",
            "Declare it once; the label's domain is --labels, and the owners' pattern `identifier P-####`.",
        )
