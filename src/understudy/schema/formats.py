"""Read and write dates, numbers, booleans and missing values in a table's declared format, which is never guessed.
The synthetic table is written in the same format."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from understudy.base.errors import ConfigError, nearest
from understudy.schema.labels import canonical

_TIMES = "%d{0}%m{0}%Y|%d{0}%m{0}%Y %H:%M|%d{0}%m{0}%Y %H:%M:%S"
LOCALES: dict[str, dict[str, str]] = {
    "de": {"date": _TIMES.format("."), "number": "1(.)234,56", "boolean": "ja,j,wahr,1|nein,n,falsch,0"},
    "fr": {"date": _TIMES.format("/"), "number": "1( )234,56", "boolean": "oui,o,vrai,1|non,n,faux,0"},
    "en-GB": {"date": _TIMES.format("/"), "number": "1(,)234.56", "boolean": "yes,y,true,1|no,n,false,0"},
    "en-US": {
        "date": "%m/%d/%Y|%m/%d/%Y %H:%M|%m/%d/%Y %H:%M:%S|%m/%d/%Y %I:%M %p|%m/%d/%Y %I:%M:%S %p",
        "number": "1(,)234.56",
        "boolean": "yes,y,true,1|no,n,false,0",
    },
}
"""The formats of spreadsheets in a language. Both English ones read ``TRUE`` and ``yes``. Parentheses: a separator of
thousands is read, but not written."""
HINT = "`formats: de` in YAML or Python declares 31.12.2024, 1.234,56 and ja/nein, and others likewise (docs/tables.md)"
_KINDS = {"date": "date", "datetime": "date", "number": "number", "integer": "number", "boolean": "boolean"}
_NUMBER = re.compile(r"(?P<before>\D*?)\s*1(?P<thousands>\([^\d()]\)|\D?)234(?:(?P<point>\D)56)?\s*(?P<after>\D*)")
_PLACES = re.compile("[#?]")
_LETTERS, _DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
_SPACES = "[ \u00a0\u202f]"
_DIRECTIVE = re.compile(r"%(.)")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_FIELDS = {
    **dict.fromkeys("dmHIMS", "[0-9]{1,2}"),
    **{"Y": "[0-9]{4}", "y": "[0-9]{2}", "f": "[0-9]{1,6}", "p": "[ap]m"},
    **{"b": "|".join(month[:3] for month in _MONTHS), "B": "|".join(_MONTHS)},
}
_ONE_OF_EACH = (("d",), ("m", "b", "B"), ("Y", "y"))
_DATE_FORM = (
    "a date is written with %d, %m (or %b, %B: months in English), %Y (or %y), each once, and perhaps %H (or %I and "
    "%p), %M, %S, %f: such as %d.%m.%Y"
)
Ends = tuple[datetime.datetime, datetime.datetime]
"""The first and last time of a range."""


def formats_of(declared: str | Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the default fields of columns of each kind. ``declared`` is a locale such as ``de``, or a mapping with
    ``locale``, ``date``, ``number``, ``boolean`` and ``missing``. Raises ConfigError if it is neither."""
    if declared is None:
        return {}
    rest = {"locale": declared} if isinstance(declared, str) else dict(declared)
    locale, missing = rest.pop("locale", None), rest.pop("missing", ())
    try:
        if locale is not None and locale not in LOCALES:
            raise ValueError(f"there is no locale {locale!r:.40}, only {', '.join(LOCALES)}")
        marks = {"missing": list(marks_of(missing))} if missing else {}
        found: dict[str, dict[str, Any]] = {"category": dict(marks)}
        formats = {**LOCALES.get(locale or "", {}), **rest}
        for kind, of in _KINDS.items():
            if of in formats:
                require_format(kind, formats[of])
            found[kind] = {"format": formats[of], **marks} if of in formats else dict(marks)
        if unknown := sorted(set(map(str, formats)) - {*_KINDS.values()}):
            like = nearest(unknown[0], sorted({*_KINDS.values(), "locale", "missing"}), between=" or ")
            raise ValueError(f"there is no {unknown[0]!r:.40}" + (f", but there is {like}" if like else ""))
    except ValueError as error:
        raise ConfigError(
            f"The declaration of the formats is invalid: {error}.",
            'Write `formats: de`, or `formats: {date: "%d.%m.%Y", number: "1.234,56", boolean: "ja|nein", '
            'missing: ["k. A."]}`.',
        ) from None
    return found


def marks_of(missing: object) -> tuple[str, ...]:
    """Return the cells that mean a missing value; ValueError if they are invalid."""
    found = (missing,) if isinstance(missing, str) else missing
    if not isinstance(found, list | tuple) or not all(isinstance(mark, str) and mark.strip() for mark in found):
        raise ValueError('`missing` is not a list of the texts of such cells, such as ["k. A.", "-"]')
    return tuple(mark.strip() for mark in found)


def require_format(kind: str, format_: object) -> None:
    """Check that a column of this kind may have this format; ValueError otherwise."""
    if kind == "identifier" and isinstance(format_, str) and _PLACES.search(format_):
        return
    if not isinstance(format_, str) or kind not in _KINDS:
        raise ValueError(f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} has no such format")
    {"date": _times, "number": _number, "boolean": _booleans}[_KINDS[kind]](format_)


def as_written(text: str, kind: str, format_: str, ends: Ends | None = None) -> object:
    """Read a cell of this kind: a time, a plain number as text, or a boolean; None if it is not in this format.

    Args:
        ends: the declared range, which determines the century of a year of two digits.
    """
    if _KINDS[kind] == "boolean":
        return _booleans(format_).get(text.strip().casefold())
    if _KINDS[kind] == "number":
        pattern, spaced = _number(format_)
        found = pattern.fullmatch(re.sub(_SPACES, " ", text.strip()) if spaced else text.strip())
        if found is None:
            return None
        whole = "".join(character for character in found["whole"] if character.isdecimal())
        sign = "-" if found["sign"] in ("-", "\u2212") else ""
        return f"{sign}{whole}{'.' if found['rest'] else ''}{found['rest'] or ''}"
    for pattern, width in _times(format_):
        if found := pattern.fullmatch(text.strip().zfill(width)):
            time = _time_of({name: part for name, part in found.groupdict().items() if part}, ends)
            if time is not None:
                return time
    return None


def written(value: object, kind: str, format_: str, *, decimals: int = 2) -> str:
    """Write a value of this kind as :func:`as_written` reads it, in the first form that shows the whole value.

    >>> written(-1234.5, "number", "1.234,56 \u20ac"), written(datetime.date(2024, 1, 31), "date", "%d.%m.%y")
    ('-1.234,50 \u20ac', '31.01.24')
    """
    if isinstance(value, datetime.date):
        forms = [form.strip() for form in format_.split("|")]
        timed = [form for form in forms if ("%H" in form or "%I" in form) == (kind == "datetime")]
        return _DIRECTIVE.sub(lambda found: _field(value, found[1]), (timed or forms)[0])
    if isinstance(value, bool):
        return format_.split("|")[not value].split(",")[0].strip()
    found = _NUMBER.fullmatch(format_.strip())
    assert found is not None, "it was checked"
    point, thousands = found["point"], found["thousands"]
    number, places = decimal.Decimal(str(value)), decimals if point and kind == "number" else 0
    text = f"{abs(number):{'' if '(' in thousands else ','}.{places}f}"
    text = text.replace(",", "\0").replace(".", point or "").replace("\0", thousands)
    head, _, tail = format_.strip().partition("1")
    return f"{'-' if number < 0 else ''}{head}{text}{tail[tail.rindex('6' if point else '4') + 1 :]}"


def _field(time: datetime.date, name: str) -> str:
    """Return a part of a time, with months in English whatever the machine's language."""
    if name in "bB":
        return _MONTHS[time.month - 1].capitalize()[: 3 if name == "b" else None]
    if name == "p":
        return "PM" if isinstance(time, datetime.datetime) and time.hour >= 12 else "AM"
    return f"{time.year:04d}" if name == "Y" else time.strftime(f"%{name}")


def invented(place: int, pattern: str) -> str:
    """Return one of the identifiers of a pattern, such as ``P-####``: ``#`` is a digit and ``?`` a letter.

    >>> invented(42, "P-###"), invented(27, "??")
    ('P-042', 'BB')
    """
    found = list(pattern)
    for index in reversed([index for index, sign in enumerate(pattern) if sign in "#?"]):
        signs = _DIGITS if pattern[index] == "#" else _LETTERS
        place, digit = divmod(place, len(signs))
        found[index] = signs[digit]
    return "".join(found)


def how_many(pattern: str) -> int:
    """Return how many identifiers a pattern has."""
    return int(10 ** pattern.count("#") * 26 ** pattern.count("?"))


def digits(value: object) -> object:
    """Return the digits of a number that may be a date: ``20241231`` for 20241231 and 20241231.0 (the form in a column
    with nulls). Anything else stays as it is."""
    if isinstance(value, decimal.Decimal):
        value = str(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        largest = 2**53 if isinstance(value, float) else 10**20  # of which each digit is known
        value = canonical(value) if abs(value) < largest else value
    return re.sub(r"^([0-9]+)\.0+$", r"\1", value.strip()) if isinstance(value, str) else value


def _time_of(fields: Mapping[str, str], ends: Ends | None) -> datetime.datetime | None:
    """Return the time of these fields; None if there is no such time, or none in the range for a year of two digits."""
    month = fields.get("b", fields.get("B", "")).lower()
    number = next(place for place, name in enumerate(_MONTHS, 1) if name.startswith(month)) if month else fields["m"]
    hour = int(fields.get("H", fields.get("I", 0)))
    if "I" in fields:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if fields["p"].lower() == "pm" else 0)
    years = [int(fields.get("Y", 0))]
    if ends is not None and "y" in fields:
        first = ends[0].year + (int(fields["y"]) - ends[0].year) % 100
        years = [first, first + 100]
    for year in years:
        try:
            time = datetime.datetime(
                *(year, int(number), int(fields["d"]), hour, int(fields.get("M", 0)), int(fields.get("S", 0)))
            )
        except ValueError:
            continue
        if "Y" in fields or (ends is not None and ends[0] <= time <= ends[1]):
            return time
    return None


@cache
def _times(format_: str) -> tuple[tuple[re.Pattern[str], int], ...]:
    return tuple(_time_form(each.strip()) for each in format_.split("|"))


def _time_form(form: str) -> tuple[re.Pattern[str], int]:
    """Return the pattern of times; for a form of only digits also their number, as numbers lose leading zeros."""
    parts = _DIRECTIVE.split(form)
    between, used = parts[::2], parts[1::2]
    names = set(used)
    once = all(len(names & set(group)) == 1 for group in _ONE_OF_EACH) and len(names) == len(used)
    if not once or names - set(_FIELDS) or ("I" in names) != ("p" in names) or "%" in "".join(between):
        raise ValueError(_DATE_FORM)
    if {"H", "I"} <= names or ("M" in names and not names & {"H", "I"}) or ("S" in names and "M" not in names):
        raise ValueError(_DATE_FORM)
    numeric = [name not in "pbB" for name in used]
    pattern = _literal(between[0])
    for place, (name, literal) in enumerate(zip(used, between[1:], strict=True)):
        field, last = _FIELDS[name], place + 1 == len(used)
        beside_digits = (place > 0 and not between[place] and numeric[place - 1]) or (
            not literal and not last and numeric[place + 1]
        )
        if beside_digits:  # otherwise 1022024 could be 10 February or 1 February
            field = field.replace("{1,2}", "{2}")
        pattern += f"(?P<{name}>{field}){_literal(literal)}"
    fixed = not any(between) and all(numeric) and used[0] != "Y" and "f" not in names
    width = sum(4 if name == "Y" else 2 for name in used) if fixed else 0
    return re.compile(pattern, re.ASCII | re.IGNORECASE), width


def _literal(text: str) -> str:
    """Return a pattern for the text between fields; blanks match any number of blanks, of any kind."""
    return "(?:\\s|[\u00a0\u202f])+".join(map(re.escape, re.split(r"\s+", text)))


@cache
def _number(format_: str) -> tuple[re.Pattern[str], bool]:
    """Return the pattern of numbers, and whether spaces separate their thousands."""
    found = _NUMBER.fullmatch(format_.strip())
    thousands, point = (found["thousands"].strip("()"), found["point"] or "") if found else ("", "")
    if found is None or (thousands and thousands == point):
        raise ValueError("a number's format is the number 1234.56 as the table writes it: such as 1.234,56 or 1234,56")
    spaced = thousands in (" ", "\u00a0", "\u202f")
    before, after = (re.escape(found[side].strip()) for side in ("before", "after"))
    groups = f"[0-9]{{1,3}}(?:{' ' if spaced else re.escape(thousands)}[0-9]{{3}})+|" if thousands else ""
    rest = f"(?:{re.escape(point)}(?P<rest>[0-9]+))?" if point else "(?P<rest>(?!))?"
    pattern = rf"(?P<sign>[-+\u2212]?)\s*(?:{before})?\s*(?P<whole>{groups}[0-9]+){rest}\s*(?:{after})?"
    return re.compile(pattern), spaced


@cache
def _booleans(format_: str) -> Mapping[str, bool]:
    sides = [[word.strip().casefold() for word in side.split(",")] for side in format_.split("|")]
    found = {word: truth for side, truth in zip(sides, (True, False), strict=False) for word in side}
    if len(sides) != 2 or len(found) < sum(map(len, sides)):
        raise ValueError("a boolean's format is the words for true and false: such as ja|nein, or x| for a mark")
    return found
