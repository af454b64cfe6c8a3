"""Describe how a table is laid out and written: public facts that the synthetic table shares."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from understudy.base.errors import ConfigError, did_you_mean
from understudy.base.lazy import arrow_types as t
from understudy.base.lazy import pa

FileFormat = Literal["", "csv", "tsv", "jsonl", "parquet"]
TEXT_FORMATS = ("csv", "tsv", "jsonl")
_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]{1,2}), ([0-9]{1,2})\)")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=([A-Za-z0-9_+:/-]{1,40}))?\]")
_CATEGORIES = re.compile(r"dictionary<values=([a-z0-9_]+), indices=(u?int[0-9]+), ordered=([01])>")
_PLAIN = re.compile(r"bool|u?int(8|16|32|64)|float|double|(large_)?string|date32\[day\]|date64\[ms\]")
_DTYPE = re.compile(
    r"category|object|str|string|boolean|bool|[Uu]?[Ii]nt(8|16|32|64)|[Ff]loat(32|64)"
    r"|datetime64\[(s|ms|us|ns)(, [A-Za-z0-9_+:/-]{1,40})?\]"
)
LIKE = 'Write `source`, `plain`, or the options that read such a file: "delimiter=; encoding=cp1252 formats=de".'


@dataclass(frozen=True)
class Layout:
    """How a table is laid out and written. Raises ValueError for an encoding or a delimiter that no file can have.

    Args:
        columns: names, in the table's order.
        format: of its files; empty for a table in memory.
        delimiter, encoding, quotes: of CSV; the encoding also of JSON lines.
        types: Arrow's types by column, if the table declares them and :func:`read_type` knows them.
        dtypes: those of pandas, if it is a data frame or a Parquet file of one.
    """

    columns: tuple[str, ...] = ()
    format: FileFormat = ""
    delimiter: str = ","
    encoding: str = "utf-8"
    quotes: Literal["multiline", "line", "none"] = "multiline"
    types: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            found = "a\n".encode(self.encoding).removeprefix(b"\xef\xbb\xbf")
        except LookupError:
            found = b""
        if found != b"a\n" or len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ValueError("no CSV file is written like this")

    def of(self, names: Collection[str]) -> Layout:
        """Return the layout of a table that has only these columns."""
        types, dtypes = (
            {name: kind for name, kind in found.items() if name in names} for found in (self.types, self.dtypes)
        )
        return replace(self, columns=tuple(n for n in self.columns if n in names), types=types, dtypes=dtypes)

    def in_order(self, names: Collection[str]) -> list[str]:
        """Return ``names`` in the order of the table's columns; names that the table does not have come last."""
        return [*(name for name in self.columns if name in names), *(n for n in names if n not in self.columns)]

    def arrow_type(self, name: str) -> Any:
        """Return Arrow's type of a column; None if it is not known."""
        return read_type(self.types.get(name, ""))

    def is_text(self, name: str) -> bool:
        """Return whether a column of a typed table contains text, so that other values are written as text."""
        kind = self.arrow_type(name)
        kind = kind.value_type if kind is not None and t.is_dictionary(kind) else kind
        return kind is not None and (t.is_string(kind) or t.is_large_string(kind))

    @property
    def reading(self) -> dict[str, Any]:
        """Return the options that read a text file of this layout."""
        return {"delimiter": self.delimiter, "encoding": self.encoding, "quotes": self.quotes}

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from the default."""
        plain, fields = vars(Layout()), vars(self)
        found = {name: value for name, value in fields.items() if value != plain[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def plain_layout(ending: str) -> Layout:
    """Return the default layout of a text file, by the end of its name: ``tsv``, ``csv``, ..."""
    return Layout(delimiter="\t", quotes="none") if ending == "tsv" else Layout()


def typed_layout(schema: Any, dtypes: Mapping[str, str], *, format: FileFormat) -> Layout:  # noqa: A002
    """Return the layout that a schema of Arrow declares. The width of category indices is not part of it: it would
    reveal how many categories there are."""
    types = {each.name: re.sub("indices=[a-z0-9]+", "indices=int32", str(each.type)) for each in schema}
    return Layout(
        tuple(schema.names),
        format,
        types={name: kind for name, kind in types.items() if read_type(kind) is not None},
        dtypes={name: kind for name, kind in dtypes.items() if _DTYPE.fullmatch(kind)},
    )


def read_type(name: str) -> Any:
    """Return the type of Arrow that prints as ``name``; None for a type that synthetic tables do not use.

    A dictionary of nulls is read as a dictionary of the column's values.
    """
    if _PLAIN.fullmatch(name):
        return pa.type_for_alias(name)
    if found := _DECIMAL.fullmatch(name):
        width, precision, scale = map(int, found.groups())
        return pa.decimal128(precision, scale) if width == 128 and scale <= precision in range(1, 39) else None
    if found := _TIMESTAMP.fullmatch(name):
        return pa.timestamp(*found.groups())
    if (found := _CATEGORIES.fullmatch(name)) and (found[1] == "null" or _PLAIN.fullmatch(found[1])):
        return pa.dictionary(pa.type_for_alias(found[2]), pa.type_for_alias(found[1]), ordered=found[3] == "1")
    return None


def options_of(like: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that say how a text file is written; ConfigError if there are others."""
    parts = dict(like) if isinstance(like, Mapping) else dict(map(_pair, _BETWEEN.split(like.strip())))
    known = ("format", "delimiter", "encoding", "quotes", "formats")
    if unknown := [name for name in parts if name not in known]:
        raise ConfigError(f"A table cannot be written like {unknown[0]!r:.60}.", did_you_mean(unknown[0], known, LIKE))
    if parts.get("format") not in (None, *get_args(FileFormat)[1:]):
        raise ConfigError(f"There is no format {parts['format']!r:.40}.", "Use csv, tsv or jsonl.")
    return parts


_BETWEEN = re.compile("[ ,]+(?=[a-z_]+=)")


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name, {"tab": "\t", "\\t": "\t", "": ","}.get(value, value)
