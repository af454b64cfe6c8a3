"""CSV and TSV, row by row, with the conventions of :mod:`understudy.corpus.readers`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from understudy.corpus.bad_rows import BadRow
from understudy.corpus.readers import LINE_CELLS, Row, header_error, lines
from understudy.corpus.sources import DataFile
from understudy.errors import CorpusError

Quotes = Literal["multiline", "line", "none"]
"""What quotes mean: RFC 4180, whose cells may hold line breaks; quoted cells within a line; or nothing."""

_Record = list[str] | BadRow
_ANY_SIZE = 2**31 - 1


def csv_rows(
    file: DataFile, columns: Sequence[str], *, delimiter: str, quotes: Quotes, encoding: str, max_cell_bytes: int
) -> Iterator[Row]:
    """The rows of a CSV or TSV file with a header row. Row 1 is the first beneath the header; blank lines are no rows.

    With ``multiline``, quotes that do not pair up put the boundaries of all later rows in doubt, so they end the
    reading. With ``line`` and ``none`` every line (up to LF or CRLF) is a row, good or bad by itself.
    """
    limit = LINE_CELLS * max_cell_bytes
    with file.open_text(encoding, newline="" if quotes == "multiline" else "\n") as stream:
        if quotes == "multiline":
            rows = _records(stream, delimiter, limit)
        else:
            rows = _lines(stream, delimiter, limit, quoted=quotes == "line")
        rows = filter(None, rows)
        header = next(rows, None)
        if header is None:
            yield 0, CorpusError(f"{file.shown!r} is empty.", "A CSV file begins with a header row.")
            return
        if isinstance(header, BadRow):
            yield 0, CorpusError(f"The first row of {file.shown!r} is no header row.", "Check the file and --quotes.")
            return
        error = header_error(header, columns, file.shown)
        if error is not None:
            yield 0, error
            return
        width = len(header)
        positions = [header.index(column) for column in columns]
        for number, row in enumerate(rows, 1):
            if isinstance(row, BadRow):
                yield number, row
            else:
                yield number, [row[i] for i in positions] if len(row) == width else BadRow.FIELD_COUNT


def _lines(stream: io.TextIOWrapper, delimiter: str, limit: int, *, quoted: bool) -> Iterator[_Record]:
    for line in lines(stream, limit):
        yield (
            line if isinstance(line, BadRow) else _cells(line.removesuffix("\n").removesuffix("\r"), delimiter, quoted)
        )


def _cells(line: str, delimiter: str, quoted: bool) -> _Record:
    if not quoted or '"' not in line:
        return line.split(delimiter) if line else []
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return BadRow.QUOTES


def _records(stream: io.TextIOWrapper, delimiter: str, limit: int) -> Iterator[_Record]:
    """The records of RFC 4180. One of more than ``limit`` characters is bad, and is read through without being kept.

    Raises:
        csv.Error: a quoted cell is not closed, or text stands behind its closing quote.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _ANY_SIZE))  # the pieces are limited instead
    pieces = _Pieces(stream, limit)
    open_reader = partial(csv.reader, pieces, delimiter=delimiter, strict=True)
    reader = open_reader()
    too_long = False
    while True:
        pieces.given = 0
        try:
            record = next(reader, None)
        except _InQuotes:
            too_long, pieces.before, reader = True, '"', open_reader()
            continue
        if record is not None and pieces.cut:  # outside quotes, so the reader took the piece for a whole record
            too_long, pieces.before = True, "" if pieces.last == delimiter else "x"
            continue
        if too_long:
            yield BadRow.LONG_CELL
        elif record is not None:
            yield record
        if record is None:
            return
        too_long = False


class _InQuotes(Exception):
    """The reader asks for more of a record that is too long already: the last piece ended within quotes."""


class _Pieces:
    """Lines for ``csv.reader``, those that are too long in pieces, so that it can go on where a piece was cut.

    Attributes:
        given: characters of the present record handed out; set to 0 before each record.
        before: what to put before the next piece so that a reader begins in the state in which the last one ended:
            a quote within quotes, a letter within a cell without quotes, nothing behind a delimiter.
        cut: whether the last piece's line goes on.
        last: the last piece's last character; never a quote where it was cut.
    """

    def __init__(self, stream: io.TextIOWrapper, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self.given = 0
        self.before = ""
        self.cut = False
        self.last = ""

    def __iter__(self) -> _Pieces:
        return self

    def __next__(self) -> str:
        if self.given >= self._limit:
            raise _InQuotes
        piece = self._stream.readline(self._limit)
        while len(piece) >= self._limit and piece.endswith('"') and (more := self._stream.read(1)):
            piece += more
        if not piece:
            self.cut = False
            if self.before == '"':
                raise csv.Error
            raise StopIteration
        self.cut = len(piece) >= self._limit and not piece.endswith(("\n", "\r"))
        self.last = piece[-1]
        self.given += len(piece)
        before, self.before = self.before, ""
        return before + piece
