"""Read a table of texts any number of times, one batch in memory at a time. Each row is judged by itself only."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus.bad_rows import UNREADABLE, BadCell, BadRow, BadRowLog, Noted, bad_row_error, too_many_bad_rows
from understudy.corpus.identity import Identity, Source, TextsHash, identity_of
from understudy.corpus.normalise import one_spelling
from understudy.corpus.readers import MOST_NESTED, Row
from understudy.corpus.schema import Schema
from understudy.corpus.sources import Reading, remove_spool
from understudy.corpus.transcripts import transcript
from understudy.schema.labels import Label, Places, as_type, canonical, is_missing, whole
from understudy.schema.layout import Layout

BATCH_CHARACTERS = 1 << 26
"""Characters of the texts in a batch, about: each may be as long as ``max_cell_bytes``."""
Pass = Iterator[tuple[str, Row]]
"""One pass over a table: ``(file name, row)`` of every file in order."""


@dataclass(frozen=True)
class OpenTable:
    """A table whose columns are known to exist.

    ``rows`` starts a pass; ``schema`` has its labels in their final type; ``temporary`` is a file to remove at the end.
    ``sources`` and ``encoding`` identify its content. ``layout`` reads the names of all
    its columns and its format, but no row. ``pieces`` gives the same rows in about this many parts, in order, which
    other processes can read; fewer than two if only the whole can be read.
    """

    schema: Schema
    rows: Callable[[], Pass]
    format: str
    pieces: Callable[[int], Sequence[Callable[[], Pass]]] = lambda _wanted: ()
    temporary: Path | None = None
    sources: Sequence[Source] = ()
    encoding: str = "utf-8"
    layout: Callable[[], Layout] = Layout


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Consecutive good rows of a table. Private; its ``repr`` shows nothing.

    Attributes:
        texts: the texts.
        labels: ``Int32[len(texts)]``, indices into ``Schema.labels``; all 0 without a label column.
        owners: whose record each row is (one string for each owner), or None without an owner column.
        secrets: each row's secrets, or None without a secrets column.
        cells: ``Int32[len(texts), columns]``, cells of the typed columns, or None if there are none.
    """

    texts: list[str]
    labels: NDArray[np.int32]
    owners: list[str] | None = None
    secrets: list[list[str]] | None = None
    cells: NDArray[np.int32] | None = None

    @property
    def rows(self) -> Iterator[tuple[str, int, str | None, list[str], list[int] | None]]:
        """Return each row's text, label, owner, secrets and cells."""
        none: list[None] = [None] * len(self.texts)
        secrets, cells = self.secrets or [[] for _ in none], none if self.cells is None else self.cells.tolist()
        return zip(self.texts, self.labels.tolist(), self.owners or none, secrets, cells, strict=True)


class Corpus:
    """A private or public table of texts. Made by :func:`understudy.corpus.read_corpus`.

    The number of its rows is private: a Corpus has no length, and neither its ``repr`` nor :meth:`describe` shows one.
    Use it as a context manager, or call :meth:`close`, if standard input was read.
    """

    def __init__(
        self, table: OpenTable, reading: Reading, *, name: str | None = None, noted: list[Noted] | None = None
    ) -> None:
        self.schema = table.schema
        self.name = name
        self.noted = noted
        self.skipped = 0  # by the last whole pass; private
        self.clamped = Counter[str]()  # values beyond their columns' ranges, by that pass; private
        self._table = table
        self._reading = reading
        self._remove_temporary = None
        if table.temporary is not None:
            self._remove_temporary = weakref.finalize(self, remove_spool, table.temporary)

    @property
    def labels(self) -> tuple[Label, ...]:
        """Return the label set, in the labels' own type; empty without a label column."""
        return self.schema.labels

    @property
    def layout(self) -> Layout:
        """Return the names of all columns in order, and the table's format. The layout of JSON lines and dicts has no
        names: their only order of columns is that of the rows' keys, which is private. Nor has that of a folder, a
        pattern or several files, since a single record may decide which file comes first."""
        return self._table.layout()

    def batches(self, batch_size: int = 4096) -> Iterator[Batch]:
        """Read the table from the start, at least 1 and at most ``batch_size`` rows per batch; every call is a new
        pass. CorpusError if it cannot be read further, or has a bad row and is read with ``on_bad_row="error"``.
        """
        if batch_size < 1:
            raise ConfigError(f"A batch size of {batch_size} is not possible.", "Use a batch size of at least 1.")
        check = RowCheck(self.schema, max_cell_bytes=self._reading.max_cell_bytes, known=self.schema.label_index)
        return self._batches(self._records(check), batch_size)

    def pieces(self, wanted: int) -> list[Corpus]:
        """Return the table divided into about ``wanted`` parts (files, or blocks of Parquet rows) that other processes
        can read; only the whole if it cannot be divided. Numbers of bad rows are stored only by :meth:`batches` of the
        whole."""
        found = self._table.pieces(wanted)
        if len(found) < 2:
            return [self]
        reading = replace(self._reading, private_dir=None)
        return [Corpus(OpenTable(self.schema, rows, self._table.format), reading, noted=[]) for rows in found]

    def keep_bad_rows(self, noted: Iterable[Noted], clamped: Mapping[str, int]) -> None:
        """Store the bad rows and clamped values that the pieces recorded, as one pass of the whole would."""
        with BadRowLog(self._reading.private_dir) as log:
            for each in noted:
                log.note(*each)
            if self._counts_rows:
                log.write_counts(clamped)

    @property
    def _counts_rows(self) -> bool:
        return self._reading.on_bad_row == "skip" or self.schema.clamps

    def require_usable(self, bad_share: float) -> None:
        """Raise CorpusError if ``bad_share``, the share of all rows that was skipped, exceeds the declared maximum."""
        if self._reading.on_bad_row == "skip" and bad_share > self._reading.max_bad_rows:
            raise too_many_bad_rows(kept=self._reading.private_dir)

    def fingerprint(self, key: bytes) -> str:
        """Return a keyed hash (64 hexadecimal digits) of the good rows' texts in any order; ``""`` without good rows.

        Takes one pass. A renamed, re-ordered, re-compressed or converted copy of a table has the same fingerprint, even
        if labels or owners differ or are missing, or texts differ only in spelling (:func:`one_spelling`). Skipped rows
        do not count, including those with an undeclared label. Without the key (1 to 64 bytes) it reveals nothing.
        """
        if not 1 <= len(key) <= hashlib.blake2b.MAX_KEY_SIZE:
            raise ConfigError("The fingerprint's key is empty or too long.", "Use 1 to 64 bytes.")
        return next(iter(self._texts(key).digests), "")

    def identity(self, key: bytes, *, texts: tuple[str, ...] | None = None) -> Identity:
        """Return all hashes that identify the table: of its texts (pass ``texts`` if these are known already), and of
        its files or rows in memory. Takes one or two passes.
        """
        texts = self._texts(key).digests if texts is None else texts
        if not texts:  # all tables without a record are alike: they identify nothing
            return Identity()
        return Identity((*texts, *identity_of(self._table.sources, key)), texts)

    def _texts(self, key: bytes) -> TextsHash:
        found = TextsHash(key, self.schema)
        for batch in self.batches():
            found.add(batch.texts)
        return found

    def describe(self) -> dict[str, object]:
        """Return the public facts about this corpus: its format and its schema. No sizes."""
        schema = self.schema
        return {
            "format": self._table.format,
            "text": schema.text or list(schema.form.fields) or None,
            **{"roles": [], **schema.form.settings},
            "record_columns": list(schema.record_columns),
            "label": schema.label,
            "labels": list(schema.labels),
            "labels_declared": schema.labels_declared,
            "owner": schema.owner,
            "secrets": list(schema.secrets),
            "columns": [column.to_json() for column in schema.declared],
            "on_bad_row": self._reading.on_bad_row,
        }

    def observe_labels(self) -> None:
        """Read the label set from the data in one pass: the labels of the good rows, sorted as strings."""
        check = RowCheck(self.schema, max_cell_bytes=self._reading.max_cell_bytes, known=None)
        observed: dict[str, Label] = {}
        for _, label, *_ in self._records(check):
            if label is not None and not isinstance(observed.get(canonical(label)), str):
                observed[canonical(label)] = label  # where both 1 and "1" occur, the string stays
        self.schema = replace(self.schema, labels=tuple(observed[name] for name in sorted(observed)))

    def close(self) -> None:
        """Remove the temporary copy of standard input, if there is one."""
        if self._remove_temporary is not None:
            self._remove_temporary()

    def __enter__(self) -> Corpus:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Corpus({', '.join(f'{name}={value!r}' for name, value in self.describe().items() if value)})"

    def _batches(self, records: Iterator[Record], batch_size: int) -> Iterator[Batch]:
        index = self.schema.label_index
        for chunk in _chunks(records, batch_size):
            texts, labels, owners, secrets, cells = zip(*chunk, strict=True)
            yield Batch(
                texts=list(texts),
                labels=np.array([0 if label is None else index[canonical(label)] for label in labels], np.int32),
                owners=list(owners) if self.schema.owner is not None else None,
                secrets=list(secrets) if self.schema.secrets else None,
                cells=np.array(cells, np.int32) if self.schema.typed else None,
            )

    def _records(self, check: RowCheck) -> Iterator[Record]:
        """Yield the good rows. In ``error`` mode, rows after the first bad one are only noted in the private folder."""
        error: CorpusError | None = None
        with BadRowLog(self._reading.private_dir, noted=self.noted) as log:
            for name, (number, cells) in self._table.rows():
                if isinstance(cells, CorpusError):
                    error = cells
                    log.note(name, None, UNREADABLE)
                    break
                record = cells if isinstance(cells, BadRow) else check(cells)
                if isinstance(record, BadRow | BadCell):
                    log.note(name, number, record.value)
                    if self._reading.on_bad_row == "error" and error is None:
                        error = bad_row_error(record, self.schema, kept=self._reading.private_dir)
                        if self._reading.private_dir is None:
                            break
                elif error is None:
                    yield record
            if error is None and self._counts_rows:
                self.clamped = check.clamped
                self.skipped = log.write_counts(self.clamped)
        if error is not None:
            raise error


def _chunks(records: Iterator[Record], most: int) -> Iterator[list[Record]]:
    """Yield consecutive records, as many together as ``most`` and the length of their texts allow."""
    chunk: list[Record] = []
    characters = 0
    for record in records:
        chunk.append(record)
        characters += len(record[0])
        if len(chunk) == most or characters >= BATCH_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


Record = tuple[str, Label | None, str | None, list[str] | None, tuple[int, ...]]
"""Text, label, owner, secrets and cells of the typed columns of a good row."""


class RowCheck:
    """Turns the cells of ``schema.columns`` into a Record, or reports why the row is bad.

    ``known`` contains the labels; None accepts every label. ``clamped`` counts the values of good rows
    that are beyond their column's range and count as its end.
    """

    def __init__(self, schema: Schema, *, max_cell_bytes: int, known: Places | None) -> None:
        self._schema = schema
        self._max_cell_bytes = max_cell_bytes
        self._known = known
        self.clamped = Counter[str]()
        position = schema.columns.index
        self._texts = [position(name) for name in schema.text_columns]
        self._record = [(name, position(name)) for name in schema.record_columns]
        self._label = position(schema.label) if schema.label is not None and not schema.crossed else None
        self._crossed = [(column, position(column.name)) for column in schema.crossed]
        self._owner = position(schema.owner) if schema.owner is not None else None
        self._secrets = [position(name) for name in schema.secrets]
        self._typed = [
            (column, None if column.name in schema.form.told else position(column.name)) for column in schema.typed
        ]
        self._tells = any(place is None for _, place in self._typed)

    def __call__(self, cells: Sequence[object]) -> Record | BadRow | BadCell:
        text = self._text(cells)
        if isinstance(text, BadRow):
            return text
        if is_missing(text):
            return BadRow.EMPTY_TEXT
        if not isinstance(text, str):
            return BadRow.TEXT_TYPE
        problem = self._string_problem(text)
        if problem is not None:
            return problem
        beyond: list[str] = []
        label = self._cross(cells, beyond) if self._crossed else self._read_label(cells)
        if isinstance(label, BadRow | BadCell):
            return label
        owner = None if self._owner is None else self._read_owner(cells[self._owner])
        if isinstance(owner, BadRow):
            return owner
        secrets = None if not self._secrets else self._read_secrets([cells[i] for i in self._secrets])
        if isinstance(secrets, BadRow):
            return secrets
        read = []
        told = self._schema.form.tell(text) if self._tells else {}
        for column, place in self._typed:
            cell, clamped = column.read(told.get(column.name) if place is None else cells[place])
            if cell is None:
                return BadCell(column)
            read.append(cell)
            beyond += [column.name] * clamped
        self.clamped.update(beyond)
        return text, label, owner, secrets, tuple(read)

    def _text(self, cells: Sequence[object]) -> object:
        if self._schema.form:
            return transcript(self._schema.form, [cells[place] for place in self._texts])
        return _record_text(cells, self._record) if self._record else cells[self._texts[0]]

    def _string_problem(self, text: str) -> BadRow | None:
        size = len(text)
        if not text.isascii():
            try:
                size = len(text.encode("utf-8"))
            except UnicodeEncodeError:  # a lone surrogate: of a byte that could not be decoded, or a JSON escape
                return BadRow.ENCODING
        return BadRow.LONG_CELL if size > self._max_cell_bytes else None

    def _read_label(self, cells: Sequence[object]) -> Label | BadRow | None:
        if self._label is None:
            return None
        cell = cells[self._label]
        if is_missing(cell):
            return BadRow.NULL_LABEL
        label = as_type(cell, self._schema.label_type)
        if label is not None and self._known is not None:
            place = self._known.of(label)
            label = None if place is None else self._schema.labels[place]
        if label is None:
            return BadRow.UNKNOWN_LABEL
        return (isinstance(label, str) and self._string_problem(label)) or label

    def _cross(self, cells: Sequence[object], beyond: list[str]) -> Label | BadRow | BadCell:
        index = 0
        for column, place in self._crossed:
            cell, clamped = column.read(cells[place])
            if cell is None:
                return BadCell(column)
            beyond += [column.name] * clamped
            if cell == column.missing:
                return BadRow.NULL_LABEL
            index = index * column.missing + cell
        return self._schema.labels[index]

    def _read_owner(self, cell: object) -> str | BadRow:
        owner = None if is_missing(cell) else as_type(cell, None)
        if owner is None:
            return BadRow.NULL_OWNER
        if isinstance(owner, float) and abs(owner) >= 2**53:
            return BadRow.INEXACT_OWNER
        owner = canonical(owner)
        # 7.0 is how 7 comes out of a column in which another row has no owner: so both are 7, and 7.00 is
        return self._string_problem(owner) or re.sub(r"^(-?[0-9]+)\.0+$", r"\1", one_spelling(owner))

    def _read_secrets(self, cells: Sequence[object]) -> list[str] | BadRow:
        secrets: list[str] = []
        for cell in cells:
            listed = cell.split(";") if isinstance(cell, str) else [] if cell is None else cell
            if not isinstance(listed, list):
                return BadRow.SECRETS_TYPE
            for secret in listed:
                if not isinstance(secret, str):
                    return BadRow.SECRETS_TYPE
                problem = self._string_problem(secret)
                if problem is not None:
                    return problem
                if secret.strip():
                    secrets.append(secret.strip())
        return secrets


def _record_text(cells: Sequence[object], positions: Sequence[tuple[str, int]]) -> str | BadRow:
    """Return several cells as one JSON object; a missing number is null. If all are missing, the text is empty."""
    try:
        record = {name: _plain(cells[i]) for name, i in positions}
        if all(is_missing(value) for value in record.values()):
            return BadRow.EMPTY_TEXT
        return json.dumps(record, ensure_ascii=False, allow_nan=False, default=_spell)
    except (TypeError, ValueError):
        return BadRow.VALUE_TYPE


def _plain(value: object, depth: int = 0) -> object:
    """Write NaN and NaT as null, and 3.0 as 3: a null in another row turns a column's integers into decimals.

    Nesting deeper than ``MOST_NESTED`` is a ValueError: Python's limit depends on the caller.
    """
    if isinstance(value, (dict, list, tuple)):
        if depth == MOST_NESTED:
            raise ValueError
        if isinstance(value, dict):
            return {key: _plain(each, depth + 1) for key, each in value.items()}
        return [_plain(each, depth + 1) for each in value]
    if not isinstance(value, str) and is_missing(value):
        return None
    return whole(value) if isinstance(value, float) else value


def _spell(value: object) -> str:
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal)):
        return str(value)
    raise TypeError
