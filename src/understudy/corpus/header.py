"""The names of a table's columns, and in Parquet their types: what may be known of it without reading a value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from understudy.base.columns.values import parse
from understudy.base.errors import CorpusError
from understudy.corpus.arrow import is_dialogue, parquet_schema
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.delimited import csv_header
from understudy.corpus.readers import json_keys, undecoded, without_exceptions
from understudy.corpus.sources import check_encoding, find_files

_MARKS = frozenset(";\t|")
"""What separates cells in many files that are called CSV."""
_LONGEST_NAME = 60
_IN_VALUES = re.compile(r"@|://|\bwww\.|\b[0-9]{1,4}([-./])[0-9]{1,2}\1[0-9]{1,4}\b")
"""Of addresses and dates."""
Kind = Literal["text", "boolean", "integer", "number", "date", "datetime", "dialogue"]


def read_header(
    source: str | Sequence[str],
    *,
    format: str | None = None,  # noqa: A002
    delimiter: str | None = None,
    encoding: str = "utf-8",
) -> list[tuple[str, Kind | None]]:
    """Each column's name and, where the file declares one, its kind.

    Of CSV and TSV the header row is read, of JSON lines the keys of the first line, of Parquet the schema.

    Raises:
        ConfigError, CorpusError: the table cannot be found or has no header.
    """
    check_encoding(encoding)
    file = find_files([source] if isinstance(source, str) else source, format=format)[0]
    if file.format == "parquet":
        types = parquet_schema(file)
        return [(field.name, _kind(field.type)) for field in types]
    if file.format == "jsonl":
        rows = json_keys(file, encoding=encoding)
    else:
        rows = csv_header(file, delimiter=delimiter or ("\t" if file.format == "tsv" else ","), encoding=encoding)
    _, names = next(without_exceptions(rows, file.shown))
    if isinstance(names, CorpusError):
        raise names
    assert not isinstance(names, BadRow)
    if error := undecoded(names, file.shown, encoding):
        raise error
    if file.format == "csv" and delimiter is None and len(names) == 1 and _MARKS.intersection(str(names[0])):
        raise CorpusError(
            f"The header of {file.shown!r} is one column: its cells seem to be separated by another character.",
            "Name it with --delimiter.",
        )
    return [(str(name), None) for name in names]


def require_names(names: Sequence[str]) -> None:
    """See that none looks like a value, and none is there twice: a "header" may be the first private row of a file
    that has none. CorpusError otherwise."""
    if any(map(_is_value, names)) or len(set(names)) < len(names):
        raise CorpusError(
            "Some names of columns look like values, or are there twice: the table seems to have no header.",
            "Give it a header row; if these are its columns, and public, say so with --names-are-public.",
        )


def _is_value(name: str) -> bool:
    """Whether it is no name: without a letter, long, or a number, a date or an address."""
    if len(name) > _LONGEST_NAME or not any(map(str.isalpha, name)) or _IN_VALUES.search(name):
        return True
    return parse(name, "number") is not None or parse(name, "datetime") is not None


def _kind(arrow_type: object) -> Kind | None:
    import pyarrow.types as t

    kinds: list[tuple[Kind, object]] = [
        *(("text", test) for test in (t.is_string, t.is_large_string, t.is_string_view)),
        *(("boolean", t.is_boolean), ("integer", t.is_integer), ("number", t.is_floating), ("number", t.is_decimal)),
        *(("date", t.is_date), ("datetime", t.is_timestamp), ("dialogue", is_dialogue)),
    ]
    return next((kind for kind, test in kinds if test(arrow_type)), None)  # type: ignore[operator]
