"""What a table is known by again: its texts, the bytes of its files, and keyed hashes of its lines.

The texts alone are not enough. One file read by two columns is two texts, and would be two datasets with a cap each.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from understudy.base.errors import CorpusError
from understudy.base.lazy import pa
from understudy.base.transcript import ACT, ARGUMENTS, CONTENT, FUNCTION, ID, NAME, ROLE, TOOL_CALL_ID, TOOL_CALLS, TYPE
from understudy.base.untrusted import depth_within
from understudy.corpus import arrow
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.readers import MOST_NESTED, Row, damaged, decoding_errors, nests_within, without_exceptions
from understudy.corpus.schema import Schema
from understudy.corpus.sources import DataFile
from understudy.corpus.spelling import one_spelling, record_spelling, tidy, visible
from understudy.corpus.storage import Partitions
from understudy.corpus.transcripts import arguments_line

Source: TypeAlias = "DataFile | pa.Table | Sequence[Mapping[str, object]]"
"""What a table is made of: files, or one thing in memory."""

_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 24  # characters: a longer line is taken in pieces
_PUNCTUATION = bytes(code for code in range(128) if not chr(code).isalnum() and chr(code) != "\n")


@dataclass(frozen=True, repr=False)
class Identity:
    """Keyed hashes of a table; they say nothing to someone without the key. All empty for a table without a good row.

    Attributes:
        contents: 64 hexadecimal digits each: of the texts in any order, and of each file's bytes, decompressed; of
            a table in memory its whole rows in any order.
        lines: the lowest 64-bit hashes of the table's distinct lines, whichever columns were asked for, increasing.
        texts: those of ``contents`` that are of the texts.
    """

    contents: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()


def keyed_number(data: bytes, key: bytes, person: bytes = b"") -> int:
    """A keyed hash of 256 bits. The sum of such numbers knows a multiset by :func:`multiset_digest`."""
    return int.from_bytes(hashlib.blake2b(data, key=key, digest_size=32, person=person).digest())


def multiset_digest(total: int, key: bytes, person: bytes) -> str:
    """64 hexadecimal digits for a sum of keyed numbers."""
    return hashlib.blake2b((total % (1 << 256)).to_bytes(32), key=key, digest_size=32, person=person).hexdigest()


class TextsHash:
    """The keyed hash of a multiset of texts, in their one spelling. That of several tables is the hash of their sum.

    ``schema`` says whether they are JSON records.
    """

    def __init__(self, key: bytes, schema: Schema) -> None:
        self._key = key
        self._spell = record_spelling if schema.record_columns else one_spelling
        self.total: int | None = None
        """None for no text."""
        self.lowest = Lowest(LOWEST_TEXTS)

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            number = keyed_number(self._spell(text).encode("utf-8"), self._key)
            self.lowest.add(number >> 192)
            self.add_total(number)

    def add_total(self, total: int | None) -> None:
        if total is not None:
            self.total = (self.total or 0) + total

    @property
    def digests(self) -> tuple[str, ...]:
        """The digest by which a table is known; none for no text."""
        return () if self.total is None else (multiset_digest(self.total, self._key, b"multiset"),)


LOWEST_TEXTS = 512
"""How many of the texts' lowest hashes are kept, to know a table that shares most of them."""


class Lowest:
    """The ``at_most`` lowest of many 64-bit hashes, each once."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._found: set[int] = set()
        self._bar = 1 << 64

    def add(self, number: int) -> None:
        if number < self._bar:
            self._found.add(number)
            if len(self._found) > 8 * self._at_most:
                self._found = set(self.hashes)
                self._bar = max(self._found)

    @property
    def hashes(self) -> tuple[int, ...]:
        return tuple(sorted(self._found)[: self._at_most])


_PLACES = {key: place for place, key in enumerate((ROLE, CONTENT, ACT, TOOL_CALLS, NAME, ARGUMENTS))}
_TURNS = re.compile(r'\[\s*\{\s*("+)')
"""Where a dialogue may begin that is JSON in a cell; in CSV with its quotes doubled."""


class Lines:
    """The ``at_most`` lowest keyed hashes of lines, in a form that is the same in every file format: without blanks,
    punctuation (which separates cells, or quotes them), invisible characters and the difference of capital letters.
    """

    def __init__(self, key: bytes, at_most: int) -> None:
        self._key = key
        self.lowest = Lowest(at_most)

    def add(self, text: str) -> bool:
        """Take the lines of a text in; whether one held anything."""
        bare = tidy(visible(text)).casefold().encode("utf-8", "surrogatepass").translate(None, _PUNCTUATION)
        lines = set(bare.split(b"\n")) - {b""}
        for line in lines:
            digest = hashlib.blake2b(line, key=self._key, digest_size=8, person=b"line").digest()
            self.lowest.add(int.from_bytes(digest))
        return bool(lines)


def identity_of(sources: Iterable[Source], key: bytes, *, encoding: str, at_most: int) -> Identity:
    """The identity of what a table is made of: the bytes of its files, and all of its lines. One pass over each.

    A file without a row (a header alone) is like any other such, and counts for nothing. CorpusError where a file
    cannot be read, or two hold the same bytes and are not of different partitions: each record would count twice.
    """
    lines = Lines(key, at_most)
    contents: list[str] = []
    seen: dict[str, set[Partitions]] = {}
    for source in sources:
        if isinstance(source, DataFile):
            try:
                digests = _file(source, key, encoding, lines)
            except decoding_errors():
                raise damaged(source.shown) from None
            if any(_is_copy(source.partitions, seen.setdefault(digest, set())) for digest in digests):
                raise CorpusError(
                    "Two files of the private table are the same, so that each record would count twice.",
                    "Name only one of them; a pattern such as 'notes*' also takes notes.csv.gz beside notes.csv.",
                )
            for digest in digests:
                seen[digest].add(source.partitions)
            contents += digests
        else:
            rows = (
                arrow.table_cells(source, source.schema.names)
                if hasattr(source, "schema")
                else enumerate(map(_cells, source), 1)
            )
            contents.append(_rows_in_memory(without_exceptions(rows, "The table"), key, lines))
    return Identity(tuple(dict.fromkeys(contents)), lines.lowest.hashes)


def _rows_in_memory(rows: Iterable[Row], key: bytes, lines: Lines) -> str:
    """The digest of whole rows, in any order, in place of the bytes that a table in memory does not have; takes in
    their lines."""
    total = 0
    for _, cells in rows:
        joined = _joined(cells)
        lines.add(joined)
        total += keyed_number(joined.encode("utf-8", "surrogatepass"), key, b"whole row")
    return multiset_digest(total, key, b"table")


def _is_copy(partitions: Partitions, others: set[Partitions]) -> bool:
    """Whether a file may be one of several with the same bytes again, and not the rows of another partition.

    ``others`` all have the same columns: a file with others has been refused.
    """
    columns = [name for name, _ in partitions]
    return partitions in others or any(columns != [name for name, _ in other] for other in islice(others, 1))


def _file(file: DataFile, key: bytes, encoding: str, lines: Lines) -> list[str]:
    """The digest of a file's bytes, if it has a row; takes in its lines."""
    digest = hashlib.blake2b(key=key, digest_size=32, person=b"file")
    if file.format == "parquet":
        for _ in _bytes(file, digest):
            pass
        rows = without_exceptions(arrow.parquet_cells(file, arrow.parquet_schema(file).names), file.shown)
        for _, cells in rows:  # a column that cannot be read ends them: no matter
            lines.add(_joined(cells))
        return [digest.hexdigest()] if arrow.count_rows(file) else []  # a row counts whatever its cells hold
    pieces: Iterable[str]
    if file.format == "jsonl":
        pieces = ("\n".join(_objects(piece)) for piece in _text(_bytes(file, digest), encoding))
    else:
        texts = _without_header(_text(_bytes(file, digest), encoding))
        pieces = ("\n".join(map(_joined, text.split("\n"))) for text in texts)
    filled = [lines.add(piece) for piece in pieces]
    return [digest.hexdigest()] if any(filled) else []


def _bytes(file: DataFile, digest: hashlib.blake2b) -> Iterator[bytes]:
    with file.open() as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            yield chunk


def _text(chunks: Iterable[bytes], encoding: str) -> Iterator[str]:
    """Whole lines, many in a piece."""
    encoding = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    rest = ""
    for chunk in chunks:
        rest += decoder.decode(chunk)
        whole, _, more = rest.rpartition("\n")
        if whole or len(more) > _LONGEST_LINE:
            yield whole or more
            rest = more if whole else ""
    yield rest + decoder.decode(b"", final=True)


def _without_header(pieces: Iterable[str]) -> Iterator[str]:
    """Drops the first line that is not blank: unrelated tables may share their header."""
    found = False
    for piece in pieces:
        if not found and piece.strip():
            found = True
            piece = piece.lstrip().partition("\n")[2]
        yield piece


def _objects(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if not nests_within(line, MOST_NESTED + 1):
            continue
        try:
            yield _joined(_cells(json.loads(line)))
        except ValueError:
            continue


def _cells(row: object) -> list[object]:
    return list(row.values()) if isinstance(row, Mapping) else [row]


def _joined(cells: object, depth: int = 0) -> str:
    """The cells of a row, those within cells too, in one text; nothing where the row cannot be read, or nests deeper
    than a file's may."""
    if isinstance(cells, BadRow | CorpusError) or cells is None or depth > MOST_NESTED + 1:
        return ""
    if isinstance(cells, str):
        return _dialogues_joined(cells, depth)
    if isinstance(cells, Mapping):
        cells = _values(cells)
    if isinstance(cells, list | tuple):
        return "\t".join(_joined(cell, depth + 1) for cell in cells)
    return str(cells)


def _values(item: Mapping[str, object]) -> list[object]:
    """What an object within a cell holds, its keys in one order and arguments in one spelling, since file formats keep
    neither. Leaves out of turns and calls what only says which call is answered.
    """
    aside: tuple[str, ...] = ()
    if isinstance(item.get(ROLE), str):
        aside = (TOOL_CALL_ID, NAME)
    elif isinstance(item.get(FUNCTION), Mapping):
        aside = (ID, TYPE)
    keys = sorted((key for key in item if key not in aside), key=lambda key: (_PLACES.get(key, len(_PLACES)), str(key)))
    values = ((arguments_line(item[key]) or item[key]) if key == ARGUMENTS else item[key] for key in keys)
    return [value for value in values if value is not None]


def _dialogues_joined(text: str, depth: int) -> str:
    """A text, with each JSON dialogue in it joined as a list would be."""
    pieces: list[str] = []
    start = 0
    while ROLE in text and (found := _TURNS.search(text, start)):
        start = found.end()
        rest = text[found.start() :]
        rest = rest.replace('""', '"') if found[1] == '""' else rest
        try:
            turns, end = _read_first(rest)
        except ValueError:
            continue
        except RecursionError:
            break
        if depth_within(turns, MOST_NESTED) and all(isinstance(turn, dict) and ROLE in turn for turn in turns):
            pieces += [text[: found.start()], _joined(turns, depth + 1)]
            text, start = rest[end:], 0
    return "\t".join([*pieces, text])


_read_first = json.JSONDecoder().raw_decode
