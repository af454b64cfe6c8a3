"""A table of texts that can be read again and again, a batch in memory at a time."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bad_rows import UNREADABLE, BadRow, BadRowLog, bad_row_error
from understudy.corpus.check import Record, RowCheck
from understudy.corpus.identity import Identity, identity_of
from understudy.corpus.labels import Label, canonical
from understudy.corpus.opening import OpenTable
from understudy.errors import ConfigError, CorpusError

OnBadRow = Literal["error", "skip"]
BATCH_CHARACTERS = 1 << 26
"""Of the texts in a batch, about: each may be as long as ``max_cell_bytes``."""


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Consecutive good rows of a table. Private; its ``repr`` shows nothing.

    Attributes:
        texts: the texts.
        labels: ``Int32[len(texts)]``, indices into ``Schema.labels``; all 0 without a label column.
        owners: whose record each row is (one string for each owner), or None without an owner column.
        secrets: each row's secrets, or None without a secrets column.
    """

    texts: list[str]
    labels: NDArray[np.int32]
    owners: list[str] | None = None
    secrets: list[list[str]] | None = None


class Corpus:
    """A private or public table of texts. Made by :func:`understudy.corpus.read_corpus`.

    The number of its rows is private: a Corpus has no length, and neither its ``repr`` nor :meth:`describe` shows one.
    Use it as a context manager, or call :meth:`close`, where standard input was read.
    """

    def __init__(
        self,
        table: OpenTable,
        *,
        on_bad_row: OnBadRow,
        max_cell_bytes: int,
        private_dir: Path | None,
        name: str | None = None,
    ) -> None:
        self.schema = table.schema
        self.name = name
        self._rows = table.rows
        self._format = table.format
        self._sources = table.sources
        self._encoding = table.encoding
        self._on_bad_row = on_bad_row
        self._max_cell_bytes = max_cell_bytes
        self._private_dir = private_dir
        self._remove_temporary = None
        if table.temporary is not None:
            self._remove_temporary = weakref.finalize(self, table.temporary.unlink, missing_ok=True)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The label set, in the labels' own type; empty without a label column."""
        return self.schema.labels

    def batches(self, batch_size: int = 4096) -> Iterator[Batch]:
        """Read the table from the start; every call is a new pass.

        Args:
            batch_size: the most rows per batch, at least 1. The last batch of a pass may be smaller, and one of very
                long texts; none is empty.

        Raises:
            ConfigError: ``batch_size`` is below 1.
            CorpusError: the table cannot be read on, or has a bad row and is read with ``on_bad_row="error"``.
        """
        if batch_size < 1:
            raise ConfigError(f"A batch of {batch_size} rows is not possible.", "Use a batch size of at least 1.")
        check = RowCheck(self.schema, max_cell_bytes=self._max_cell_bytes, known=self.schema.label_index)
        return self._batches(self._records(check), batch_size)

    def fingerprint(self, key: bytes) -> str:
        """A keyed hash of the good rows' texts that does not depend on their order.

        A renamed, re-ordered, re-compressed or converted copy of a table has the same fingerprint, also where its
        labels or owners are others or left out. Rows that are skipped do not count, those with a label that is not
        declared among them. To someone without the key it says nothing about the rows, their number included. One
        pass over the table.

        Args:
            key: 1 to 64 secret bytes.

        Returns:
            64 hexadecimal digits; an empty string where there is no good row.
        """
        if not 1 <= len(key) <= hashlib.blake2b.MAX_KEY_SIZE:
            raise ConfigError("The fingerprint's key is empty or too long.", "Use 1 to 64 bytes.")
        total: int | None = None
        for batch in self.batches():
            hashes = (hashlib.blake2b(text.encode("utf-8"), key=key, digest_size=32).digest() for text in batch.texts)
            total = (total or 0) + sum(int.from_bytes(each) for each in hashes)
        if total is None:
            return ""
        multiset = (total % (1 << 256)).to_bytes(32)
        return hashlib.blake2b(multiset, key=key, digest_size=32, person=b"multiset").hexdigest()

    def identity(self, key: bytes, *, lines: int) -> Identity:
        """All that the table is known by again: :meth:`fingerprint`, and what it is made of. Two passes.

        Args:
            key: 1 to 64 secret bytes.
            lines: how many hashes of lines, at most.

        Raises:
            CorpusError: as :meth:`batches` does.
        """
        texts = self.fingerprint(key)
        if not texts:  # all tables without a record are alike: they identify nothing
            return Identity()
        made_of = identity_of(self._sources, key, encoding=self._encoding, at_most=lines)
        return replace(made_of, contents=(texts, *made_of.contents))

    def describe(self) -> dict[str, object]:
        """What is public about this corpus: its format and its schema. No sizes."""
        schema = self.schema
        return {
            "format": self._format,
            "text": schema.text,
            "record_columns": list(schema.record_columns),
            "label": schema.label,
            "labels": list(schema.labels),
            "labels_declared": schema.labels_declared,
            "owner": schema.owner,
            "secrets": list(schema.secrets),
            "on_bad_row": self._on_bad_row,
        }

    def observe_labels(self) -> None:
        """Take the labels of the good rows, sorted by their canonical strings, for the label set: one pass.

        Raises:
            CorpusError: as :meth:`batches` does.
        """
        check = RowCheck(self.schema, max_cell_bytes=self._max_cell_bytes, known=None)
        observed: dict[str, Label] = {}
        for _, label, _, _ in self._records(check):
            if label is not None and not isinstance(observed.get(canonical(label)), str):
                observed[canonical(label)] = label  # where both 1 and "1" occur, the string stays
        self.schema = replace(self.schema, labels=tuple(observed[name] for name in sorted(observed)))

    def close(self) -> None:
        """Remove the temporary copy of standard input, if there is one."""
        if self._remove_temporary is not None:
            self._remove_temporary()

    def __enter__(self) -> Corpus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Corpus({', '.join(f'{name}={value!r}' for name, value in self.describe().items() if value)})"

    def _batches(self, records: Iterator[Record], batch_size: int) -> Iterator[Batch]:
        index = self.schema.label_index
        for chunk in _chunks(records, batch_size):
            texts, labels, owners, secrets = zip(*chunk, strict=True)
            yield Batch(
                texts=list(texts),
                labels=np.array([0 if label is None else index[canonical(label)] for label in labels], np.int32),
                owners=list(owners) if self.schema.owner is not None else None,
                secrets=list(secrets) if self.schema.secrets else None,
            )

    def _records(self, check: RowCheck) -> Iterator[Record]:
        """The good rows. In ``error`` mode, rows behind the first bad one are only listed in the private folder."""
        error: CorpusError | None = None
        with BadRowLog(self._private_dir) as log:
            for name, (number, cells) in self._rows():
                if isinstance(cells, CorpusError):
                    error = cells
                    log.note(name, None, UNREADABLE)
                    break
                record = cells if isinstance(cells, BadRow) else check(cells)
                if isinstance(record, BadRow):
                    log.note(name, number, record.value)
                    if self._on_bad_row == "error" and error is None:
                        error = bad_row_error(record, self.schema, kept=self._private_dir is not None)
                        if self._private_dir is None:
                            break
                elif error is None:
                    yield record
            if error is None and self._on_bad_row == "skip":
                log.write_counts()
        if error is not None:
            raise error


def _chunks(records: Iterator[Record], most: int) -> Iterator[list[Record]]:
    """Records in turn, as many together as ``most`` and the length of their texts allow."""
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
