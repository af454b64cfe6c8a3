"""A private table in parts for an engine: as it lies, or shuffled so that all records of an owner are in one part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder
from understudy.base.lazy import pa
from understudy.corpus.corpus import Batch, Corpus
from understudy.privacy.measurement import Engine

_ROWS, _MOST_ROWS = 128, 4096
"""In a part of a table that cannot be divided: this process reads it, and sends on what it read. The first parts are
small, so that a small table is work for all."""
PER_WORKER = 4
"""Parts of a table for each worker, so that none waits long for another's."""


class _Table(Protocol):
    def batches(self) -> Iterator[Batch]: ...


@dataclass(frozen=True, repr=False)
class Part:
    """Some of a table's records, and a name that tells them from the others'."""

    name: str
    table: _Table


@dataclass(frozen=True, repr=False)
class Rows:
    """Records in memory."""

    held: tuple[Batch, ...]

    def batches(self) -> Iterator[Batch]:
        yield from self.held


def parts_of(corpus: Corpus, engine: Engine) -> Iterator[Part]:
    """The table in parts: its pieces, or, where there is one alone, its rows, many together."""
    pieces = corpus.pieces(PER_WORKER * engine.workers)
    if len(pieces) > 1:
        yield from (Part(f"piece-{number}", piece) for number, piece in enumerate(pieces))
    else:
        yield from _parts_in_memory(corpus, engine)


def _parts_in_memory(corpus: Corpus, engine: Engine) -> Iterator[Part]:
    """Rows as they are read, twice as many in a part after every round of the workers."""
    batches = corpus.batches(_ROWS)
    for number in count():
        together = min(1 << number // (PER_WORKER * engine.workers), _MOST_ROWS // _ROWS)
        held = tuple(islice(batches, together))
        if not held:
            return
        yield Part(f"rows-{number}", Rows(held))


def shuffled(corpus: Corpus, engine: Engine, scratch: Path, *, key: bytes) -> list[Part]:
    """The table in buckets of owners, by a keyed hash of each. Nobody holds more than a batch meanwhile.

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
    """Write a part's records to the files of their owners' buckets; the part's name."""
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
            texts, owners = pa.array(batch.texts, pa.string()), pa.array(batch.owners, pa.string())
            held = [None] * len(texts) if batch.cells is None else batch.cells.tolist()
            columns = [texts, pa.array(batch.labels, pa.int32()), owners, pa.array(held, cells)]
            whole = pa.record_batch(columns, schema=schema)
            digests = (blake2b(each.encode(), key=key, digest_size=8, person=b"bucket") for each in batch.owners)
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
