"""Read untrusted JSON within bounds, into values that all other code can store and write again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

T = TypeVar("T")

MOST_BYTES = 16 * 1024**2
"""Largest JSON file that is read: a Release's description, a statement, charged metrics, an audit."""
MOST_VALUES = 200_000
"""Approximate limit for such a file: a few kilobytes can unpack to millions of values, each of which takes time."""
_MOST_NESTED = 64
_DIGITS = 300  # a float can represent numbers of this length


class Form(BaseModel):
    """A part of an untrusted JSON file: every field must have exactly its type. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_form(kind: type[T], fields: Mapping[str, Any], *, strict: bool = True) -> T:
    """Make a dataclass from the fields of a JSON object, each of exactly its type; ValueError if one is not."""
    of: Any = kind
    found: T = _adapter(of).validate_json(json.dumps(fields), strict=strict)
    return found


def read_json(path: Path, *, most: int = MOST_BYTES, values: int | None = MOST_VALUES) -> dict[str, Any]:
    """Return the fields of a JSON file of at most ``most`` bytes and about ``values`` values (None if it has texts,
    whose commas would count as well). Raises OSError, or ValueError as :func:`parse_json` does.
    """
    if not path.is_file():  # reading a pipe would wait
        raise ValueError("no file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError("too long")
    return parse_json(data, values=values)


def parse_json(data: bytes | bytearray, *, values: int | None = MOST_VALUES) -> dict[str, Any]:
    """Return the fields of a JSON object; ValueError if it is invalid, too deep, or has values that others reject."""
    if values is not None and sum(data.count(mark) for mark in (b",", b"[", b"{")) > values:
        raise ValueError("it contains too many values")
    try:
        fields = json.loads(data.decode("utf-8"), parse_constant=no_number, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    if not depth_within(fields, _MOST_NESTED - 1):
        raise ValueError("it is nested too deep")
    json.dumps(fields, ensure_ascii=False).encode("utf-8")  # no half of a surrogate pair
    return fields


def depth_within(value: Any, most: int) -> bool:
    """Return whether a JSON value nests no deeper. Works level by level, so Python's stack does not overflow."""
    level = [value]
    for _ in range(most + 1):
        level = [each for item in level if isinstance(item, dict | list) for each in members(item)]
        if not level:
            return True
    return False


def members(item: dict[str, Any] | list[Any]) -> Iterable[Any]:
    """Return the values of a JSON object or list."""
    return item.values() if isinstance(item, dict) else item


def leaves(value: Any, *, everything: bool = False) -> Iterator[str]:
    """Yield every string and number of a JSON value, as text; with ``everything`` also keys, true, false and null."""
    if isinstance(value, dict | list):
        if everything and isinstance(value, dict):
            yield from value
        for each in members(value):
            yield from leaves(each, everything=everything)
    elif isinstance(value, str):
        yield value
    elif everything or not (value is None or isinstance(value, bool)):
        yield json.dumps(value)


def said(text: str, *, everything: bool = False) -> list[str]:
    """Return the content of a text. For JSON (an object or a list) this is its strings and numbers, also those of JSON
    inside its strings, without JSON's escapes, which would become parts of words. Any other text is unchanged. A half
    of a surrogate pair becomes U+FFFD.

    ``everything`` adds keys, true, false and null, and all values of a repeated key.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return [writable(text)]
    try:
        value = json.loads(
            text,
            object_pairs_hook=(lambda pairs: [each for pair in pairs for each in pair]) if everything else dict,
            parse_int=str,
            parse_float=str,
            parse_constant=str,
        )
        return [line for each in leaves(value, everything=everything) for line in said(each, everything=everything)]
    except (ValueError, RecursionError):
        return [writable(text)]


def writable(text: str) -> str:
    """Return the text with U+FFFD in place of halves of surrogate pairs."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def no_number(name: str) -> NoReturn:
    """Refuse NaN and the infinities, which are not valid JSON (for ``parse_constant``)."""
    raise ValueError(name)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number is too large")
    return int(digits)
