"""Write a table atomically as Parquet, CSV, TSV or JSON lines, by the file's name."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from understudy.base.errors import ConfigError
from understudy.base.files import atomic_file
from understudy.base.lazy import pa, pq
from understudy.base.untrusted import writable
from understudy.corpus.readers import escaped
from understudy.schema.labels import canonical
from understudy.schema.layout import Layout, plain_layout

if TYPE_CHECKING:
    import pyarrow as pa


def write_table(
    path: str | os.PathLike[str],
    columns: Mapping[str, Sequence[object]],
    *,
    keep_formulas: bool = False,
    types: Mapping[str, Any] | None = None,
    layout: Layout | None = None,
    no_formulas: Collection[str] = (),
) -> None:
    """Write ``columns`` to ``path``; an existing file is replaced once the new one is synced to disk.

    CSV is UTF-8 with a header row, RFC 4180 quoting and line ends, null as an empty cell, lists as JSON, booleans as
    ``true``/``false``, dates in ISO 8601 (in JSON too), control characters as U+FFFD, and an apostrophe before cells
    that a spreadsheet would run (:mod:`understudy.corpus.readers`; undone by ``read_corpus(formulas_escaped=True)``).
    Halves of surrogate pairs, which UTF-8 cannot encode, become U+FFFD in every format.

    Args:
        path: ends in ``.parquet``, ``.csv``, ``.tsv``, ``.jsonl`` or ``.ndjson`` (else a ConfigError). Its folder must
            exist.
        columns: by name, in order, all of one length (else a ValueError); labels keep their type in Parquet and JSON,
            but in Parquet labels of several types, which no column has, become strings.
        types: Arrow's types of Parquet columns that do not depend on the values.
        keep_formulas: write CSV cells as they are, also those that a spreadsheet would run.
        layout: how a text file is written, if not as above. A character that its encoding does not have becomes ``?``;
            one that would end a row or a cell without quotes becomes a blank.
        no_formulas: columns of numbers and dates, which no spreadsheet runs however they are written.
    """
    target = Path(path)
    ending = target.suffix.lower()
    if ending not in (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson"):
        raise ConfigError(
            f"A table cannot be written as {target.name!r}.", "End its name in .parquet, .csv, .tsv or .jsonl."
        )
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("columns differ in length")
    written = layout or plain_layout(ending[1:])
    with atomic_file(target) as stream:
        if ending == ".parquet":
            pq.write_table(arrow_table(columns, types or {}), stream)
        elif ending in (".csv", ".tsv"):
            _write_csv(stream, columns, keep_formulas=keep_formulas, layout=written, no_formulas=no_formulas)
        else:
            _write_jsonl(stream, columns, encoding=written.encoding)


def arrow_table(columns: Mapping[str, Sequence[object]], types: Mapping[str, Any]) -> pa.Table:
    """Return ``columns`` as an Arrow table, as for a Parquet file; ``types`` as for :func:`write_table`."""
    arrays = {
        name: pa.array(column, types[name]) if name in types else _array([_clean(cell) for cell in column])
        for name, column in columns.items()
    }
    return pa.table(arrays)


def _array(cells: Sequence[object]) -> Any:
    """Return the cells as a column of one type: strings if the cells have no common type."""
    try:
        array = pa.array(cells)
    except (pa.ArrowException, OverflowError):  # labels of several types, or an integer of more than 64 bits
        array = pa.array([None if cell is None else _spelled(cell) for cell in cells])
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


def _spelled(cell: object) -> str:
    if not isinstance(cell, str | int | float):
        raise TypeError("a cell is neither text nor a label")
    return canonical(cell)


def _write_csv(
    stream: IO[bytes],
    columns: Mapping[str, Sequence[object]],
    *,
    keep_formulas: bool,
    layout: Layout,
    no_formulas: Collection[str],
) -> None:
    breaks = {"line": "[\r\n]+", "none": f"[\r\n{re.escape(layout.delimiter)}]+"}.get(layout.quotes)
    kept = [keep_formulas or name in no_formulas for name in columns]

    def cell(value: object, keep: bool) -> object:
        if isinstance(value, list):
            value = json.dumps(value, ensure_ascii=False)
        if not isinstance(value, str):
            return canonical(value) if isinstance(value, bool) else _in_words(value)
        value = _CONTROLS.sub("\ufffd", value)
        value = value if breaks is None else re.sub(breaks, " ", value)
        return value if keep else escaped(value)

    text = io.TextIOWrapper(stream, layout.encoding, errors="replace", newline="")
    quoted: Any = {"quoting": csv.QUOTE_NONE, "quotechar": None} if layout.quotes == "none" else {}
    writer = csv.writer(text, delimiter=layout.delimiter, **quoted)
    writer.writerow([cell(name, keep_formulas) for name in columns])
    writer.writerows([cell(*each) for each in zip(row, kept, strict=True)] for row in _rows(columns))
    text.detach()


_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # many readers of CSV end a cell or the file at NUL


def _write_jsonl(stream: IO[bytes], columns: Mapping[str, Sequence[object]], *, encoding: str) -> None:
    ascii_only = not encoding.lower().startswith("utf")
    for row in _rows(columns):
        cells = dict(zip(columns, map(_in_words, row), strict=True))
        stream.write(json.dumps(cells, ensure_ascii=ascii_only).encode("utf-8") + b"\n")


def write_arrow(path: str | os.PathLike[str], table: pa.Table) -> None:
    """Write a table of Arrow as a Parquet file, as :func:`write_table` does."""
    with atomic_file(Path(path)) as stream:
        pq.write_table(table, stream)


def _rows(columns: Mapping[str, Sequence[object]]) -> Iterator[list[object]]:
    return ([_clean(cell) for cell in row] for row in zip(*columns.values(), strict=True))


def _in_words(cell: object) -> object:
    if isinstance(cell, decimal.Decimal):
        return float(cell)
    return cell.isoformat() if isinstance(cell, datetime.date) else cell


def _clean(cell: object) -> object:
    return writable(cell) if isinstance(cell, str) else cell
