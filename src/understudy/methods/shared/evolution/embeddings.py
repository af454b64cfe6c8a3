"""Embeddings of length 1 rounded to an integer grid, and the file of those of the private records.

On the grid every scalar product is exact in float32 (:mod:`understudy.methods.shared.evolution.voting`).
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder, storage_error
from understudy.models.types import Embedder
from understudy.models.vectors import conditions, uncached
from understudy.privacy.measurement import Batches, Engine, is_divided

R = TypeVar("R")
Label = Callable[[Sequence[str], NDArray[np.int16]], NDArray[np.int32]]
"""Returns the label of each record, ``Int32[n]``, from its words, its vector and public values."""
STEPS = 4000
"""Grid steps of 1.0 in a coordinate."""

LARGEST_NORM = 4096
"""In grid steps. No rounded vector is longer, so no partial sum of a scalar product exceeds 2^24."""

_UNIT_NORMS = (int(0.98 * STEPS), int(1.02 * STEPS))  # lengths that count as 1; below LARGEST_NORM
_BEYOND = 5000.0  # a coordinate that no vector of length 1 has: replaces NaN and infinity
_FILE = "embeddings.bin"
_FORMAT = 1
EMBEDDING = "Embedding the private texts. Ten thousand take minutes on a few cores."
_HEADER = struct.Struct("<32sqq")  # digest of the file's content, dimension, records


def integer_vectors(unit: NDArray[np.float32]) -> NDArray[np.int16]:
    """Round unit vectors ``Float32[n, d]`` to integers ``Int16[n, d]`` in steps of 1/4000; no row is longer than
    LARGEST_NORM.

    Elementwise, so that a row's integers depend on that row alone.
    Raises ModelError: a row is not of length 1 (2 percent either way, after rounding).
    """
    vectors, good = _rounded(unit)
    if not good.all():
        raise ModelError(
            "The embedder does not return one vector of length 1 per text.",
            "Use an embedder that normalises its vectors.",
        )
    return vectors


def private_vectors(unit: NDArray[np.float32]) -> NDArray[np.int16]:
    """Round vectors of private records like :func:`integer_vectors`; rows not of length 1 (NaN included) become zero.

    It never raises, since a private record must not decide whether a run fails.
    """
    vectors, good = _rounded(unit)
    vectors[~good] = 0
    return vectors


def _rounded(unit: NDArray[np.float32]) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """Return the rounded rows, and which of them have length 1: decided on the integers, exactly."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.asarray(unit, dtype=np.float32) * np.float32(STEPS)
    np.rint(steps, out=steps)
    np.clip(steps, -_BEYOND, _BEYOND, out=steps)
    steps[np.isnan(steps)] = _BEYOND
    vectors = steps.astype(np.int16)
    squared = np.square(vectors, dtype=np.int32).sum(axis=1, dtype=np.int64)
    shortest, longest = _UNIT_NORMS
    return vectors, (squared >= shortest**2) & (squared <= longest**2)


@dataclass(frozen=True, repr=False)
class Block:
    """Some private records: vectors ``Int16[r, d]``, labels ``Int32[r]``, and numbers of their privacy units
    ``Int64[r]``.

    Private; its ``repr`` shows nothing.
    """

    vectors: NDArray[np.int16]
    labels: NDArray[np.int32]
    units: NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class PrivateEmbeddings:
    """The vectors, labels and privacy units of the private records, embedded into a file when first read.

    Private; its ``repr`` shows nothing. Records whose vector is not of length 1 are zero vectors.
    """

    records: Batches[Any]  # texts, labels, units; read once, and not at all if a file of the same key is there
    embedder: Embedder  # the key includes its fingerprint and everything here that decides its vectors' bits
    folder: Path  # private; made with mode 0700 if missing. The file has mode 0600
    key: str  # names the records (a keyed fingerprint)
    rows: int = 8192  # of a block, about
    say: Callable[[str], None] = lambda _line: None  # receives a line before the records are embedded
    part: str = ""  # name of this part of the records, which has its own folder; "" for all
    label: Label | None = None  # gives records their labels in place of the table's; what it depends on is in the key

    def map(self, function: Callable[[PrivateEmbeddings], R]) -> Iterator[R]:
        """Call ``function`` on each part into which an engine divides the records, and yield its results. Each part is
        embedded where it is processed, into a separate file. Without an engine, all records are one part."""
        if self.engine is None:
            yield function(self)
        else:
            assert is_divided(self.records)
            self._say_once(EMBEDDING)
            made = partial(_of_part, self.embedder, self.folder, self.key, self.rows, self.label, function)
            yield from self.records.map(made)

    @property
    def engine(self) -> Engine | None:
        """Return the engine that divides the records into parts; None without one."""
        return self.records.engine if is_divided(self.records) else None

    def batches(self) -> Iterator[Block]:
        """Yield all records in blocks; those of one privacy unit are in one block. Only one block is in memory.

        Raises:
            ModelError: the embedder does not answer with one vector per text, all of one dimension.
            StorageError: the folder cannot be written.
        """
        for places in self._blocks:
            part = self._file.rows()[places]
            yield Block(
                np.ascontiguousarray(part["vector"]),
                np.array(part["label"], dtype=np.int32),
                np.array(part["unit"], dtype=np.int64),
            )

    @cached_property
    def _say_once(self) -> Callable[[str], None]:
        return cache(self.say)

    @cached_property
    def _blocks(self) -> list[slice | NDArray[np.int64]]:
        """Return the positions of each block's records: in file order, or owner by owner if one has several."""
        if not self._file.count:
            return []
        units = np.array(self._file.rows()["unit"], dtype=np.int64)
        if np.all(units[1:] > units[:-1]):
            return [slice(first, first + self.rows) for first in range(0, len(units), self.rows)]
        order = np.argsort(units, kind="stable")
        begins = np.flatnonzero(np.diff(units[order], prepend=-1))  # of each unit
        wanted = np.searchsorted(begins, np.arange(self.rows, len(units), self.rows))
        return list(np.split(order, np.unique(begins[wanted[wanted < len(begins)]])))

    @cached_property
    def _file(self) -> _File:
        bits = conditions(uncached(self.embedder))  # of one device, processor and version: they are not mixed
        told = [_FORMAT, self.key, self.embedder.fingerprint, None if bits is None else bits[0].hex()]
        digest = hashlib.sha256(json.dumps(told).encode()).digest()
        folder = self.folder / self.part
        path = folder / _FILE
        try:
            private_folder(folder)
            for orphan in folder.glob(f".{_FILE}.*.tmp"):  # of a run that was killed
                orphan.unlink()
            return _File.whole(path, digest) or self._written(path, digest)
        except OSError as error:
            raise storage_error(self.folder, error) from None

    def _written(self, path: Path, digest: bytes) -> _File:
        self.say(EMBEDDING)
        dimension = embed_texts(self.embedder, ["a public text"]).shape[1]  # known even without a record
        count = 0
        with atomic_file(path, mode=PRIVATE_MODE) as stream:
            stream.write(bytes(_HEADER.size))
            workers: Engine | None = getattr(self.records, "workers", None)
            over = map if workers is None else workers.map
            for rows in over(partial(_rows_of, self.embedder, dimension, self.label), self.records.batches()):
                stream.write(rows.tobytes())
                count += len(rows)
            stream.seek(0)
            stream.write(_HEADER.pack(digest, dimension, count))
        return _File(path, dimension, count)


def _of_part(
    embedder: Embedder,
    folder: Path,
    key: str,
    rows: int,
    label: Label | None,
    function: Callable[[PrivateEmbeddings], R],
    part: Any,
) -> R:
    return function(PrivateEmbeddings(part, embedder, folder, key, rows, part=part.part, label=label))


def _rows_of(embedder: Embedder, dimension: int, label: Label | None, batch: Any) -> NDArray[np.void]:
    rows = np.zeros(len(batch.texts), dtype=_row_type(dimension))
    rows["vector"] = private_vectors(embed_texts(embedder, batch.texts, dimension))
    rows["label"] = batch.labels if label is None else label(batch.said, rows["vector"])
    rows["unit"] = batch.units
    return rows


@dataclass(frozen=True)
class _File:
    """The complete file of embeddings: where it is, and its size."""

    path: Path
    dimension: int
    count: int

    @classmethod
    def whole(cls, path: Path, digest: bytes) -> _File | None:
        """Return the file, if it is whole and contains the embeddings of ``digest``."""
        if not path.is_file() or path.stat().st_size < _HEADER.size:
            return None
        with path.open("rb") as stream:
            found, dimension, count = _HEADER.unpack(stream.read(_HEADER.size))
        if found != digest or path.stat().st_size != _HEADER.size + count * _row_type(dimension).itemsize:
            return None
        return cls(path, dimension, count)

    def rows(self) -> NDArray[np.void]:
        """Return all rows in a new mapping, so that memory of earlier reads is freed."""
        return np.memmap(self.path, _row_type(self.dimension), mode="r", offset=_HEADER.size, shape=(self.count,))


def _row_type(dimension: int) -> np.dtype[np.void]:
    return np.dtype([("vector", "<i2", (dimension,)), ("label", "<i4"), ("unit", "<i8")])


def embed_texts(embedder: Embedder, texts: Sequence[str], dimension: int | None = None) -> NDArray[np.float32]:
    """Return a vector per text, ``Float32[n, d]``; raise ModelError for another shape."""
    if not texts and dimension is not None:
        return np.zeros((0, dimension), dtype=np.float32)
    vectors = np.asarray(embedder.embed(texts), dtype=np.float32)
    if vectors.ndim != 2 or vectors.shape != (len(texts), dimension or vectors.shape[1]):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not answer with one vector per text, all of one dimension.",
            "Use another embedder.",
        )
    return vectors
