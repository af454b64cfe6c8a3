"""Unit vectors on an integer grid, and those of the private records on disk.

On the grid every scalar product is exact in float32 (:mod:`understudy.evolution.voting`).
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ModelError
from understudy.files import PRIVATE_MODE, atomic_file, private_folder, storage_error
from understudy.models.types import Embedder

STEPS = 4000
"""Grid steps of 1.0 in a coordinate."""

LARGEST_NORM = 4096
"""In grid steps. No rounded vector is longer, so that no partial sum of a scalar product passes 2^24."""

_UNIT_NORMS = (int(0.98 * STEPS), int(1.02 * STEPS))  # what counts as length 1; below LARGEST_NORM
_BEYOND = 5000.0  # a coordinate that no vector of length 1 has: what NaN and infinity become
_FILE = "embeddings.bin"
_FORMAT = 1
_HEADER = struct.Struct("<32sqq")  # digest of what the file holds, dimension, records


def integer_vectors(unit: NDArray[np.float32]) -> NDArray[np.int16]:
    """``Int16[n, d]``: ``Float32[n, d]`` unit vectors in 1/4000, rounded; no row is longer than LARGEST_NORM.

    Elementwise, so that a row's integers depend on that row alone.

    Raises:
        ModelError: a row is not of length 1 (2 percent either way, after rounding).
    """
    vectors, good = _rounded(unit)
    if not good.all():
        raise ModelError(
            "The embedder does not answer with one unit vector per text.",
            "Use an embedder that normalises its vectors.",
        )
    return vectors


def private_vectors(unit: NDArray[np.float32]) -> NDArray[np.int16]:
    """:func:`integer_vectors` of private records: a row that is not of length 1 (NaN included) becomes zero.

    Nothing is raised, since a private record must not decide whether a run fails.
    """
    vectors, good = _rounded(unit)
    vectors[~good] = 0
    return vectors


def _rounded(unit: NDArray[np.float32]) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """The rounded rows, and which of them are of length 1: decided on the integers, exactly."""
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
    """Some private records: ``Int16[r, d]`` vectors, ``Int32[r]`` labels, ``Int64[r]`` numbers of their units.

    Private; its ``repr`` shows nothing.
    """

    vectors: NDArray[np.int16]
    labels: NDArray[np.int32]
    units: NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class PrivateEmbeddings:
    """The private records' vectors, labels and units in one file, read block by block. Use :meth:`build`.

    Private, ``count`` included; its ``repr`` shows nothing.

    Args:
        file: whole or not there.
        dimension: of a vector (d).
        count: of records.
    """

    file: Path
    dimension: int
    count: int

    @classmethod
    def build(
        cls,
        batches: Iterable[tuple[Sequence[str], NDArray[np.int32], NDArray[np.int64]]],
        embedder: Embedder,
        *,
        folder: Path,
        key: str,
    ) -> PrivateEmbeddings:
        """Embed all records into a file of ``folder``, or take the whole file that is there for the same key.

        Memory: a batch. Records whose vector is not of length 1 are kept as zero vectors.

        Args:
            batches: (texts, labels, units) of the records; not touched if the file is there.
            folder: private; made with mode 0700 if it is not there. The file has mode 0600.
            key: names the records (a keyed fingerprint); the embedder's own fingerprint is added to it.

        Raises:
            ModelError: the embedder does not answer with one vector per text, all of one dimension.
            StorageError: the folder cannot be written.
        """
        digest = hashlib.sha256(json.dumps([_FORMAT, key, embedder.fingerprint]).encode()).digest()
        file = folder / _FILE
        try:
            private_folder(folder)
            for orphan in folder.glob(f".{_FILE}.*.tmp"):  # of a run that was killed
                orphan.unlink()
            return cls._whole(file, digest) or cls._write(file, digest, batches, embedder)
        except OSError as error:
            raise storage_error(folder, error) from None

    def blocks(self, rows: int = 8192) -> Iterator[Block]:
        """The records in their order, ``rows`` at a time. Mapped read-only, each block by itself: memory is a block."""
        dtype = _row_type(self.dimension)
        for start in range(0, self.count, rows):
            shape = (min(rows, self.count - start),)
            part = np.memmap(self.file, dtype, mode="r", offset=_HEADER.size + start * dtype.itemsize, shape=shape)
            yield Block(
                np.asarray(part["vector"]),
                np.array(part["label"], dtype=np.int32),
                np.array(part["unit"], dtype=np.int64),
            )

    @classmethod
    def _whole(cls, file: Path, digest: bytes) -> PrivateEmbeddings | None:
        """The file's embeddings, if it is whole and holds those of ``digest``."""
        if not file.is_file() or file.stat().st_size < _HEADER.size:
            return None
        with file.open("rb") as stream:
            found, dimension, count = _HEADER.unpack(stream.read(_HEADER.size))
        if found != digest or file.stat().st_size != _HEADER.size + count * _row_type(dimension).itemsize:
            return None
        return cls(file, dimension, count)

    @classmethod
    def _write(
        cls,
        file: Path,
        digest: bytes,
        batches: Iterable[tuple[Sequence[str], NDArray[np.int32], NDArray[np.int64]]],
        embedder: Embedder,
    ) -> PrivateEmbeddings:
        dimension = _embed(embedder, ["a public text"]).shape[1]  # known even where there is no record
        count = 0
        with atomic_file(file, mode=PRIVATE_MODE) as stream:
            stream.write(bytes(_HEADER.size))
            for texts, labels, units in batches:
                rows = np.zeros(len(texts), dtype=_row_type(dimension))
                rows["vector"] = private_vectors(_embed(embedder, texts, dimension))
                rows["label"], rows["unit"] = labels, units
                stream.write(rows.tobytes())
                count += len(texts)
            stream.seek(0)
            stream.write(_HEADER.pack(digest, dimension, count))
        return cls(file, dimension, count)


def _row_type(dimension: int) -> np.dtype[np.void]:
    return np.dtype([("vector", "<i2", (dimension,)), ("label", "<i4"), ("unit", "<i8")])


def _embed(embedder: Embedder, texts: Sequence[str], dimension: int | None = None) -> NDArray[np.float32]:
    if not texts and dimension is not None:
        return np.zeros((0, dimension), dtype=np.float32)
    vectors = np.asarray(embedder.embed(texts), dtype=np.float32)
    if vectors.ndim != 2 or vectors.shape != (len(texts), dimension or vectors.shape[1]):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not answer with one vector per text, all of one dimension.",
            "Use another embedder.",
        )
    return vectors
