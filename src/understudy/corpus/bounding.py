"""Bound contributions: choose which records of a unit are used, and their weights; and divide a private table into
parts for an engine, in order or shuffled so that all records of an owner are in one part."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder
from understudy.base.lazy import pa
from understudy.base.untrusted import leaves, writable
from understudy.corpus.corpus import Batch, Corpus
from understudy.privacy.measurement import Engine
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit
from understudy.schema.transcript import PLAIN, TextForm

R = TypeVar("R")

_DIGEST_BYTES = 16


class _Table(Protocol):
    def batches(self) -> Iterator[Batch]: ...


@dataclass(frozen=True, repr=False)
class BoundedBatch:
    """The records of a batch that are used, after limiting how many each unit (owner) contributes.

    ``shares[i]`` is how many records of record i's unit are used in all batches: it weighs 1/shares[i].

    ``units[i]`` identifies the unit: numbers from 0, in order of first occurrence, the same for all records of an owner
    in all batches, and different for other owners.
    ``hashes()`` gives a hash of each unit, which assigns units to disjoint groups. Private; its ``repr`` shows nothing.
    """

    texts: Sequence[str]
    labels: NDArray[np.int32]
    shares: NDArray[np.int64]
    units: NDArray[np.int64]
    hashes: Callable[[], Sequence[int]] = tuple
    """A keyed hash of each record's unit, 64 bits, the same over runs on the dataset: of the owner; or of the record's
    label, cells and text, and of how many equal records came before (else a thousand copies of one text would all be in
    one group). Adding a record changes no hash: there is one more of the equal records. Call it for all batches in
    order, or for none."""
    json_records: bool = False
    """Whether the texts are JSON records."""
    cells: NDArray[np.int32] | None = None
    """``Int32[n, columns]``: cells of the typed columns; None if there are none."""
    form: TextForm = PLAIN
    """The parts that a text has, if any."""

    def only(self, included: NDArray[np.bool_]) -> BoundedBatch:
        """Return the records for which ``included`` (``Bool[n]``) is True. The result has no hashes, which need all
        batches."""
        texts = [text for text, keep in zip(self.texts, included.tolist(), strict=True) if keep]
        cells = None if self.cells is None else self.cells[included]
        labels, shares, units = self.labels[included], self.shares[included], self.units[included]
        return replace(self, texts=texts, labels=labels, shares=shares, units=units, cells=cells, hashes=tuple)

    def with_those_of(self, others: Sequence[BoundedBatch]) -> BoundedBatch:
        """Return one batch with the records of this batch and of ``others``, all of the same corpus. It has no
        hashes."""
        every = [self, *others]
        cells = [each.cells for each in every if each.cells is not None]
        labels, shares, units = (
            np.concatenate([getattr(each, name) for each in every]) for name in ("labels", "shares", "units")
        )
        return replace(
            self,
            texts=[text for each in every for text in each.texts],
            labels=labels,
            shares=shares,
            units=units,
            cells=np.concatenate(cells) if cells else None,
            hashes=tuple,
        )

    @property
    def weights(self) -> NDArray[np.int64]:
        """Return the weight of each record, in steps of 1/COUNT_GRID. The weights of a unit's records add up to at most
        1."""
        weights: NDArray[np.int64] = COUNT_GRID // self.shares
        return weights

    @property
    def said(self) -> Sequence[str]:
        """Return each record's content, in which words are counted: its text; for a JSON record the strings and numbers
        of its values, one per line; for a text with parts their contents. Keys, names of parts and JSON's words are
        not about the record, and would use up its contribution."""
        return said_of(self.texts, self.form, json_records=self.json_records)


@dataclass(frozen=True, repr=False)
class BoundedCorpus:
    """A re-iterable corpus in which each unit contributes at most ``unit.max_records`` records.

    For record units every record is used and weighs 1. The same holds for secret units, whose cap is declared and is
    checked when the secrets are found. For owner units the records with the k smallest keyed hashes of their contents
    are used and averaged, jointly over labels, so that an owner weighs at most 1 in total.
    An owner's identical records count once. The choice depends only on the owner's records and on the dataset's
    persisted ``hash_key``, never on row numbers. Memory: a batch, and O(owners * k) hashes for owner units.
    Its ``repr`` shows nothing, in particular not the key.

    Args:
        hash_key: at most 64 bytes, persisted with the dataset.
        json_records: whether the texts are JSON records, made of several columns.
        engine: processes its parts; None: this process, as one part.
        scratch: a private folder that all workers of the engine see, for the shuffled records of owners.
        part: its name if it is a part of the table; "" for the whole.
        label: the labels of texts, ``Int32[n]``, if they are computed from each text and from public values only; None:
            those of the table. Which records of an owner are used does not depend on it.
    """

    corpus: _Table
    unit: Unit
    hash_key: bytes
    json_records: bool = False
    engine: Engine | None = None
    scratch: Path = Path()
    part: str = ""
    form: TextForm = PLAIN
    label: Callable[[Sequence[str]], NDArray[np.int32]] | None = None

    def map(self, function: Callable[[BoundedCorpus], R]) -> Iterator[R]:
        """Call ``function`` with each part of the records on the engine; yield the results in the parts' order. Parts
        are disjoint and contain all records; an owner's records are in one part. Without an engine there is one part.
        """
        if self.engine is None:
            yield function(self)
        else:
            assert isinstance(self.corpus, Corpus), "only whole tables can be divided"
            found = self._owners if self.unit.kind == "owner" else parts_of(self.corpus, self.engine)
            parts = (replace(part, name=f"{self._division}-{part.name}") for part in found)
            alike = replace(self, corpus=Rows(()), engine=None, scratch=Path())
            yield from self.engine.map(partial(_of_part, alike, function), parts)

    @cached_property
    def _division(self) -> str:
        """Return a random prefix of this process: a killed run may have left parts of other rows."""
        return secrets.token_hex(8)

    @cached_property
    def _owners(self) -> list[Part]:
        assert isinstance(self.corpus, Corpus)
        assert self.engine is not None
        return shuffled(self.corpus, self.engine, self.scratch, key=self.hash_key)

    def said(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the words of texts that are counted, as :attr:`BoundedBatch.said` does."""
        return said_of(texts, self.form, json_records=self.json_records)

    def batches(self) -> Iterator[BoundedBatch]:
        """Stream the used records."""
        for batch in self._used():
            yield batch if self.label is None else replace(batch, labels=self.label(batch.texts))

    def _used(self) -> Iterator[BoundedBatch]:
        made = partial(BoundedBatch, json_records=self.json_records, form=self.form)
        if self.unit.kind != "owner":
            before, met = 0, Counter[bytes]()
            for batch in self.corpus.batches():
                units_here = np.arange(before, before + len(batch.texts), dtype=np.int64)
                of_records = cache(partial(self._record_hashes, batch, met))
                ones = np.ones_like(units_here)
                yield made(batch.texts, batch.labels, ones, units_here, of_records, cells=batch.cells)
                before += len(units_here)
            return
        seen: set[tuple[bytes, bytes]] = set()
        numbers: dict[bytes, int] = {}
        for batch in self.corpus.batches():
            used: list[tuple[int, int, int, int]] = []
            for row, (owner, record) in enumerate(self._digests(batch)):
                kept = self._kept.get(owner, ())  # a file that grows between passes brings nobody new
                if record in kept and (owner, record) not in seen:
                    seen.add((owner, record))
                    used.append((row, len(kept), numbers.setdefault(owner, len(numbers)), _number(owner)))
            rows, shares, units, hashes = map(list, zip(*used, strict=True)) if used else ([], [], [], [])
            texts, cells = [batch.texts[row] for row in rows], None if batch.cells is None else batch.cells[rows]
            share, unit = np.array([shares, units], dtype=np.int64)
            yield made(texts, batch.labels[rows], share, unit, partial(tuple, hashes), cells=cells)

    @cached_property
    def _kept(self) -> dict[bytes, tuple[bytes, ...]]:
        """Return, for each owner, the k smallest distinct hashes of its records."""
        kept: dict[bytes, tuple[bytes, ...]] = {}
        for batch in self.corpus.batches():
            for owner, record in self._digests(batch):
                mine = kept.get(owner, ())
                if record not in mine:
                    kept[owner] = tuple(sorted((*mine, record))[: self.unit.max_records])
        return kept

    def _record_hashes(self, batch: Batch, met: Counter[bytes]) -> list[int]:
        """Return a number for each record. ``met`` counts how often each record occurred in earlier batches, and is
        updated."""
        numbers = []
        for content in _contents_of(batch):
            record = self._digest(content)
            numbers.append(_number(record if not met[record] else self._digest(f"{record.hex()} {met[record]}")))
            met[record] += 1
        return numbers

    def _digests(self, batch: Batch) -> Iterator[tuple[bytes, bytes]]:
        assert batch.owners is not None, "owner units need an owner column"  # checked before a run is planned
        for owner, content in zip(batch.owners, _contents_of(batch), strict=True):
            yield self._digest(owner), self._digest(content)

    def _digest(self, value: str) -> bytes:
        return hashlib.blake2b(value.encode("utf-8"), key=self.hash_key, digest_size=_DIGEST_BYTES).digest()


def _contents_of(batch: Batch) -> Iterator[str]:
    """Return each record's contents except the owner, as a string that differs for different records of one schema."""
    cells = [""] * len(batch.texts) if batch.cells is None else [f"{row}\x00" for row in batch.cells.tolist()]
    for label, own, text in zip(batch.labels.tolist(), cells, batch.texts, strict=True):
        yield f"{label}\x00{own}{text}"


def _of_part(alike: BoundedCorpus, function: Callable[[BoundedCorpus], R], part: Part) -> R:
    return function(replace(alike, corpus=part.table, part=part.name))


def said_of(texts: Sequence[str], form: TextForm, *, json_records: bool) -> Sequence[str]:
    if form:
        return [form.contents(text) for text in texts]
    return [writable("\n".join(leaves(json.loads(text)))) for text in texts] if json_records else texts


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8])


_ROWS, _MOST_ROWS = 128, 4096
"""In a part of a table that cannot be divided: this process reads it, and sends on what it read. The first parts are
small, so that a small table is work for all."""
PER_WORKER = 4
"""Parts of a table for each worker, so that none waits long for another's."""


@dataclass(frozen=True, repr=False)
class Part:
    """Some of a table's records, with a name that is unique among the parts."""

    name: str
    table: _Table


@dataclass(frozen=True, repr=False)
class Rows:
    """Records in memory."""

    held: tuple[Batch, ...]

    def batches(self) -> Iterator[Batch]:
        yield from self.held


def parts_of(corpus: Corpus, engine: Engine) -> Iterator[Part]:
    """Yield the table in parts for the workers: its files or row groups, or else blocks of rows."""
    pieces = corpus.pieces(PER_WORKER * engine.workers)
    if len(pieces) > 1:
        yield from (Part(f"piece-{number}", piece) for number, piece in enumerate(pieces))
    else:
        yield from _parts_in_memory(corpus, engine)


def _parts_in_memory(corpus: Corpus, engine: Engine) -> Iterator[Part]:
    """Yield blocks of rows as they are read; their size doubles after every round of the workers."""
    batches = corpus.batches(_ROWS)
    for number in count():
        together = min(1 << number // (PER_WORKER * engine.workers), _MOST_ROWS // _ROWS)
        held = tuple(islice(batches, together))
        if not held:
            return
        yield Part(f"rows-{number}", Rows(held))


def shuffled(corpus: Corpus, engine: Engine, scratch: Path, *, key: bytes) -> list[Part]:
    """Divide the table into buckets of owners, by a keyed hash of the owner, and return a part for each bucket.

    The buckets are private files in ``scratch``, there until that is removed; each is written whole or not at all, so
    that a part may be read, and written, again and again.
    """
    buckets = PER_WORKER * engine.workers
    folder = private_folder(private_folder(scratch) / f"owners-{buckets}")
    write = partial(_write_buckets, folder=folder, buckets=buckets, key=key)
    names = list(engine.map(write, parts_of(corpus, engine)))
    return [
        Part(f"owners-{bucket}", _Bucket(tuple(folder / _file(name, bucket) for name in names)))
        for bucket in range(buckets)
    ]


def _file(part: str, bucket: int) -> str:
    return f"{part}-{bucket}.arrow"


def _write_buckets(part: Part, *, folder: Path, buckets: int, key: bytes) -> str:
    """Write a part's records to the files of their owners' buckets, and return the part's name."""
    cells = pa.list_(pa.int32())
    schema = pa.schema([("text", pa.string()), ("label", pa.int32()), ("owner", pa.string()), ("cells", cells)])
    with ExitStack() as files:
        streams = [
            files.enter_context(
                pa.ipc.new_stream(
                    files.enter_context(atomic_file(folder / _file(part.name, bucket), mode=PRIVATE_MODE)), schema
                )
            )
            for bucket in range(buckets)
        ]
        for batch in part.table.batches():
            assert batch.owners is not None, "only owners are brought together"
            held = [None] * len(batch.texts) if batch.cells is None else batch.cells.tolist()
            columns = {"text": batch.texts, "label": batch.labels, "owner": batch.owners, "cells": held}
            whole = pa.RecordBatch.from_pydict(columns, schema=schema)
            digests = (
                hashlib.blake2b(each.encode(), key=key, digest_size=8, person=b"bucket") for each in batch.owners
            )
            places = np.array([int.from_bytes(each.digest()) % buckets for each in digests], dtype=np.int64)
            for bucket in np.unique(places).tolist():
                streams[bucket].write_batch(whole.take(pa.array(np.flatnonzero(places == bucket))))
    return part.name


@dataclass(frozen=True, repr=False)
class _Bucket:
    files: tuple[Path, ...]

    def batches(self) -> Iterator[Batch]:
        for file in self.files:
            with file.open("rb") as stream, pa.ipc.open_stream(stream) as batches:
                for found in batches:
                    yield _batch(found)


def _batch(found: Any) -> Batch:
    labels = found.column("label").to_numpy().astype(np.int32)
    cells = found.column("cells")
    return Batch(
        found.column("text").to_pylist(),
        labels,
        found.column("owner").to_pylist(),
        cells=None if cells.null_count else np.array(cells.to_pylist(), dtype=np.int32),
    )
