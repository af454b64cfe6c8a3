"""In how many records each term is that no public list has."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder
from understudy.base.lazy import pa, pc
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.privacy.selection import weight_of
from understudy.text.vocabulary.phrases import LONGEST_TEXT, PhraseFinder, mixed

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Columns = tuple[NDArray[Any], ...]

_HELD = 1 << 21
"""Terms, with their numbers, that are held before a run is written: some 200 MB."""
_MOST_WORDS = 1 << 19
"""Words that a finder has met before it is replaced; each takes some 200 bytes."""
_TEXTS, _ROWS = 512, 1 << 16
"""At a time: so few that a finder never meets more words than it has numbers for (:meth:`PhraseFinder.__missing__`)."""


@dataclass(frozen=True, repr=False)
class UnlistedTerms:
    """Weighted counts of the terms that no list has: a unit's weight is shared out over at most ``most`` of them.

    Implements :class:`~understudy.privacy.measurement.OpenQuery`.

    Guarantee:
        Unit: a record, or an owner: the set of an owner is of all kept records together, whatever batch they are in.
        Sensitivity: a unit's set is the terms of its text, each once; of more than ``most`` those with the smallest
        hash of unit and term. A unit is known by a keyed hash, of the record's text or of the owner. So a set depends
        on its own unit, the dataset's key and public facts: not on other units, on where it stands, or on what is
        frequent. With m terms it adds ``weight_of(m)`` to each: L2 norm 1 at most. (Two terms of a unit whose hashes
        were alike would count as one.) Terms of several words that the list has take part, and are left out in the end.
        Sums are exact integers: in whatever parts they are added, in memory or in files, and nothing rare is left out.

    Args:
        listed: the terms of the public list, as their words with a blank between.
        stop_words: with which no term begins or ends.
        most: terms per unit (C).
        scratch: a private folder, which all workers of an engine see: sums lie there until all are read.
    """

    listed: frozenset[str]
    stop_words: frozenset[str]
    most: int
    scratch: Path

    def sums(self, data: BoundedCorpus) -> Iterator[tuple[list[str], Integers]]:
        shutil.rmtree(self._folder, ignore_errors=True)  # of a run that was killed
        private_folder(private_folder(self.scratch) / self._folder.name)
        try:
            files = [file for part in data.map(self._files_of) for file in part]
            for table in Runs(self._folder).merged(files):
                names, sums = table["key"].to_pylist(), table["value"].to_numpy()
                new = [place for place, name in enumerate(names) if name not in self.listed]
                yield [names[place] for place in new], sums[new]
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        return self.scratch / "terms"

    @cached_property
    def _weights(self) -> Integers:
        """Of each of so many terms; of none nothing."""
        return np.array([0, *map(weight_of, range(1, self.most + 1))], dtype=np.int64)

    def _files_of(self, part: BoundedCorpus) -> list[Path]:
        """The sums of a part of the records."""
        return self._of_owners(part) if part.unit.kind == "owner" else self._of_records(part)

    def _of_records(self, part: BoundedCorpus) -> list[Path]:
        sums = _Terms(Runs(self._folder), self)
        for batch in part.batches():
            for found in _found(sums, batch, _hashed(batch, part.hash_key)):
                _, _, codes, sizes = _chosen(*found, most=self.most)
                sums.add(codes, self._weights[sizes])
        return sums.files()

    def _of_owners(self, part: BoundedCorpus) -> list[Path]:
        """The records of an owner may be anywhere in the part: terms are sorted by owner first."""
        by_owner = Runs(self._folder, "min")
        owners, sums = _Owners(by_owner, self), _Terms(Runs(self._folder), self)
        for batch in part.batches():
            for found in _found(owners, batch, np.array(batch.hashes(), dtype=np.uint64)):
                owners.add(*found)
        for units, terms in _whole(by_owner.merged(owners.files())):
            kept, sizes = _first(units, self.most)
            for start in range(0, len(kept), _ROWS):
                some = slice(start, start + _ROWS)
                sums.add(sums.finder.codes(terms.take(kept[some]).to_pylist()), self._weights[sizes[some]])
        return sums.files()


class _Held(ABC):
    """Rows of a few columns: in memory, and where they are too many in sorted files."""

    def __init__(self, runs: Runs, query: UnlistedTerms) -> None:
        self.query, self._runs = query, runs
        self._held: list[Columns] = []
        self._files: list[Path] = []
        self._forget()

    @abstractmethod
    def _reduced(self, *columns: NDArray[Any]) -> Columns:
        """In fewer rows."""

    @abstractmethod
    def _rows(self, *columns: NDArray[Any]) -> tuple[Any, Any]:
        """Keys and values, of rows as they are reduced."""

    def add(self, *columns: NDArray[Any]) -> None:
        self._held.append(columns)
        if len(self.finder) > _MOST_WORDS or sum(len(first) for first, *_ in self._held) > 2 * _HELD:
            self._write(more_than=_HELD)

    def files(self) -> list[Path]:
        if self._held:
            self._write()
        return self._files

    def _write(self, *, more_than: int = 0) -> None:
        columns = self._reduced(*map(np.concatenate, zip(*self._held, strict=True)))
        size, self._held = len(columns[0]), [columns]
        if size > more_than or len(self.finder) > _MOST_WORDS:
            some = [[each[start : start + _ROWS] for each in columns] for start in range(0, size, _ROWS)]
            if size:
                self._files.append(self._runs.write(self._rows(*each) for each in some))
            self._held = []
            if len(self.finder) > _MOST_WORDS:
                self._forget()

    def _forget(self) -> None:
        self.finder = PhraseFinder(self.query.listed, self.query.stop_words)


class _Terms(_Held):
    """Codes, and their weights."""

    def _reduced(self, *columns: NDArray[Any]) -> Columns:
        codes, weights = columns
        order = self.finder.in_order(codes)
        codes, weights = codes[order], weights[order]
        first = np.flatnonzero(np.diff(codes, prepend=-1))
        return codes[first], np.add.reduceat(weights, first) if len(first) else weights

    def _rows(self, *columns: NDArray[Any]) -> tuple[Any, Any]:
        codes, weights = columns
        return self.finder.names(codes), weights


class _Owners(_Held):
    """Units, priorities and codes."""

    def _reduced(self, *columns: NDArray[Any]) -> Columns:
        units, priorities, codes = columns
        return _chosen(units, priorities, codes, most=self.query.most)[:3]

    def _rows(self, *columns: NDArray[Any]) -> tuple[Any, Any]:
        units, priorities, codes = columns
        keys = np.stack([units.astype(np.uint64), priorities], axis=1).astype(">u8")  # sorted as they are
        buffers = [None, pa.py_buffer(keys.tobytes())]
        return pa.Array.from_buffers(pa.binary(16), len(keys), buffers), self.finder.names(codes)


def _whole(tables: Iterator[Any]) -> Iterator[tuple[Integers, Any]]:
    """Units, and the terms of each by priority as Arrow's strings; all of a unit's together."""
    left = None
    for rows in tables:
        table = rows if left is None else pa.concat_tables([left, rows])
        units = _units(table)
        whole = int(np.searchsorted(units, units[-1]))  # the last one may go on
        yield units[:whole], table["value"][:whole]
        left = table.slice(whole)
    if left is not None:
        yield _units(left), left["value"]


def _units(table: Any) -> Integers:
    return np.frombuffer(b"".join(table["key"].to_pylist()), dtype=">u8")[::2].astype(np.int64)


def _found(held: _Held, batch: BoundedBatch, seeds: Hashes) -> Iterator[tuple[Integers, Hashes, Integers]]:
    """Units of the terms in a batch, their priorities, and their codes in the finder that ``held`` has at the time."""
    said = batch.said
    for some in _at_once([min(len(text), LONGEST_TEXT) for text in said]):
        places, codes, hashes = held.finder.find(said[some])
        yield batch.units[some][places], mixed(hashes ^ seeds[some][places]), codes


def _at_once(lengths: Sequence[int]) -> Iterator[slice]:
    """Up to ``_TEXTS`` texts, of together no more characters than one may have: more words than these cannot be new."""
    start = size = 0
    for place, length in enumerate(lengths):
        if place > start and (place - start == _TEXTS or size + length > LONGEST_TEXT):
            yield slice(start, place)
            start, size = place, 0
        size += length
    if start < len(lengths):
        yield slice(start, len(lengths))


def _chosen(
    units: Integers, priorities: Hashes, codes: Integers, *, most: int
) -> tuple[Integers, Hashes, Integers, Integers]:
    """Of each unit each term once, ``most`` of least priority, in this order; and how many count of each one's unit."""
    order = np.lexsort((priorities, units))
    units, priorities, codes = units[order], priorities[order], codes[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (units[1:] != units[:-1]) | (priorities[1:] != priorities[:-1])
    units, priorities, codes = units[new], priorities[new], codes[new]
    kept, sizes = _first(units, most)
    return units[kept], priorities[kept], codes[kept], sizes


def _first(units: Integers, most: int) -> tuple[Integers, Integers]:
    """Of sorted units the places of the first ``most`` of each, and how many these are."""
    first = np.searchsorted(units, units)
    kept = np.flatnonzero(np.arange(len(units)) - first < most)
    sizes = np.searchsorted(units, units[kept], side="right") - first[kept]
    return kept, np.minimum(sizes, most)


def _hashed(batch: BoundedBatch, key: bytes) -> Hashes:
    """A keyed hash of each text."""
    digests = (hashlib.blake2b(text.encode(), key=key, digest_size=8).digest() for text in batch.said)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


_RUN_ROWS = 1 << 14
"""Of one run in memory while runs are merged."""
_TOGETHER = 64
"""Runs that are merged at once, at most."""


@dataclass(frozen=True)
class Runs:
    """Sums by name that do not fit into memory, as sorted runs: files of rows (key, value) in the order of keys; of all
    runs together each key has one value.

    Args:
        folder: private, there.
        combine: how values of a key become one: their ``sum``, or the ``min``, where all are alike.
    """

    folder: Path
    combine: Literal["sum", "min"] = "sum"

    def write(self, rows: Iterable[tuple[Any, Any]]) -> Path:
        """A run of keys and values, Arrow arrays, some at a time, each key once and in order, one or more: its file,
        which is there whole or not at all."""
        return self._written(pa.table({"key": keys, "value": values}) for keys, values in rows)

    def merged(self, files: Iterable[Path]) -> Iterator[Any]:
        """Arrow tables of ``key`` and ``value``: each key once, in order. Memory: 16,384 rows of at most 64 files."""
        files = list(files)
        while len(files) > _TOGETHER:
            some, files = files[:_TOGETHER], files[_TOGETHER:]
            files.append(self._written(self._merged(some)))
            for file in some:
                file.unlink()
        yield from self._merged(files)

    def _combined(self, table: Any) -> Any:
        table = table.group_by("key", use_threads=False).aggregate([("value", self.combine)])
        return table.select(["key", f"value_{self.combine}"]).rename_columns(["key", "value"]).sort_by("key")

    def _written(self, tables: Iterable[Any]) -> Path:
        tables = iter(tables)
        first, path = next(tables), self.folder / f"{secrets.token_hex(16)}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            atomic_file(path, mode=PRIVATE_MODE) as stream,
            pa.ipc.new_stream(stream, first.schema, options=options) as writer,
        ):
            for table in chain([first], tables):
                writer.write_table(table, max_chunksize=_RUN_ROWS)
        return path

    def _merged(self, files: Iterable[Path]) -> Iterator[Any]:
        """All rows up to the least of the last keys that are in memory; then the next rows of the run that had it."""
        with ExitStack() as stack:
            runs = [stack.enter_context(pa.ipc.open_stream(stack.enter_context(file.open("rb")))) for file in files]
            heads = [(run, batch) for run in runs if (batch := next(run, None)) is not None]
            while heads:
                limit = min(batch["key"][-1].as_py() for _, batch in heads)
                below, rest = [], []
                for run, batch in heads:
                    count = pc.sum(pc.less_equal(batch["key"], pa.scalar(limit, batch["key"].type))).as_py()
                    below.append(batch.slice(0, count))
                    left = batch.slice(count) if count < len(batch) else next(run, None)
                    if left is not None:
                        rest.append((run, left))
                heads = rest
                yield self._combined(pa.Table.from_batches(below))
