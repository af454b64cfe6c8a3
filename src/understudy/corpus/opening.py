"""Opening a table: its files or its memory, its columns checked, its labels typed, ready for many passes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, get_args

from understudy.corpus import arrow, readers
from understudy.corpus.arrow import ColumnTypes
from understudy.corpus.bad_rows import UNREADABLE, BadRowLog
from understudy.corpus.delimited import Quotes, csv_rows
from understudy.corpus.encodings import check_encoding
from understudy.corpus.identity import Source
from understudy.corpus.labels import LabelType, output_type, typed_labels
from understudy.corpus.readers import Row
from understudy.corpus.schema import Schema
from understudy.corpus.sources import DataFile, describe_file, find_files, spool_stdin
from understudy.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

Paths = Sequence[str | os.PathLike[str]]
Pass = Iterator[tuple[str, Row]]
"""One pass over a table: ``(file name, row)`` of every file in turn."""


@dataclass(frozen=True)
class OpenTable:
    """A table whose columns are known to be there.

    ``rows`` starts a pass; ``schema`` has its labels in their final type; ``temporary`` is a file to remove at the end.
    ``sources`` and ``encoding`` are what it is made of, by which it is known again.
    """

    schema: Schema
    rows: Callable[[], Pass]
    format: str
    temporary: Path | None = None
    sources: Sequence[Source] = ()
    encoding: str = "utf-8"


@dataclass(frozen=True)
class TextOptions:
    """How CSV and JSON lines are read. ``delimiter`` and ``quotes`` None: by the format."""

    delimiter: str | None
    quotes: Quotes | None
    encoding: str
    max_cell_bytes: int
    formulas_escaped: bool = False

    def __post_init__(self) -> None:
        if self.max_cell_bytes < 1:
            raise ConfigError(f"A limit of {self.max_cell_bytes} bytes a cell leaves no text.", "Use at least 1.")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ConfigError(f"{self.delimiter!r} cannot separate cells.", "Use one character, such as ';'.")
        if self.quotes not in (None, *get_args(Quotes)):
            raise ConfigError(f"{self.quotes!r} is no way to read quotes.", f"Use {', '.join(get_args(Quotes))}.")
        check_encoding(self.encoding)


def is_arrow_table(source: object) -> TypeGuard[pa.Table]:
    """Whether ``source`` is a pyarrow.Table; without importing pyarrow."""
    return "pyarrow" in sys.modules and isinstance(source, sys.modules["pyarrow"].Table)


def open_arrow(table: pa.Table, schema: Schema) -> OpenTable:
    """A table in Arrow's memory."""
    schema = _typed(schema, arrow.check_types(table.schema, schema, "The table").label)

    def start() -> Pass:
        return _named("", readers.without_exceptions(arrow.table_rows(table, schema.columns), "The table"))

    return OpenTable(schema, start, "arrow", sources=[table])


def open_dicts(rows: Sequence[Mapping[str, object]], schema: Schema) -> OpenTable:
    """A list with a dict a row; a key that is absent is null."""

    def start() -> Pass:
        return _named("", ((n, readers.object_cells(row, schema.columns)) for n, row in enumerate(rows, 1)))

    return OpenTable(_typed(schema, None), start, "dicts", sources=[rows])


def open_files(
    paths: Paths,
    schema: Schema,
    *,
    format: str | None,  # noqa: A002
    options: TextOptions,
    private_dir: Path | None,
) -> OpenTable:
    """Files by path and pattern, or (``-``) standard input, which is copied first.

    Raises:
        ConfigError, CorpusError: see :func:`understudy.corpus.read_corpus`.
    """
    temporary = None
    if list(paths) == ["-"]:
        stdin = describe_file(Path("-"), "standard input", format)
        temporary = spool_stdin(private_dir)
        files: Sequence[DataFile] = [replace(stdin, path=temporary)]
    else:
        files = find_files(paths, format=format)
    try:
        label_type = _check_columns(files, schema, options, private_dir)
        rows = partial(_pass, files, schema, options)
        return OpenTable(
            _typed(schema, label_type), rows, files[0].format, temporary, sources=files, encoding=options.encoding
        )
    except BaseException:
        if temporary is not None:
            temporary.unlink()
        raise


def _check_columns(
    files: Sequence[DataFile], schema: Schema, options: TextOptions, private_dir: Path | None
) -> LabelType | None:
    """Check that every file begins as it should; return the label column's type, None where each cell has its own."""
    looks: list[ColumnTypes] = []
    for file in files:
        try:
            looks.append(_first_look(file, schema, options))
        except CorpusError:
            with BadRowLog(private_dir) as log:
                log.note(str(file.path), None, UNREADABLE)
            raise
    if len({types.label for types in looks}) > 1 and schema.label_type is None:
        raise ConfigError("The label column has different types in different files.", "Set the label type.")
    if len({types.owner for types in looks}) > 1:
        raise ConfigError(
            "The owner column has different types in different files, so that one owner could count as two.",
            "Write it with one type in all files, best as strings.",
        )
    return looks[0].label


def _first_look(file: DataFile, schema: Schema, options: TextOptions) -> ColumnTypes:
    if file.format == "parquet":
        return arrow.check_types(arrow.parquet_schema(file), schema, file.shown)
    _, first = next(_file_rows(file, schema, options), (0, None))
    if isinstance(first, CorpusError):
        raise first
    return ColumnTypes(None, None) if file.format == "jsonl" else ColumnTypes("string", "string")


def _typed(schema: Schema, data_type: LabelType | None) -> Schema:
    label_type = output_type(schema.labels, schema.label_type, data_type)
    return replace(schema, label_type=label_type, labels=typed_labels(schema.labels, label_type))


def _pass(files: Sequence[DataFile], schema: Schema, options: TextOptions) -> Pass:
    for file in files:
        yield from _named(str(file.path), _file_rows(file, schema, options))


def _named(name: str, rows: Iterator[Row]) -> Pass:
    return ((name, row) for row in rows)


def _file_rows(file: DataFile, schema: Schema, options: TextOptions) -> Iterator[Row]:
    columns, limit = schema.columns, options.max_cell_bytes
    if file.format == "parquet":
        rows = arrow.parquet_rows(file, columns)
    elif file.format == "jsonl":
        rows = readers.jsonl_rows(file, columns, encoding=options.encoding, max_cell_bytes=limit)
    else:
        tabs = file.format == "tsv"
        rows = csv_rows(
            file,
            columns,
            delimiter=options.delimiter or ("\t" if tabs else ","),
            quotes=options.quotes or ("none" if tabs else "multiline"),
            encoding=options.encoding,
            max_cell_bytes=limit,
            formulas_escaped=options.formulas_escaped and not tabs,
        )
    return readers.without_exceptions(rows, file.shown)
