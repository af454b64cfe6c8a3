"""Identify a table by its texts, the bytes of its files, and keyed hashes of its texts' cells.

The texts alone are not enough. One file read by two columns is two texts, and would be two datasets with a cap each.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import TypeAlias

from understudy.base.errors import CorpusError
from understudy.base.lazy import pa
from understudy.base.untrusted import said
from understudy.corpus import arrow
from understudy.corpus.bad_rows import BadRow
from understudy.corpus.normalise import one_spelling, record_spelling, tidy, visible
from understudy.corpus.readers import MOST_NESTED, Row, damaged, decoding_errors, without_exceptions
from understudy.corpus.schema import Schema
from understudy.corpus.sources import DataFile, Partitions

Source: TypeAlias = "DataFile | pa.Table | Sequence[Mapping[str, object]]"
"""The sources of a table: files, or one object in memory."""

_CHUNK = 1 << 20
_NOTHING = bytes(code for code in range(128) if not chr(code).isalnum() and chr(code) != "\n") + codecs.BOM_UTF8
"""Bytes without content in a file: blanks, delimiters, quotes, and marks of its encoding."""


@dataclass(frozen=True, repr=False)
class Identity:
    """Keyed hashes of a table; they reveal nothing without the key. All empty for a table without a good row.

    Attributes:
        contents: 64 hexadecimal digits each: of the texts in any order, and of each file's bytes, decompressed; of
            a table in memory its whole rows in any order.
        texts: those of ``contents`` that are of the texts.
    """

    contents: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def keyed_number(data: bytes, key: bytes, person: bytes = b"") -> int:
    """Return a keyed hash of 256 bits. The sum of such numbers identifies a multiset by :func:`multiset_digest`."""
    return int.from_bytes(hashlib.blake2b(data, key=key, digest_size=32, person=person).digest())


def multiset_digest(total: int, key: bytes, person: bytes) -> str:
    """Return 64 hexadecimal digits for a sum of keyed numbers."""
    return hashlib.blake2b((total % (1 << 256)).to_bytes(32), key=key, digest_size=32, person=person).hexdigest()


class TextsHash:
    """Computes the keyed hash of a multiset of texts in their canonical spelling, and the lowest hashes of the texts'
    cells. The hash of several tables together is that of their sums.

    A cell is a text, or a string in a JSON record or a dialogue, so that a text is recognised together with another
    column. Only its letters and digits are compared, ignoring case, and it is left out if it has no letter: unrelated
    tables share numbers and dates. ``schema`` describes the texts.
    """

    def __init__(self, key: bytes, schema: Schema) -> None:
        self._key = key
        self._spell = record_spelling if schema.record_columns else one_spelling
        self._form = schema.form
        self.total: int | None = None
        """None for no text."""
        self.cells: tuple[int, ...] = ()
        """The lowest of their hashes of 64 bits, without repetition."""

    def add(self, texts: Iterable[str]) -> None:
        found = set(self.cells)
        for text in texts:
            self.total = (self.total or 0) + keyed_number(self._spell(text).encode("utf-8"), self._key)
            for cell in self._cells_of(text):
                letters = tidy(visible(cell)).casefold().translate(_ASCII_SIGNS)
                letters = letters if letters.isascii() else _SIGNS.sub("", letters)
                if letters and not letters.isdigit():
                    found.add(keyed_number(letters.encode("utf-8", "surrogatepass"), self._key, b"cell") >> 192)
        self.cells = tuple(nsmallest(MOST_CELLS, found))

    def merge(self, other: TextsHash) -> None:
        """Add the texts of another part of the table."""
        if other.total is not None:
            self.total = (self.total or 0) + other.total
        self.cells = tuple(nsmallest(MOST_CELLS, {*self.cells, *other.cells}))

    @property
    def digests(self) -> tuple[str, ...]:
        """Return the digest that identifies a table; empty without texts."""
        return () if self.total is None else (multiset_digest(self.total, self._key, b"multiset"),)

    def _cells_of(self, text: str) -> list[str]:
        parts = self._form.parse(text) if self._form else None
        return said(text) if parts is None else [cell for part in parts for cell in said(part.content)]


_LONGEST_INTEGER = 2000
"""Bits of an integer that every Python spells in decimal digits."""
_SIGNS = re.compile(r"[\W_]+")
_ASCII_SIGNS = dict.fromkeys(code for code in range(128) if not chr(code).isalnum())  # ten times as fast
MOST_CELLS = 512
"""How many of the lowest hashes of cells are kept, to recognise a table that shares most of them."""


def identity_of(sources: Iterable[Source], key: bytes) -> tuple[str, ...]:
    """Return keyed hashes of a table's sources: of the bytes of its files, or of the whole rows in memory. One pass.

    Files without a row (only a header) are all alike and do not count. CorpusError if a file cannot be read, or two
    files have the same bytes and are not of different partitions: each record would count twice.
    """
    contents: list[str] = []
    seen: dict[str, set[Partitions]] = {}
    for source in sources:
        if isinstance(source, DataFile):
            try:
                digests = _file(source, key)
            except decoding_errors():
                raise damaged(source.shown) from None
            if any(_is_copy(source.partitions, seen.setdefault(digest, set())) for digest in digests):
                raise CorpusError(
                    "Two files of the private table have the same content, so that each record would count twice.",
                    "Name only one of them; a pattern such as 'notes*' matches both notes.csv and notes.csv.gz.",
                )
            for digest in digests:
                seen[digest].add(source.partitions)
            contents += digests
        else:
            rows = arrow.table_cells(source, source.schema.names) if hasattr(source, "schema") else enumerate(source, 1)
            contents.append(_rows_in_memory(without_exceptions(rows, "The table"), key))
    return tuple(dict.fromkeys(contents))


def _rows_in_memory(rows: Iterable[Row], key: bytes) -> str:
    """Return the digest of whole rows, in any order, since a table in memory has no bytes."""
    numbers = (keyed_number(_joined(cells).encode("utf-8", "surrogatepass"), key, b"whole row") for _, cells in rows)
    return multiset_digest(sum(numbers), key, b"table")


def _is_copy(partitions: Partitions, others: set[Partitions]) -> bool:
    """Return whether a file may repeat another one with the same bytes, and not be the rows of another partition.

    ``others`` all have the same columns: a file with different ones was refused before.
    """
    columns = [name for name, _ in partitions]
    return partitions in others or any(columns != [name for name, _ in other] for other in islice(others, 1))


def _file(file: DataFile, key: bytes) -> list[str]:
    """Return the digest of a file's bytes, if it has a row."""
    digest = hashlib.blake2b(key=key, digest_size=32, person=b"file")
    header = file.format not in ("jsonl", "parquet")  # unrelated tables may share it
    has_row = begun = False
    with file.open() as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            if has_row:
                continue
            bare = chunk.translate(None, _NOTHING)
            bare = bare if begun else bare.lstrip(b"\n")
            begun = begun or bool(bare)
            if header:
                _, ended, bare = bare.partition(b"\n")
                header = not ended
            has_row = not header and bool(bare.strip(b"\n"))
    if file.format == "parquet":
        has_row = arrow.count_rows(file) > 0  # a row counts whatever its cells hold
    return [digest.hexdigest()] if has_row else []


def _joined(cells: object, depth: int = 0) -> str:
    """Return the cells of a row, also those within cells, in one text; empty if the row cannot be read, or nests deeper
    than allowed in files."""
    if isinstance(cells, BadRow | CorpusError) or cells is None or depth > MOST_NESTED + 1:
        return ""
    if isinstance(cells, Mapping):
        cells = list(cells.values())
    if isinstance(cells, list | tuple):
        return "\t".join(_joined(cell, depth + 1) for cell in cells)
    if isinstance(cells, int) and cells.bit_length() > _LONGEST_INTEGER:
        return hex(cells)
    return str(cells)
