"""Read CSV, TSV and JSON lines row by row.

A reader yields ``(row number, cells)`` with the cells of the requested columns, in their order. In place of cells
there is a :class:`BadRow` if only this row is bad, or, once and last, a :class:`CorpusError` if the file cannot be
read further. Readers do not raise errors: decoders' exceptions contain private text, which would be chained to them.

A CSV cell that begins with ``=``, ``+``, ``-``, ``@`` (their full-width forms too, and after white space), with a tab
or a line break, is written with an apostrophe before it, unless it is a plain number, so that no spreadsheet runs it.
So is a cell with one of these after leading apostrophes: :func:`unescaped` undoes exactly what :func:`escaped` does.
Source: OWASP, CSV Injection.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from understudy.base.errors import CorpusError, nearest
from understudy.base.lazy import pa
from understudy.base.untrusted import no_number
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.sources import DataFile, Quotes, Reading, parse_address

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
    """Return the names in a header. Blanks around a name are removed, unless a requested name has the same blanks."""
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


_FORMULA = re.compile(r"'*+(?:[\t\r\n]|\s*+[=+\-@\uff1d\uff0b\uff0d\uff20])")
_NUMBER = re.compile(r"'*+[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def escaped(cell: str) -> str:
    """Return ``cell`` in a form that a spreadsheet shows and does not run.

    >>> escaped("=1+1"), escaped("- milk"), escaped("-1.5"), escaped("a=b")
    ("'=1+1", "'- milk", '-1.5', 'a=b')
    """
    return f"'{cell}" if _runs(cell) else cell


def unescaped(cell: str) -> str:
    """Return the cell from which :func:`escaped` made this one.

    >>> unescaped("'=1+1"), unescaped("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _runs(cell) else cell


def _runs(cell: str) -> bool:
    """Return whether a spreadsheet would run ``cell``, or would without the apostrophes before it."""
    return _FORMULA.match(cell) is not None and _NUMBER.fullmatch(cell) is None


_Record = list[str] | BadRow
_ANY_SIZE = 2**31 - 1


def csv_rows(file: DataFile, columns: Sequence[str], reading: Reading) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file with a header row. Row 1 follows the header; blank lines are skipped.

    A row ends only at LF or CRLF. If quotes are special, a carriage return within them is content and one outside them
    makes its row bad: many writers leave it unquoted, and ending the row there would split one record into
    several. Without quoting it is content.

    With ``multiline``, quotes that do not pair up put the boundaries of all later rows in doubt, so they end the
    reading. With ``line`` and ``none`` every line is a row, good or bad by itself.
    """
    quotes = reading.quotes or ("none" if file.format == "tsv" else "multiline")
    clean = unescaped if reading.formulas_escaped and file.format != "tsv" else str
    with file.open_text(reading.encoding) as stream:
        header, rows = _opened(stream, file, reading, quotes)
        if isinstance(header, CorpusError):
            yield 0, header
            return
        header = as_asked([clean(name) for name in header], columns)
        if error := header_error(header, columns, file.shown, encoding=reading.encoding):
            yield 0, error
            return
        width = len(header)
        positions = [header.index(column) for column in columns]
        for number, row in enumerate(rows, 1):
            if isinstance(row, BadRow):
                yield number, row
            else:
                yield number, [clean(row[i]) for i in positions] if len(row) == width else BadRow.FIELD_COUNT


def csv_header(file: DataFile, reading: Reading) -> Iterator[Row]:
    """Yield the header row of a CSV or TSV file as the only row; the rest is not read."""
    with file.open_text(reading.encoding) as stream:
        yield 0, _opened(stream, file, reading, "multiline")[0]


def csv_delimiter(file: DataFile, reading: Reading) -> str:
    """Return the delimiter of a CSV or TSV file: the declared one, or that of its first line ``sep=;``."""
    with file.open_text(reading.encoding) as stream:
        named = _SEPARATOR.fullmatch(stream.readline(_LONGEST_NAMED).rstrip("\r\n"))
    named = named if file.format == "csv" else None
    return reading.delimiter or (named[1] if named else "\t" if file.format == "tsv" else ",")


def _opened(
    stream: io.TextIOBase, file: DataFile, reading: Reading, quotes: Quotes
) -> tuple[list[str] | CorpusError, Iterator[_Record]]:
    """Return the header, or what is wrong with it, and the rows below it. A first line ``sep=;``, as Excel writes and
    reads it, is not a row; it sets the delimiter if none is declared."""
    lift_cell_limit()
    limit = LINE_CELLS * reading.max_cell_bytes

    def rows_by(delimiter: str) -> Iterator[_Record]:
        if quotes == "multiline":
            return filter(None, _records(stream, delimiter, limit))
        return filter(None, _lines(stream, delimiter, limit, quoted=quotes == "line"))

    delimiter = reading.delimiter or ("\t" if file.format == "tsv" else ",")
    rows = rows_by(delimiter)
    header = next(rows, None)
    named = _SEPARATOR.fullmatch(delimiter.join(header)) if isinstance(header, list) and file.format == "csv" else None
    if named is not None:
        rows = rows_by(reading.delimiter or named[1])
        header = next(rows, None)
    return _checked(header, file), rows


_LONGEST_NAMED = 16
_SEPARATOR = re.compile(r"sep=([^\w\s\"]|[\t ])", re.IGNORECASE)


def _checked(header: _Record | None, file: DataFile) -> list[str] | CorpusError:
    if header is None:
        return CorpusError(f"{file.shown!r} is empty.", "A CSV file begins with a header row.")
    if isinstance(header, BadRow):
        return CorpusError(
            f"The first row of {file.shown!r} is not a header row.",
            "Check the file (UTF-16 is converted to UTF-8), --quotes, and that its rows end at LF or CRLF.",
        )
    return header


def lift_cell_limit() -> None:
    """Let ``csv`` read cells of any length: its limit is one for the process, so whether a row is good would depend on
    earlier reading. Lines and cells have separate limits.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _ANY_SIZE))


def _lines(stream: io.TextIOBase, delimiter: str, limit: int, *, quoted: bool) -> Iterator[_Record]:
    for line in lines(stream, limit):
        yield line if isinstance(line, BadRow) else _cells(_without_end(line), delimiter, quoted)


def _without_end(line: str) -> str:
    """Return a line without LF or CRLF; a carriage return at the end of a file does not end a line."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def _cells(line: str, delimiter: str, quoted: bool) -> _Record:
    if not quoted:
        return line.split(delimiter) if line else []
    try:
        if "\r" in line and _scan(line, delimiter).bare_return:
            return BadRow.BARE_RETURN
        if '"' not in line:
            return line.split(delimiter) if line else []
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return BadRow.QUOTES


def _records(stream: io.TextIOBase, delimiter: str, limit: int) -> Iterator[_Record]:
    """Yield the records of RFC 4180. One of more than ``limit`` characters is bad, and is read without being stored.
    csv.Error if a quoted cell is not closed, or text follows its closing quote."""
    kept: list[str] = []
    length, too_long = 0, False
    state, in_cell = _State(False, False), False
    while piece := _piece(stream, limit):
        cut = len(piece) >= limit and not piece.endswith("\n")
        line = _without_end(piece)
        if state.in_quotes or '"' in line or "\r" in line:
            found = _scan(line, delimiter, in_quotes=state.in_quotes, in_cell=in_cell)
            state = _State(found.in_quotes, state.bare_return or found.bare_return)
        length += len(piece)
        in_cell = cut and not state.in_quotes and not piece.endswith(delimiter)
        if not too_long:
            kept.append(piece)
        if cut or state.in_quotes:
            if length >= limit:
                kept, too_long = [], True
            continue
        whole = _without_end("".join(kept))
        if too_long:
            yield BadRow.LONG_CELL
        elif state.bare_return:
            yield BadRow.BARE_RETURN
        elif '"' in whole:
            yield next(csv.reader([whole], delimiter=delimiter, strict=True))
        else:
            yield whole.split(delimiter) if whole else []
        kept, length, too_long, state = [], 0, False, _State(False, False)
    if state.in_quotes:
        raise csv.Error
    if too_long:
        yield BadRow.LONG_CELL


def _piece(stream: io.TextIOBase, limit: int) -> str:
    """Return a line, or the next part of one that is too long. It is not cut after a quote or a carriage return, whose
    meaning depends on the next character."""
    piece = stream.readline(limit)
    while len(piece) >= limit and piece.endswith(('"', "\r")) and (more := stream.read(1)):
        piece += more
    return piece


class _State(NamedTuple):
    """The state after a part of a row: whether it is in quotes, and whether a carriage return was outside of them."""

    in_quotes: bool
    bare_return: bool


def _scan(part: str, delimiter: str, *, in_quotes: bool = False, in_cell: bool = False) -> _State:
    """Read a part of a row (without a line end) as RFC 4180 does, with a carriage return as an ordinary character;
    csv.Error if other text follows a closing quote.

    ``in_quotes`` and ``in_cell`` say where it begins: within quotes, or within a cell without quotes.
    """
    place, bare_return = 0, False
    while True:
        if not in_quotes and not in_cell and part.startswith('"', place):
            in_quotes, place = True, place + 1
        if in_quotes:
            quote = _CLOSING_QUOTE.match(part, place)
            if quote is None:
                return _State(True, bare_return)
            in_quotes, place = False, quote.end()
            if part[place : place + 1] not in ("", delimiter, "\r"):
                raise csv.Error
        end = part.find(delimiter, place)
        bare_return = bare_return or "\r" in part[place : end if end >= 0 else len(part)]
        if end < 0:
            return _State(False, bare_return)
        place, in_cell = end + 1, False


_CLOSING_QUOTE = re.compile(r'[^"]*+(?:""[^"]*+)*+"')
