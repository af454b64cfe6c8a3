"""Writing a table: Parquet, CSV or JSON lines, by the file's name, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from understudy.corpus.labels import canonical
from understudy.errors import ConfigError
from understudy.files import atomic_file


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Sequence[object]]) -> None:
    """Write ``columns`` to ``path``; a file that was there is replaced once the new one is synced to disk.

    CSV is UTF-8 with a header row, RFC 4180 quoting and line ends, null as nothing at all, booleans as
    ``true``/``false``. Halves of surrogate pairs, which UTF-8 cannot hold, become U+FFFD.

    Args:
        path: ends in ``.parquet``, ``.csv``, ``.jsonl`` or ``.ndjson``. Its folder is there.
        columns: the columns by name, in order, all of one length; labels keep their type in Parquet and JSON.

    Raises:
        ConfigError: another ending.
        ValueError: the columns differ in length.
    """
    target = Path(path)
    writers = {".parquet": _write_parquet, ".csv": _write_csv, ".jsonl": _write_jsonl, ".ndjson": _write_jsonl}
    writer = writers.get(target.suffix.lower())
    if writer is None:
        raise ConfigError(f"A table cannot be written as {target.name!r}.", "End its name in .parquet, .csv or .jsonl.")
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("columns differ in length")
    with atomic_file(target) as stream:
        writer(stream, columns)


def _write_parquet(stream: IO[bytes], columns: Mapping[str, Sequence[object]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {name: pa.array([_clean(cell) for cell in column]) for name, column in columns.items()}
    for name, array in arrays.items():
        if pa.types.is_null(array.type):
            arrays[name] = array.cast(pa.string())
    pq.write_table(pa.table(arrays), stream)


def _write_csv(stream: IO[bytes], columns: Mapping[str, Sequence[object]]) -> None:
    text = io.TextIOWrapper(stream, "utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([canonical(cell) if isinstance(cell, bool) else cell for cell in row] for row in _rows(columns))
    text.detach()


def _write_jsonl(stream: IO[bytes], columns: Mapping[str, Sequence[object]]) -> None:
    for row in _rows(columns):
        stream.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False).encode("utf-8") + b"\n")


def _rows(columns: Mapping[str, Sequence[object]]) -> Iterator[list[object]]:
    return ([_clean(cell) for cell in row] for row in zip(*columns.values(), strict=True))


def _clean(cell: object) -> object:
    if isinstance(cell, str) and not cell.isascii():
        return cell.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return cell
