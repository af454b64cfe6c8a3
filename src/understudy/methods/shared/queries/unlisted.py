"""In how many records each term is that no public list has."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.files import private_folder
from understudy.base.runs import Runs
from understudy.corpus.bounding import BoundedCorpus
from understudy.privacy.selection import weight_of
from understudy.text.vocabulary.phrases import Found, PhraseFinder, Unlisted, in_pieces, mixed

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_FOLDER = "terms"
_HELD = 1 << 21
"""Terms, with their numbers, that are held in memory before a run is written."""
_MOST_WORDS = 1 << 19
"""Words that a finder has met before it is replaced; each takes some 200 bytes."""
_WRITTEN = 1 << 16  # at a time


@dataclass(frozen=True, repr=False)
class UnlistedTerms:
    """Weighted counts of the terms that no list has: a unit's weight is shared out over at most ``most`` of them.

    Implements :class:`~understudy.privacy.measurement.OpenQuery`.

    Guarantee:
        Unit: a record, or an owner: the set of an owner is of all kept records together, whatever batch they are in.
        Sensitivity: a unit's set is the terms of its text that ``unlisted`` lets through, each once; of more than
        ``most`` those with the smallest hash of unit and term. A unit is known by a keyed hash, of the record's text or
        of the owner. So a set depends on its own unit, the dataset's key and public facts: not on other units, on where
        it stands, or on what is frequent. With m terms it adds ``weight_of(m)`` to each: L2 norm 1 at most. (Two terms
        of a unit whose hashes were alike would count as one, so that m is never exceeded.)
        Sums are exact integers: in whatever parts they are added, in memory or in files, and nothing is left out.

    Memory: some 200 MB for each worker, whatever the corpus.

    Args:
        unlisted: what is a term.
        most: terms per unit (C).
        scratch: a private folder, which all workers of an engine see: sums lie there until all are read.
    """

    unlisted: Unlisted
    most: int
    scratch: Path

    def sums(self, data: BoundedCorpus) -> Iterator[tuple[list[str], Integers]]:
        shutil.rmtree(self._folder, ignore_errors=True)  # of a run that was killed
        private_folder(private_folder(self.scratch) / _FOLDER)
        try:
            files = [file for part in data.map(self._files_of) for file in part]
            for table in Runs(self._folder).merged(files):
                yield table["key"].to_pylist(), table["value"].to_numpy()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        return self.scratch / _FOLDER

    @cached_property
    def _weights(self) -> Integers:
        """Of each of so many terms; of none nothing."""
        return np.array([0, *map(weight_of, range(1, self.most + 1))], dtype=np.int64)

    def _files_of(self, part: BoundedCorpus) -> list[Path]:
        """The sums of a part of the records."""
        return self._of_owners(part) if part.unit.kind == "owner" else self._of_records(part)

    def _of_records(self, part: BoundedCorpus) -> list[Path]:
        sums = _Sums(Runs(self._folder), self.unlisted)
        for batch in part.batches():
            for piece in in_pieces(batch.said):
                found = sums.finder.find(batch.said[piece])
                priorities = _priorities(found, _keyed(batch.said[piece], part.hash_key))
                chosen, sizes = _chosen(found.place, priorities, self.most)
                sums.add(found.code[chosen], self._weights[sizes])
        return sums.files()

    def _of_owners(self, part: BoundedCorpus) -> list[Path]:
        """The records of an owner may be anywhere in the part: terms are sorted by owner first."""
        owners = _Owners(Runs(self._folder, "min"), self.unlisted, self.most)
        for batch in part.batches():
            seeds = np.array(batch.hashes(), dtype=np.uint64)
            for piece in in_pieces(batch.said):
                found = owners.finder.find(batch.said[piece])
                owners.add(batch.units[piece][found.place], _priorities(found, seeds[piece]), found.code)
        sums = _Sums(Runs(self._folder), self.unlisted)
        for units, terms in owners.whole():
            kept, sizes = _first(units, self.most)
            sums.add(sums.finder.codes(terms.take(kept).to_pylist()), self._weights[sizes])
        return sums.files()


class _Sums:
    """Weights by term."""

    def __init__(self, runs: Runs, unlisted: Unlisted) -> None:
        self.finder = PhraseFinder(unlisted)
        self._runs, self._unlisted = runs, unlisted
        self._files: list[Path] = []
        self._codes, self._weights = [_none()], [_none()]

    def add(self, codes: Integers, weights: Integers) -> None:
        self._codes.append(codes)
        self._weights.append(weights)
        full = len(self.finder) > _MOST_WORDS
        if full or sum(map(len, self._codes)) > 2 * _HELD:
            self._add_up()
            if full or len(self._codes[0]) > _HELD:
                self._write()

    def files(self) -> list[Path]:
        """All that was added."""
        self._add_up()
        if len(self._codes[0]):
            self._write()
        return self._files

    def _add_up(self) -> None:
        codes, weights = np.concatenate(self._codes), np.concatenate(self._weights)
        order = np.argsort(codes)
        codes, weights = codes[order], weights[order]
        first = np.flatnonzero(np.diff(codes, prepend=-1))
        self._codes = [codes[first]]
        self._weights = [np.add.reduceat(weights, first) if len(first) else _none()]

    def _write(self) -> None:
        order = self.finder.in_order(self._codes[0])
        codes, weights = self._codes[0][order], self._weights[0][order]
        slices = (slice(start, start + _WRITTEN) for start in range(0, len(codes), _WRITTEN))
        self._files.append(self._runs.write((self.finder.names(codes[each]), weights[each]) for each in slices))
        self._codes, self._weights = [_none()], [_none()]
        if len(self.finder) > _MOST_WORDS:
            self.finder = PhraseFinder(self._unlisted)


class _Owners:
    """Terms by owner: of each owner those of least priority."""

    def __init__(self, runs: Runs, unlisted: Unlisted, most: int) -> None:
        self.finder = PhraseFinder(unlisted)
        self._runs, self._unlisted, self._most = runs, unlisted, most
        self._files: list[Path] = []
        self._held: list[tuple[Integers, Hashes, Integers]] = []

    def add(self, units: Integers, priorities: Hashes, codes: Integers) -> None:
        self._held.append((units, priorities, codes))
        if sum(len(each[0]) for each in self._held) > 2 * _HELD or len(self.finder) > _MOST_WORDS:
            self._write()

    def whole(self) -> Iterator[tuple[Integers, Any]]:
        """Units, and the terms of each as an Arrow array, by priority, each once; all of a unit's together."""
        import pyarrow as pa

        if self._held:
            self._write()
        left = None
        for rows in self._runs.merged(self._files):
            table = rows if left is None else pa.concat_tables([left, rows])
            units = _units(table)
            whole = int(np.searchsorted(units, units[-1]))  # the last one may go on
            yield units[:whole], table["value"][:whole]
            left = table.slice(whole)
        if left is not None:
            yield _units(left), left["value"]

    def _write(self) -> None:
        units, priorities, codes = (np.concatenate(each) for each in zip(*self._held, strict=True))
        chosen, _ = _chosen(units, priorities, self._most)
        slices = (chosen[start : start + _WRITTEN] for start in range(0, len(chosen), _WRITTEN))
        if len(chosen):
            rows = ((_keys(units[each], priorities[each]), self.finder.names(codes[each])) for each in slices)
            self._files.append(self._runs.write(rows))
        self._held = []
        if len(self.finder) > _MOST_WORDS:
            self.finder = PhraseFinder(self._unlisted)


def _chosen(units: Integers, priorities: Hashes, most: int) -> tuple[Integers, Integers]:
    """The places of the terms that count, for each unit each term once and ``most`` of least priority, in this order;
    and how many count of each one's unit."""
    order = np.lexsort((priorities, units))
    units, priorities = units[order], priorities[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (units[1:] != units[:-1]) | (priorities[1:] != priorities[:-1])
    kept, sizes = _first(units[new], most)
    return order[new][kept], sizes


def _first(units: Integers, most: int) -> tuple[Integers, Integers]:
    """Of sorted units the places of the first ``most`` of each, and how many these are."""
    first = np.searchsorted(units, units)
    kept = np.flatnonzero(np.arange(len(units)) - first < most)
    sizes = np.searchsorted(units, units[kept], side="right") - first[kept]
    return kept, np.minimum(sizes, most)


def _keyed(texts: Sequence[str], key: bytes) -> Hashes:
    digests = [hashlib.blake2b(text.encode(), key=key, digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _priorities(found: Found, seeds: Hashes) -> Hashes:
    return mixed(found.hash ^ seeds[found.place])


def _keys(units: Integers, priorities: Hashes) -> Any:
    """As Arrow's binary strings, which sort as units and priorities do."""
    import pyarrow as pa

    keys = np.stack([units.astype(np.uint64), priorities], axis=1).astype(">u8")
    return pa.Array.from_buffers(pa.binary(16), len(keys), [None, pa.py_buffer(keys.tobytes())])


def _units(table: Any) -> Integers:
    keys = b"".join(table["key"].to_pylist())
    return np.frombuffer(keys, dtype=">u8")[::2].astype(np.int64)


def _none() -> Integers:
    return np.zeros(0, dtype=np.int64)
