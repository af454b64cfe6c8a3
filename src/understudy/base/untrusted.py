"""JSON that a stranger may have made: read within bounds, into values that everything else can hold and write again."""

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
"""Largest JSON file that is read: what a Release says of itself, a statement, charged metrics, an audit."""
MOST_VALUES = 200_000
"""In such a file, about: a few kilobytes can unpack to millions, each of which takes time."""
_MOST_NESTED = 64
_DIGITS = 300  # a float holds a number of so many


class Form(BaseModel):
    """What a part of such a file holds: every field of exactly its type. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_form(kind: type[T], fields: Mapping[str, Any], *, strict: bool = True) -> T:
    """The dataclass that the fields of a JSON object are, each of exactly its type; ValueError if one is not."""
    of: Any = kind
    found: T = _adapter(of).validate_json(json.dumps(fields), strict=strict)
    return found


def read_json(path: Path, *, most: int = MOST_BYTES, values: int | None = MOST_VALUES) -> dict[str, Any]:
    """The fields of a JSON file of at most ``most`` bytes and about ``values`` values (None where it holds texts, whose
    commas count as well). Raises OSError, or ValueError as :func:`parse_json` does.
    """
    if not path.is_file():  # a pipe would be waited for
        raise ValueError("no file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError("too long")
    return parse_json(data, values=values)


def parse_json(data: bytes | bytearray, *, values: int | None = MOST_VALUES) -> dict[str, Any]:
    """The fields of a JSON object; ValueError where it is none, nests too deep, or holds what nothing else can."""
    if values is not None and sum(data.count(mark) for mark in (b",", b"[", b"{")) > values:
        raise ValueError("it holds too many values")
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
    """Whether a JSON value nests no deeper. Level by level, so that no depth is too much for Python."""
    level = [value]
    for _ in range(most + 1):
        level = [each for item in level if isinstance(item, dict | list) for each in members(item)]
        if not level:
            return True
    return False


def members(item: dict[str, Any] | list[Any]) -> Iterable[Any]:
    """What an object or a list of JSON holds."""
    return item.values() if isinstance(item, dict) else item


def leaves(value: Any, *, everything: bool = False) -> Iterator[str]:
    """Every string and number of a JSON value, as text; with ``everything`` also keys, true, false and null."""
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
    """What a text says: of JSON (an object or a list) its strings and numbers, and those of JSON within its strings,
    all without JSON's escapes, which would be parts of words; of another text the text itself. An escape may be
    half a character, which no embedder and no encoding takes: U+FFFD replaces it.

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
    """The text with U+FFFD in the place of halves of surrogate pairs."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def no_number(name: str) -> NoReturn:
    """For ``parse_constant``: NaN and the infinities are no JSON."""
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
