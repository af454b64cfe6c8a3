"""Read JSON lines row by row, with the functions that all readers share.

A reader yields ``(row number, cells)`` with the cells of the requested columns, in their order. In place of cells
there is a :class:`BadRow` if only this row is bad, or, once and last, a :class:`CorpusError` if the file cannot be
read further. Readers do not raise errors: decoders' exceptions contain private text, which would be chained to them.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from understudy.base.errors import CorpusError, nearest
from understudy.base.lazy import pa
from understudy.base.untrusted import no_number
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.sources import DataFile, Reading
from understudy.corpus.storage import parse_address

Cells = Sequence[object] | BadRow | CorpusError
Row = tuple[int, Cells]
T = TypeVar("T")

LINE_CELLS = 64
"""A line may have this many times as many characters as a cell may have bytes; memory holds one line."""


def undecoded(names: Sequence[object], shown: str, encoding: str) -> CorpusError | None:
    """Return the error for a header that cannot be decoded in the declared encoding; None if it can."""
    if all(str(name).replace("\t", " ").isprintable() for name in names):
        return None
    return CorpusError(
        f"The header of {shown!r} is not text in {encoding}.",
        "Name another encoding with --encoding, or convert the file to UTF-8.",
    )


def header_error(
    names: Sequence[str], columns: Sequence[str], shown: str, *, encoding: str = "utf-8"
) -> CorpusError | None:
    """Return what is wrong with a table's column names, if anything.

    Quotes only the requested column and similar names: a "header" may be the first private row of a file without
    a header.
    """
    missing = next((column for column in columns if column not in names), None)
    if missing is not None:
        like = nearest(missing, names)
        return undecoded(names, shown, encoding) or CorpusError(
            f"{shown if shown == 'The table' else repr(shown)} has no column {missing!r}.",
            f"Its header has {like}."
            if like
            else "Check the name and, in CSV, --delimiter and --encoding (`understudy init` lists the columns); a file "
            "of rows begins with a header row.",
        )
    if len(set(names)) < len(names):
        return CorpusError(f"Two columns of {shown!r} have the same name.", "Rename one of them.")
    return None


def as_asked(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return a header's names, without surrounding blanks unless a requested name has them."""
    return [name if name in columns else name.strip() for name in names]


def json_lines(file: DataFile, reading: Reading) -> Iterator[tuple[int, object]]:
    """Yield the value of each line that is not blank, or its BadRow, with the line's number."""
    with file.open_text(reading.encoding) as stream:
        for number, line in enumerate(lines(stream, LINE_CELLS * reading.max_cell_bytes), 1):
            if isinstance(line, BadRow):
                yield number, line
            elif not line.isspace():
                yield number, _json(line)


def jsonl_rows(file: DataFile, columns: Sequence[str], reading: Reading) -> Iterator[Row]:
    """Yield the rows of a file with one JSON object per line. A row's number is its line's; a missing key is null."""
    for number, value in json_lines(file, reading):
        yield number, value if isinstance(value, BadRow) else object_cells(value, columns)


def lines(stream: io.TextIOBase, limit: int) -> Iterator[str | BadRow]:
    """Yield lines with their ends; one of ``limit`` characters or more is bad, and is read without being stored."""
    while line := stream.readline(limit):
        if len(line) < limit or line.endswith("\n"):
            yield line
        else:
            while (piece := stream.readline(limit)) and not piece.endswith("\n"):
                pass
            yield BadRow.LONG_CELL


def without_exceptions(rows: Iterator[tuple[int, T]], shown: str) -> Iterator[tuple[int, T | CorpusError]]:
    """Yield the same rows. If a decoder raises, yield a last row with a CorpusError that quotes nothing."""
    number = 0
    try:
        for number, cells in rows:
            yield number, cells
        return
    except csv.Error:
        error = CorpusError(
            f"The quotes in {shown!r} do not pair up, so the ends of its rows are unclear.",
            "Fix the file: quote cells that contain a quote or a line break, and double the inner quotes.",
        )
    except (PermissionError, FileNotFoundError):
        error = CorpusError(f"{shown!r} cannot be opened.", "Check that the file exists and may be read.")
    except MemoryError:
        error = CorpusError(
            f"Some rows of {shown!r} unpack to more than this machine's memory can hold.",
            "Leave out the columns or rows that are so long, or use a machine with more memory.",
        )
    except decoding_errors():
        error = damaged(shown)
    yield number, error


def decoding_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of decoders for invalid bytes, and of file systems for unreadable ones."""
    codecs = (zlib.error, lzma.LZMAError, pa.ArrowException)
    return OSError, EOFError, ValueError, LookupError, NotImplementedError, *codecs


def damaged(shown: str) -> CorpusError:
    """Return the error for a file with invalid bytes."""
    if parse_address(shown) is not None:
        return CorpusError(
            f"{shown!r} cannot be read: access is denied, the connection failed, or it is truncated, damaged, or of "
            "another format.",
            "Repeat the command; if that does not help, write the file again.",
        )
    return CorpusError(f"{shown!r} is truncated, damaged, or of a different format.", "Fetch or write the file again.")


def _json(line: str) -> object:
    if not nests_within(line, MOST_NESTED + 1):  # the line is an object, its cells within it
        return BadRow.INVALID_JSON
    try:
        return decode_json(line)
    except (ValueError, RecursionError):
        return BadRow.INVALID_JSON


def object_cells(value: object, columns: Sequence[str]) -> Cells:
    """Return the cells of one JSON object."""
    return [value.get(column) for column in columns] if isinstance(value, Mapping) else BadRow.NOT_AN_OBJECT


def nests_within(line: str, most: int) -> bool:
    """Return whether brackets outside strings nest at most ``most`` deep in a line of JSON.

    Python's decoder gives up at a depth that depends on its caller: a row could be good in one pass over a table
    and bad in the next, after the charge.
    """
    if line.count("[") + line.count("{") <= most:
        return True
    depth = 0
    for found in _BRACKETS.finditer(line):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > most:
            return False
    return True


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        raise ValueError("a key occurs twice")
    return keys


decode_json = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=no_number).decode
"""A decoder that also raises ValueError for a repeated key, or for NaN."""
MOST_NESTED = 64
"""How deep a cell may nest."""
_BRACKETS = re.compile(r'"(?:[^"\\]+|\\.?)*+"?|[\[\]{}]', re.DOTALL)  # a whole string, or a bracket
