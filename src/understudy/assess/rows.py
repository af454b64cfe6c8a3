"""The rows of a synthetic table that a stranger may have made, one by one and no more than are public limits."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from understudy.corpus.delimited import lift_cell_limit, unescaped
from understudy.outputs import LABEL, PROVENANCE, TEXT
from understudy.parquet import count_values

MOST_ROWS = 2_000_000
"""Rows of a synthetic table that a report is made of."""
MOST_BYTES = 1024**3
"""Bytes of its texts, labels and provenance, uncompressed."""
_AT_ONCE = 4096
_LONGEST = 64 * 1024**2
_COLUMNS = (TEXT, LABEL, PROVENANCE)


class TooLarge(ValueError):
    """The table has more rows or bytes than are read."""


def read_rows(path: Path, *, at_once: int = _AT_ONCE) -> Iterator[Mapping[str, Any]]:
    """The rows of a table in Parquet, CSV or JSON lines.

    Args:
        at_once: rows of Parquet that are decoded together.

    Raises:
        TooLarge: beyond :data:`MOST_ROWS` or :data:`MOST_BYTES`.
        Exception: the table is damaged.
    """
    if not path.is_file():  # a pipe would be waited for
        raise ValueError("no file")
    if path.stat().st_size > MOST_BYTES:
        raise TooLarge
    readers = {".parquet": _parquet_rows, ".csv": _csv_rows}
    for count, row in enumerate(readers.get(path.suffix, _json_rows)(path, at_once)):
        if count >= MOST_ROWS:
            raise TooLarge
        yield row


def _csv_rows(path: Path, _: int) -> Iterator[Mapping[str, Any]]:
    lift_cell_limit()
    with path.open(encoding="utf-8-sig", newline="") as lines:
        cells = filter(None, csv.reader(lines))
        names = [unescaped(name) for name in next(cells)]
        for row in cells:
            yield dict(zip(names, map(unescaped, row), strict=True))


def _json_rows(path: Path, _: int) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _parquet_rows(path: Path, at_once: int) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as plain:
        _check_size(path, plain.metadata)
        names, strings = _flat_columns(plain)
    size = 0
    with pq.ParquetFile(path, read_dictionary=strings) as file:  # a string that stands there often is there once
        for batch in file.iter_batches(at_once, columns=names, use_threads=False):
            size += sum(map(_decoded_size, batch.columns))
            if size > MOST_BYTES:
                raise TooLarge
            columns = {name: batch.column(name) for name in names}
            for row in range(batch.num_rows):  # one by one: what stands there once for all would be there for each
                yield {name: column[row].as_py() for name, column in columns.items()}


def _flat_columns(file: Any) -> tuple[list[str], list[str]]:
    """The columns that are read, and which of them hold strings; before anything in them is decoded.

    Raises:
        ValueError: one is of a type that understudy does not write: in a list or a struct a page of a few bytes is
            gigabytes.
    """
    import pyarrow as pa

    names = [name for name in _COLUMNS if name in file.schema_arrow.names]
    types = {name: file.schema_arrow.field(name).type for name in names}
    strings = [name for name, kind in types.items() if kind in (pa.string(), pa.large_string())]
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if set(names) - set(strings) - {LABEL} or not all(
        name in strings or any(is_one(types[name]) for is_one in plain) for name in names
    ):
        raise ValueError("a column is of another type")
    paths = [file.metadata.schema.column(place).path for place in range(file.metadata.num_columns)]
    if sum(path.split(".")[0] in names for path in paths) > len(names):  # read together with a column of that name
        raise ValueError("a column is there twice")
    return names, strings


def _check_size(path: Path, metadata: Any) -> None:
    """By the footer and by the headers of all pages, before one is decoded."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    if metadata.num_rows > MOST_ROWS or sum(group.total_byte_size for group in groups) > MOST_BYTES:
        raise TooLarge
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        if count_values(data, metadata, most=MOST_BYTES) > MOST_ROWS * max(1, metadata.num_columns):
            raise TooLarge


def _decoded_size(column: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    if (pc.max(lengths).as_py() or 0) > _LONGEST:
        raise ValueError("a cell is too long")
    return int(pc.sum(lengths.take(column.indices)).as_py() or 0)
