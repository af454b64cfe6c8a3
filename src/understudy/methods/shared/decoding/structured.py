"""Whether a text that a model wrote is a record: it has exactly the public columns, and fits the public JSON schema.

Texts are checked one by one; those that are not records are kept apart and counted by reason. Post-processing: costs no
privacy.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from textwrap import shorten
from typing import Any

from understudy.base.errors import ConfigError
from understudy.base.files import MOST_SETTINGS_BYTES, UnreadableText, cannot_read, read_whole
from understudy.base.untrusted import depth_within, members, no_number
from understudy.release import Release
from understudy.schema.transcript import TextForm

_MOST_NESTED = 64  # as in records of the corpus
SCHEMA = "json schema"
"""Key of the public JSON schema of records in a Release."""
_MOST_FOLLOWED = 20_000
"""Largest number of references followed for one record, since a few that double take exponential time. A record that
needs more does not fit."""
_ONE_FILE = "Give one self-contained JSON file."
_FOLLOWS = ("$ref", "$dynamicRef", "$recursiveRef")


class Fault(StrEnum):
    """Reasons why a text is not a valid record."""

    NOT_JSON = "not JSON"
    NOT_AN_OBJECT = "not an object"
    COLUMNS = "columns"
    SCHEMA = "schema"
    TRANSCRIPT = "no transcript"


class JSONSchema:
    """A public JSON schema from one file, or from ``content``. Needs the extra ``local``.

    References may only lead to places in the file itself; nothing is ever fetched.

    Raises ConfigError: the file cannot be read, is not a JSON schema, refers elsewhere, or refers in circles or to too
    many places.
    """

    def __init__(self, file: str | Path, *, content: bytes | None = None) -> None:
        path = Path(file)
        try:
            content = read_whole(path, most=MOST_SETTINGS_BYTES) if content is None else content
            schema = json.loads(content)
        except (UnreadableText, ValueError, RecursionError) as error:
            raise cannot_read(f"The JSON schema {path.name}", error, "Give a JSON file in UTF-8.") from None
        self._followed = _Followed()
        self._validator = _validator(schema, path.name, self._followed)
        named = schema.get("required")  # true in draft 3
        self.required = frozenset(str(name) for name in named) if isinstance(named, list) else frozenset()
        """Return the columns that every record must have, as far as the schema states them plainly."""
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.text = json.dumps(schema, ensure_ascii=False)
        """On one line, as a prompt shows it."""

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether ``record`` fits the schema; False if this cannot be decided."""
        self._followed.left = _MOST_FOLLOWED
        try:
            return bool(self._validator.is_valid(record))
        except Exception:  # a schema may nest without end, or contain a pattern that is not a regular expression
            return False


@dataclass(frozen=True)
class RecordCheck:
    """Reads texts as JSON records with exactly the keys ``columns`` that fit the ``schema``, if there is one."""

    columns: tuple[str, ...]
    schema: JSONSchema | None = None

    def __call__(self, text: str) -> str | Fault:
        """Return ``text`` as the corpus writes records (keys in the order of the columns), or what is wrong with it."""
        record = read_json(text)
        if isinstance(record, Fault):
            return record
        if not isinstance(record, dict):
            return Fault.NOT_AN_OBJECT
        if set(record) != set(self.columns):
            return Fault.COLUMNS
        if self.schema is not None and not self.schema.fits(record):
            return Fault.SCHEMA
        return _canonical({name: record[name] for name in self.columns})


@dataclass(frozen=True)
class TranscriptCheck:
    """Checks whether texts are transcripts that consist of the parts of ``form``."""

    form: TextForm

    def __call__(self, text: str) -> str | Fault:
        """Return ``text`` as the corpus writes transcripts, or what is wrong with it. A field may be empty."""
        return self.form.read(text, complete=False) or Fault.TRANSCRIPT


TextCheck = RecordCheck | TranscriptCheck
"""Called with a text, returns it in the corpus's form, or the Fault if it does not have the required form."""


def text_check(form: TextForm, columns: Sequence[str], schema: JSONSchema | None) -> TextCheck | None:
    """Return the check for records of ``columns``, if there are any, or for transcripts of ``form``; None if any text
    is valid."""
    if columns:
        return RecordCheck(tuple(columns), schema)
    return TranscriptCheck(form) if form else None


def check_of(release: Release) -> TextCheck | None:
    """Return the check that the texts of a Release must pass."""
    (content,) = release.strings.get(SCHEMA, ("",))
    schema = JSONSchema("the Release's schema", content=content.encode()) if content else None
    return text_check(release.schema.form, release.schema.record_columns, schema)


@dataclass(frozen=True)
class ObjectForm:
    """The form of texts that are JSON objects fitting a schema."""

    schema: JSONSchema

    def example(self, text: str, words: Sequence[str]) -> str | None:
        """Return an object for a prompt to show, with ``text`` in its last string and the ``words`` in the others; None
        if that does not fit the schema."""
        value = _example(json.loads(self.schema.text), text, iter(words))
        return _canonical(value) if isinstance(value, dict) and self.schema.fits(value) else None

    def read(self, answer: str) -> str | None:
        """Return the object in a model's answer as JSON on one line, without a fence or text around it. None if no
        object fits."""
        first, last = answer.find("{"), answer.rfind("}")
        value = read_json(answer[first : last + 1]) if 0 <= first < last else Fault.NOT_JSON
        return _canonical(value) if isinstance(value, dict) and self.schema.fits(value) else None


def _example(schema: Any, text: str, words: Iterator[str]) -> Any:
    """Return a value of the type that a part of a schema plainly names."""
    if not isinstance(schema, dict):
        return None
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        properties = schema["properties"]
        strings = [name for name, part in properties.items() if isinstance(part, dict) and part.get("type") == "string"]
        last = strings[-1] if strings else None
        return {
            name: text if name == last and "enum" not in part else _example(part, text, words)
            for name, part in properties.items()
        }
    kind = schema.get("type")
    if kind == "string":
        return next(words, text)
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    plain: dict[Any, Any] = {"boolean": False, "array": [], "null": None}
    return plain[kind] if isinstance(kind, str) and kind in plain else {}


def read_json(text: str) -> Any:
    """Parse JSON. Return the value, or the fault if it is invalid or could not be written again (half a surrogate pair,
    an integer of thousands of digits)."""
    try:
        value = json.loads(text.strip(), object_pairs_hook=_once_each, parse_constant=no_number, parse_float=_finite)
        _canonical(value).encode("utf-8")
    except _Twice:
        return Fault.COLUMNS
    except (ValueError, RecursionError):
        return Fault.NOT_JSON
    return value if depth_within(value, _MOST_NESTED) else Fault.NOT_JSON


class _Twice(ValueError):
    """A key occurs twice."""


def _once_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _Twice
    return dict(pairs)


def _finite(digits: str) -> float | int:
    """Convert a whole decimal to an integer, as in records of the corpus."""
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return int(number) if number.is_integer() else number


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


class _Followed:
    """Counts the references that a schema follows, and stops at the most."""

    left = _MOST_FOLLOWED

    def counted(self, keyword: Callable[..., Any]) -> Callable[..., Any]:
        def follow(*arguments: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise TooManyReferences
            return keyword(*arguments)

        return follow


class TooManyReferences(Exception):
    """A schema follows too many references."""


def _validator(schema: Any, name: str, followed: _Followed) -> Any:
    try:
        from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
        from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]
        from jsonschema.validators import extend, validator_for  # type: ignore[import-untyped]
        from referencing import Registry
    except ImportError:
        raise ConfigError(
            "JSON schemas need the extra 'local'.", "Install it: pip install 'understudy[local]'"
        ) from None

    if not isinstance(schema, dict):
        raise ConfigError(f"{name} is not a JSON schema for records.", _ONE_FILE)
    try:
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(
            f"{name} is not a JSON schema ({error.json_path}: {shorten(error.message, 120, placeholder=' ...')}).",
            "Correct the schema at that place.",
        ) from None
    except (RecursionError, TypeError) as error:
        raise ConfigError(f"{name} is not a JSON schema ({type(error).__name__}).", _ONE_FILE) from None
    if any(not reference.startswith("#") for reference in _references(schema)):
        raise ConfigError(f"The JSON schema {name} refers to another one.", _ONE_FILE)
    plain = {key: value for key, value in schema.items() if key != "$schema"}  # a stock validator would be chosen by it
    if any(isinstance(item.get("$schema"), str) for item in _objects(plain)):
        raise ConfigError(f"The JSON schema {name} contains another one.", _ONE_FILE)
    follows = {word: followed.counted(kind.VALIDATORS[word]) for word in _FOLLOWS if word in kind.VALIDATORS}
    registry: Any = Registry()  # knows no other schema and fetches none
    validator = extend(kind, follows)(plain, registry=registry)
    try:
        for reference in set(_references(schema)):
            validator.evolve(schema={"$ref": reference}).is_valid({})
        validator.is_valid({})
    except Exception as error:
        raise ConfigError(
            f"The JSON schema {name} cannot be used ({type(error).__name__}).",
            "Its references must lead to places in it, not in circles, and not to thousands of places.",
        ) from None
    return validator


def _references(schema: Any) -> Iterator[str]:
    for item in _objects(schema):
        yield from (item[key] for key in ("$ref", "$dynamicRef") if isinstance(item.get(key), str))


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    level = [schema]
    while level:
        item = level.pop()
        if isinstance(item, dict):
            yield item
        if isinstance(item, (dict, list)):
            level.extend(members(item))
