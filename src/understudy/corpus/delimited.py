"""CSV and TSV: rows by the conventions of :mod:`understudy.corpus.readers`, and cells that a spreadsheet would run.

A cell that begins with ``=``, ``+``, ``-``, ``@`` (their full-width forms too, and behind white space), with a tab or
a line break, is written with an apostrophe before it, unless it is a plain number. So is one that begins so behind
apostrophes of its own: :func:`unescaped` undoes exactly what :func:`escaped` does. Source: OWASP, CSV Injection.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from understudy.base.errors import CorpusError
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.readers import LINE_CELLS, Row, header_error, lines
from understudy.corpus.sources import DataFile, Reading

_FORMULA = re.compile(r"'*+(?:[\t\r\n]|\s*+[=+\-@\uff1d\uff0b\uff0d\uff20])")
_NUMBER = re.compile(r"'*+[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def escaped(cell: str) -> str:
    """``cell`` as a spreadsheet shows and does not run it.

    >>> escaped("=1+1"), escaped("- milk"), escaped("-1.5"), escaped("a=b")
    ("'=1+1", "'- milk", '-1.5', 'a=b')
    """
    return f"'{cell}" if _runs(cell) else cell


def unescaped(cell: str) -> str:
    """The cell of which :func:`escaped` made this one.

    >>> unescaped("'=1+1"), unescaped("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _runs(cell) else cell


def _runs(cell: str) -> bool:
    """Whether a spreadsheet would run ``cell``, or would without the apostrophes before it."""
    return _FORMULA.match(cell) is not None and _NUMBER.fullmatch(cell) is None


_Record = list[str] | BadRow
_ANY_SIZE = 2**31 - 1


def csv_rows(file: DataFile, columns: Sequence[str], reading: Reading) -> Iterator[Row]:
    """The rows of a CSV or TSV file with a header row. Row 1 is the first beneath the header; blank lines are no rows.

    A row ends at LF or CRLF and nowhere else. Where quotes mean something, a carriage return within them is content
    and one outside them makes its row bad: many writers leave it unquoted, and a row that ended there would make
    several records of one. Without quoting it is content.

    With ``multiline``, quotes that do not pair up put the boundaries of all later rows in doubt, so they end the
    reading. With ``line`` and ``none`` every line is a row, good or bad by itself.
    """
    lift_cell_limit()
    tabs = file.format == "tsv"
    delimiter, quotes = _delimiter(file, reading), reading.quotes or ("none" if tabs else "multiline")
    clean = unescaped if reading.formulas_escaped and not tabs else str
    limit = LINE_CELLS * reading.max_cell_bytes
    with file.open_text(reading.encoding) as stream:
        if quotes == "multiline":
            rows = _records(stream, delimiter, limit)
        else:
            rows = _one_by_one(lines(stream, limit), delimiter, quoted=quotes == "line")
        rows = filter(None, rows)
        header = _header(rows, file)
        if not isinstance(header, CorpusError):
            header = [clean(name) for name in header]
            header = header_error(header, columns, file.shown, encoding=reading.encoding) or header
        if isinstance(header, CorpusError):
            yield 0, header
            return
        width = len(header)
        positions = [header.index(column) for column in columns]
        for number, row in enumerate(rows, 1):
            if isinstance(row, BadRow):
                yield number, row
            else:
                yield number, [clean(row[i]) for i in positions] if len(row) == width else BadRow.FIELD_COUNT


def csv_header(file: DataFile, reading: Reading) -> Iterator[Row]:
    """The header row of a CSV or TSV file as the only row; nothing behind it is looked at."""
    lift_cell_limit()
    with file.open_text(reading.encoding) as stream:
        yield 0, _header(filter(None, _records(stream, _delimiter(file, reading), LINE_CELLS << 20)), file)


def _delimiter(file: DataFile, reading: Reading) -> str:
    return reading.delimiter or ("\t" if file.format == "tsv" else ",")


def _header(rows: Iterator[_Record], file: DataFile) -> list[str] | CorpusError:
    header = next(rows, None)
    if header is None:
        return CorpusError(f"{file.shown!r} is empty.", "A CSV file begins with a header row.")
    if isinstance(header, BadRow):
        return CorpusError(
            f"The first row of {file.shown!r} is no header row.",
            "Check the file, --quotes, and that its rows end at LF or CRLF.",
        )
    return header


def lift_cell_limit() -> None:
    """Let ``csv`` read cells of any length: its limit is the process's, so that whether a row is good would depend on
    what was read before. Lines and cells have limits of their own.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _ANY_SIZE))


def _without_end(line: str) -> str:
    """A line without LF or CRLF; a carriage return at the end of a file ends no line."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def _one_by_one(rows: Iterator[str | BadRow], delimiter: str, *, quoted: bool) -> Iterator[_Record]:
    """Every line as a row; where it is ``quoted``, quotes end on it."""
    cells = _parser(delimiter)
    for line in rows:
        if isinstance(line, BadRow):
            yield line
        elif not quoted:
            row = _without_end(line)
            yield row.split(delimiter) if row else []
        else:
            row = _without_end(line)
            try:
                in_quotes, bare_return = _scan(row, delimiter)
                yield BadRow.BARE_RETURN if bare_return else BadRow.QUOTES if in_quotes else cells(row)
            except csv.Error:
                yield BadRow.QUOTES


def _parser(delimiter: str) -> Callable[[str], list[str]]:
    """What gives the cells of a row that :func:`_scan` finds whole. One reader for all rows: each costs some time."""
    rows: list[str] = []
    reader = csv.reader(iter(rows.pop, None), delimiter=delimiter, strict=True)

    def cells(row: str) -> list[str]:
        if '"' not in row:
            return row.split(delimiter) if row else []
        rows.append(row)
        return next(reader)

    return cells


def _records(stream: io.TextIOBase, delimiter: str, limit: int) -> Iterator[_Record]:
    """The records of RFC 4180. One of ``limit`` characters or more is bad, and is read through without being kept.

    Raises csv.Error where a quoted cell is not closed, or is followed by text.
    """
    cells, kept = _parser(delimiter), list[str]()
    size, too_long, bare_return, in_quotes, in_cell = 0, False, False, False, False
    while piece := stream.readline(limit):
        while len(piece) >= limit and piece.endswith(('"', "\r")) and (more := stream.read(1)):
            piece += more  # cut where it cannot be misread
        in_quotes, bare = _scan(_without_end(piece), delimiter, in_quotes=in_quotes, in_cell=in_cell)
        cut = len(piece) >= limit and not piece.endswith("\n")
        in_cell = cut and not in_quotes and not piece.endswith(delimiter)
        too_long, bare_return = too_long or cut or size >= limit, bare_return or bare
        size += len(piece)
        kept.append(piece)
        if too_long:
            kept.clear()
        if cut or in_quotes:
            continue
        if too_long or bare_return:
            yield BadRow.LONG_CELL if too_long else BadRow.BARE_RETURN
        else:
            yield cells(_without_end("".join(kept)))
        kept.clear()
        size, too_long, bare_return = 0, False, False
    if in_quotes:
        raise csv.Error
    if size:
        yield BadRow.LONG_CELL


def _scan(part: str, delimiter: str, *, in_quotes: bool = False, in_cell: bool = False) -> tuple[bool, bool]:
    """Whether a part of a row (without a line end) ends within quotes, and whether it has a carriage return outside of
    them: RFC 4180, with a carriage return as a character like others.

    ``in_quotes`` and ``in_cell`` say where it begins: within quotes, or within a cell without quotes. Raises csv.Error
    where text other than a carriage return follows a closing quote.
    """
    if '"' not in part:
        return in_quotes, "\r" in part and not in_quotes
    whole, quoted, followed = _patterns(delimiter)
    if not in_quotes and not in_cell and whole.fullmatch(part):
        return False, False
    start = '"' if in_quotes else "\n" if in_cell else ""  # a line end is the beginning of any cell without quotes
    bare = quoted.sub(r'"\1', start + part)  # two quotes for a closed cell, one for an open one
    if followed.search(bare):
        raise csv.Error
    return bare.rpartition(delimiter)[2] == '"', "\r" in bare


@cache
def _patterns(delimiter: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Of RFC 4180: most rows; a quoted cell, whether or not it is closed; and a closed one that :func:`_scan` replaced,
    with text behind it."""
    mark, closed = re.escape(delimiter), r'"[^"]*+(?:""[^"]*+)*+"'
    cell = rf'(?:{closed}|[^"{mark}\r][^{mark}\r]*+)?+'
    quoted = re.compile(rf'"(?:(?<=\A")|(?<={mark}"))[^"]*+(?:""[^"]*+)*+("|\Z)')
    return re.compile(rf"{cell}(?:{mark}{cell})*+"), quoted, re.compile(rf'""(?:(?<=\A"")|(?<={mark}""))[^{mark}\r]')
