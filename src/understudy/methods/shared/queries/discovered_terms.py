"""The number of records with each term that is in no public list."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import bug
from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder
from understudy.base.lazy import pa, pc
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.methods.shared.vocabulary import DISCOVERED
from understudy.privacy.selection import weight_of
from understudy.text.vocabulary.terms import load_stop_words
from understudy.text.vocabulary.words import split_words

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Columns = tuple[NDArray[Any], ...]

LONGEST_PHRASE = 3
_HELD = 1 << 21
"""Terms, with their numbers, that are kept in memory before a run is written: some 200 MB."""
_MOST_WORDS = 1 << 19
"""Words that a finder may have met before it is replaced; each takes some 200 bytes."""
_TEXTS, _ROWS = 512, 1 << 16
"""Texts at a time: so few that a finder never meets more words than it has numbers for
(:meth:`PhraseFinder.__missing__`)."""


@dataclass(frozen=True, repr=False)
class UnlistedTerms:
    """Weighted counts of terms that are in no list: a privacy unit's weight is divided among at most ``most`` terms.

    Implements :class:`~understudy.privacy.measurement.OpenQuery`.

    Guarantee:
        Unit: a record, or an owner with all kept records together, whatever batches they are in.
        Sensitivity: a unit counts for the distinct terms of its text; if there are more than ``most``, for those with
        the smallest hash of unit and term. The hash of a unit is keyed, of the record's text or of the owner. So its
        terms depend on the unit, the dataset's key and public facts: not on other units, its position, or frequencies.
        With m terms it adds ``weight_of(m)`` to each: L2 norm 1 at most. (Two terms of a unit with equal hashes would
        count as one.) Listed terms of several words are among a unit's terms, and are removed from the result. Sums are
        exact integers, however records are divided and whether or not files are used; no rare term is dropped.

    Args:
        listed: the terms of the public list, as their words with a blank between.
        stop_words: no term begins or ends with one.
        most: terms per unit (C).
        scratch: a private folder that all workers of an engine can read; it contains the sums until all are read.
        longest: words of the longest terms.
    """

    listed: frozenset[str]
    stop_words: frozenset[str]
    most: int
    scratch: Path
    longest: int = LONGEST_PHRASE

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
        """Return the weight of each term of a unit, indexed by its number of terms; 0 without terms."""
        return np.array([0, *map(weight_of, range(1, self.most + 1))], dtype=np.int64)

    def _files_of(self, part: BoundedCorpus) -> list[Path]:
        """Sum over a part of the records; return the sorted files of the sums."""
        return self._of_owners(part) if part.unit.kind == "owner" else self._of_records(part)

    def _of_records(self, part: BoundedCorpus) -> list[Path]:
        sums = _Terms(Runs(self._folder), self)
        for batch in part.batches():
            for found in _found(sums, batch, _hashed(batch, part.hash_key)):
                _, _, codes, sizes = _chosen(*found, most=self.most)
                sums.add(codes, self._weights[sizes])
        return sums.files()

    def _of_owners(self, part: BoundedCorpus) -> list[Path]:
        """Sort terms by owner first, since the records of an owner may be anywhere in the part."""
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


def find_terms(
    listed: Iterable[str],
    stop_words: str | None,
    corpus: BoundedCorpus,
    plan: Any,
    tools: Any,
    *,
    most: int,
    longest: int = LONGEST_PHRASE,
) -> tuple[list[str], NDArray[np.float64]]:
    """Release terms that are not ``listed``, with their noisy weighted counts, under the charge ``discovered-terms``.
    Returns at most ``most`` terms, those with the highest counts, in order of name."""
    words, stopped = frozenset(" ".join(split_words(term)) for term in listed), load_stop_words(stop_words)
    query = UnlistedTerms(words, stopped, plan.mechanism(DISCOVERED).most, tools.scratch, longest)
    found = tools.measure(DISCOVERED, query, corpus)
    joined = np.sort(np.argsort(-found.value, kind="stable")[:most])
    return [found.names[place] for place in joined.tolist()], found.value[joined]


class _Held(ABC):
    """Rows of a few columns: in memory, and in sorted files if there are too many."""

    def __init__(self, runs: Runs, query: UnlistedTerms) -> None:
        self.query, self._runs = query, runs
        self._held: list[Columns] = []
        self._files: list[Path] = []
        self._forget()

    @abstractmethod
    def _reduced(self, *columns: NDArray[Any]) -> Columns:
        """Reduce rows to fewer ones."""

    @abstractmethod
    def _rows(self, *columns: NDArray[Any]) -> tuple[Any, Any]:
        """Return keys and values of reduced rows."""

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
        self.finder = PhraseFinder(self.query.listed, self.query.stop_words, self.query.longest)


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
        whole = int(np.searchsorted(units, units[-1]))  # the last one may continue
        yield units[:whole], table["value"][:whole]
        left = table.slice(whole)
    if left is not None:
        yield _units(left), left["value"]


def _units(table: Any) -> Integers:
    return np.frombuffer(b"".join(table["key"].to_pylist()), dtype=">u8")[::2].astype(np.int64)


def _found(held: _Held, batch: BoundedBatch, seeds: Hashes) -> Iterator[tuple[Integers, Hashes, Integers]]:
    """Return units of the terms in a batch, their priorities, and their codes in the current finder of ``held``."""
    said = batch.said
    for some in _at_once([min(len(text), LONGEST_TEXT) for text in said]):
        places, codes, hashes = held.finder.find(said[some])
        yield batch.units[some][places], mixed(hashes ^ seeds[some][places]), codes


def _at_once(lengths: Sequence[int]) -> Iterator[slice]:
    """Yield up to ``_TEXTS`` texts, together with at most as many characters as one may have, which bounds new
    words."""
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
    """Return, for each unit, each term once, the ``most`` of lowest priority, in order; and how many count."""
    order = np.lexsort((priorities, units))
    units, priorities, codes = units[order], priorities[order], codes[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (units[1:] != units[:-1]) | (priorities[1:] != priorities[:-1])
    units, priorities, codes = units[new], priorities[new], codes[new]
    kept, sizes = _first(units, most)
    return units[kept], priorities[kept], codes[kept], sizes


def _first(units: Integers, most: int) -> tuple[Integers, Integers]:
    """Return the positions of the first ``most`` of each of sorted units, and how many there are."""
    first = np.searchsorted(units, units)
    kept = np.flatnonzero(np.arange(len(units)) - first < most)
    sizes = np.searchsorted(units, units[kept], side="right") - first[kept]
    return kept, np.minimum(sizes, most)


def _hashed(batch: BoundedBatch, key: bytes) -> Hashes:
    """Return a keyed hash of each text."""
    digests = (hashlib.blake2b(text.encode(), key=key, digest_size=8).digest() for text in batch.said)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


_RUN_ROWS = 1 << 14
"""Number of rows of one run in memory while runs are merged."""
_TOGETHER = 64
"""Largest number of runs that are merged at once."""


@dataclass(frozen=True)
class Runs:
    """Sums by name that do not fit into memory, stored as sorted files of rows (key, value).

    Args:
        folder: private, there.
        combine: how values of a key become one: their ``sum``, or the ``min`` if all are equal.
    """

    folder: Path
    combine: Literal["sum", "min"] = "sum"

    def write(self, rows: Iterable[tuple[Any, Any]]) -> Path:
        """Write a sorted file of keys and values (Arrow arrays), given in blocks; keys are unique and in order. The
        file is written whole or not at all."""
        return self._written(pa.table({"key": keys, "value": values}) for keys, values in rows)

    def merged(self, files: Iterable[Path]) -> Iterator[Any]:
        """Yield Arrow tables ``key``, ``value``: each key once, in order. Memory: 16,384 rows of at most 64 files."""
        files = list(files)
        while len(files) > _TOGETHER:
            some, files = files[:_TOGETHER], files[_TOGETHER:]
            files.append(self._written(self._merged(some)))
            for file in some:
                file.unlink()
        yield from self._merged(files)

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
        """Yield all rows up to the least of the last keys in memory; then read more rows of that key's run."""
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
                table = pa.Table.from_batches(below).group_by("key", use_threads=False)
                table = table.aggregate([("value", self.combine)]).select(["key", f"value_{self.combine}"])
                yield table.rename_columns(["key", "value"]).sort_by("key")


LONGEST_WORD = 30
"""Bytes in UTF-8; no phrase contains a longer word."""
LONGEST_TEXT = 1 << 20
"""Characters of a text that are read."""
_BREAK = re.compile(r"[\n\r\t\v\f()\[\]{}<>|\"“”„«»…–—。！？；：，、]+|[.,:;!?-]+(?!\w)")
_BROKEN = " xphrasexendx "
"""Replaces such marks: a word that no phrase contains."""
_CONTRACTED = frozenset("aren couldn didn doesn hadn hasn haven isn mustn shouldn wasn weren wouldn".split())  # noqa: SIM905
"""Parts of English words before an apostrophe: they mean nothing, and are in no list of stop words."""
_BITS = 21
_MASK = (1 << _BITS) - 1
_BESIDE_OTHERS, _ALONE = 1, 2


class PhraseFinder(dict[str, int]):
    """Finds consecutive words of one sentence that are not stop words or lone letters and have no digits.

    Line breaks, brackets, quotes and dashes separate phrases, and so do other marks unless a letter or digit follows at
    once. Numbers and words with digits, which may identify people, are never found: only a list can name them. The
    finder numbers words as they come; the code of a phrase combines the numbers of its words, and the number 0 ends a
    phrase. After 2^21 words two phrases would get one code: callers replace a finder long before, and it raises an
    error instead.

    Args:
        listed: words that are not phrases by themselves.
        stop_words: as :func:`~understudy.text.vocabulary.terms.load_stop_words` reads them.
    """

    def __init__(self, listed: frozenset[str], stop_words: frozenset[str], longest: int = LONGEST_PHRASE) -> None:
        super().__init__({"": 0, _BROKEN.strip(): 0})
        self._longest = longest
        self._listed, self._says_nothing = listed, stop_words | _CONTRACTED
        self._words, self._kinds, self._hashes = [""], array("b", [0]), array("Q", [0])

    def __repr__(self) -> str:
        return "<PhraseFinder>"  # without the private words that it met

    def __missing__(self, word: str) -> int:
        if len(word.encode()) > LONGEST_WORD or any(map(str.isdigit, word)):
            return 0
        kind = 0
        if word not in self._says_nothing and not (len(word) == 1 and "a" <= word <= "z"):
            alone = word not in self._listed and (len(word) > 1 or not word.isascii())
            kind = _BESIDE_OTHERS | (_ALONE if alone else 0)
        number = len(self._words)
        if number > _MASK:
            raise bug("A PhraseFinder met 2^21 words; its caller must replace it earlier.")
        self[word] = number
        self._words.append(word)
        self._kinds.append(kind)
        self._hashes.append(int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()))
        return number

    def find(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """Return every occurrence of a phrase: the index of its text, its code, and the hash of its words."""
        words: list[str] = []
        lengths = []
        for text in texts:
            said = split_words(_BREAK.sub(_BROKEN, text[:LONGEST_TEXT]))
            words += said
            words.append("")
            lengths.append(len(said) + 1)
        numbers = np.fromiter(map(self.__getitem__, words), dtype=np.int64, count=len(words))
        kinds = np.frombuffer(self._kinds, dtype=np.int8)[numbers]
        hashes = np.frombuffer(self._hashes, dtype=np.uint64)[numbers]
        places, found = np.repeat(np.arange(len(texts)), lengths), []
        for size in range(1, self._longest + 1):
            fits = kinds & (_ALONE if size == 1 else _BESIDE_OTHERS)
            for ahead in range(1, size):
                fits = fits[:-1] & kinds[ahead:]
            starts = np.flatnonzero(fits)
            code, hashed = numbers[starts], hashes[starts]
            for ahead in range(1, size):
                code |= numbers[starts + ahead] << (_BITS * ahead)
                hashed = mixed(hashed * np.uint64(3) + hashes[starts + ahead])
            found.append((places[starts], code, hashed))
        place, code, hashed = (np.concatenate(each) for each in zip(*found, strict=True))
        return place, code, hashed

    def codes(self, names: Sequence[str]) -> NDArray[np.int64]:
        words = (map(self.__getitem__, name.split(" ")) for name in names)
        found = (sum(number << (_BITS * ahead) for ahead, number in enumerate(each)) for each in words)
        return np.fromiter(found, dtype=np.int64, count=len(names))

    def in_order(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the permutation that sorts codes by name, word by word: ``Int64[n]``."""
        ranks, sortable = np.zeros(len(self._words), dtype=np.int64), np.zeros_like(codes)
        ranks[sorted(range(len(ranks)), key=self._words.__getitem__)] = np.arange(len(ranks))
        for ahead in range(LONGEST_PHRASE):
            sortable = sortable << _BITS | ranks[(codes >> (_BITS * ahead)) & _MASK]
        return np.argsort(sortable)

    def names(self, codes: NDArray[np.int64]) -> Any:
        """Return the phrases of these codes, as an Arrow array of strings."""
        words = pa.array([None, *self._words[1:]], pa.string())
        parts = [words.take(pa.array((codes >> (_BITS * ahead)) & _MASK)) for ahead in range(LONGEST_PHRASE)]
        return pc.binary_join_element_wise(*parts, " ", null_handling="skip")


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash 64-bit integers, one to one: the last steps of SplitMix64 (Steele, Lea and Flood 2014)."""
    found = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(found ^ (found >> np.uint64(31)))
