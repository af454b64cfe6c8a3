"""Cache vectors in a private folder, so that a text is embedded only once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.files import PRIVATE_MODE, private_folder
from understudy.base.lazy import torch
from understudy.base.sqlite import connect, error_code, is_damage
from understudy.models.types import Embedder, WrappedEmbedder
from understudy.schema.transcript import TextForm

FOLDER = "embeddings"  # in private/
CACHE_GB = 4.0  # most gigabytes of vectors that a folder keeps

_FORMAT = 1
_FILE = "vectors.sqlite"
_TABLE = "CREATE TABLE IF NOT EXISTS vector (key BLOB PRIMARY KEY, numbers BLOB NOT NULL, seal BLOB NOT NULL)"
_SELECT = "SELECT numbers, seal FROM vector WHERE key = ? AND typeof(numbers) = 'blob'"
_PAGE = 1 << 14  # bytes: few are left over where a vector of some thousand does not fit any more
_SETTINGS = (f"PRAGMA page_size = {_PAGE}", "PRAGMA synchronous = OFF")  # only a power failure costs vectors
_WAIT_SECONDS = 10.0
_TAG_BYTES, _HASH_BYTES = 8, 24
_AT_ONCE = 8192  # texts that are looked up, embedded and stored together: the most that a kill loses
_RESERVE = 1 << 30  # bytes of the disk that are left to the run itself
_PACKAGES = ("understudy", "numpy", "torch", "transformers", "tokenizers", "sentence-transformers")
_TRIED = tuple(" ".join(["the public text of a note is"] * times) for times in (1, 4, 15, 60))

Vectors = NDArray[np.float32]


def remembering(embedder: Embedder, private: Path | None, *, gigabytes: float | None = None) -> Embedder:
    """Return ``embedder`` with a cache in the folder ``embeddings`` of ``private``, or the embedder itself if nothing
    may be cached.

    Nothing is cached without a folder, with 0 gigabytes, or for an embedder that is not local: the operator of an
    endpoint may replace the model at any time, and then a text's vector would depend on when it was computed.
    """
    gigabytes = CACHE_GB if gigabytes is None else gigabytes
    if private is None or not gigabytes or getattr(embedder, "local", None) is not True:
        return embedder
    return CachedEmbedder(embedder, private / FOLDER, most_bytes=int(gigabytes * 1e9))


def uncached(embedder: Embedder) -> Embedder:
    """Return the embedder without its cache, for tests: stored vectors do not show how this machine computes."""
    found: Embedder = getattr(embedder, "uncached", embedder)
    return found


@dataclass(frozen=True)
class ContentsEmbedder(WrappedEmbedder):
    """An embedder that embeds only the contents of transcripts, without the names of parts. Other texts, such as terms,
    are embedded unchanged."""

    form: TextForm

    @property
    def uncached(self) -> Embedder:
        """Return the embedder without its cache (see :func:`uncached`)."""
        return ContentsEmbedder(uncached(self.embedder), self.form)

    def __getattr__(self, name: str) -> object:
        if name in ("longest", "batch_tokens"):  # which not every embedder has
            return getattr(self.embedder, name)
        raise AttributeError(name)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embedder.embed([self.form.contents(text) for text in texts])


class CachedEmbedder:
    """An embedder that first looks for a text's vector in a cache. Many processes may share a folder.

    **A stored vector is, bit for bit, the one that would be computed here.** Otherwise a record's vector would depend
    on earlier embeddings, so on other records, and a bound on one record's influence would fail. So the key of a vector
    is the text, the embedder's fingerprint and everything that determines its bits: processor, GPU, versions of the
    libraries, and the bits of some public texts, which every process embeds when it opens the folder. A vector is a
    function of its record only, whether it is looked up or computed; stored, evicted, damaged or lost rows only change
    how long it takes. Like all embedding, this requires an embedder whose vectors do not change with other texts
    (:mod:`understudy.models.embedder_checks`, which bypasses this class).

    The folder (mode 0700) contains one SQLite file (mode 0600), which is made when the first text comes. A row is a
    hash of the text and of all of the above, the vector, and a hash of both. A row whose hash is wrong counts as absent
    and is replaced; a file that SQLite finds damaged is removed. Vectors with non-finite numbers are not stored.
    **Vectors reveal much about their texts: the folder is as private as the table.** It may be deleted at any time.

    If the file would grow beyond ``most_bytes``, vectors of other embedders and versions are removed; then no more are
    stored. Nothing is stored on a nearly full disk either, and after any failure texts are embedded without the cache.
    """

    def __init__(self, embedder: Embedder, folder: Path, *, most_bytes: int) -> None:
        self.uncached = embedder
        self.model_id, self.fingerprint, self.local = embedder.model_id, embedder.fingerprint, embedder.local
        self._folder, self._most_bytes = Path(os.path.abspath(folder)), most_bytes  # noqa: PTH100 - links stay

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.uncached, self._folder, self._most_bytes)

    def embed(self, texts: Sequence[str]) -> Vectors:
        decided = self._conditions if texts else None
        if decided is None:
            return self.uncached.embed(texts)
        vectors = np.empty((len(texts), decided[1]), dtype=np.float32)
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            if not self._fill(vectors[start : start + len(some)], some, decided[0]):
                return self.uncached.embed(texts)
        return vectors

    @cached_property
    def _conditions(self) -> tuple[bytes, int] | None:
        return conditions(self.uncached)

    def _fill(self, vectors: Vectors, texts: Sequence[str], tag: bytes) -> bool:
        """Fill ``vectors`` with those of ``texts``: stored ones, and new ones, which are then stored. Return False if
        the embedder's answer is invalid."""
        keys = [tag[:_TAG_BYTES] + _hash(tag, text.encode("utf-8", "surrogatepass")) for text in texts]
        found = self._look_up(keys, vectors.shape[1])
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            answer = _array(self.uncached.embed(list(missing.values())))
            if answer is None or answer.shape != (len(missing), vectors.shape[1]):
                return False
            new = dict(zip(missing, answer, strict=True))
            self._store({key: vector for key, vector in new.items() if np.isfinite(vector).all()}, tag)
            found |= new
        for row, key in enumerate(keys):
            vectors[row] = found[key]
        return True

    def _look_up(self, keys: Sequence[bytes], dimension: int) -> dict[bytes, Vectors]:
        """Return the stored vectors with these keys: those that could be read before anything failed."""
        found: dict[bytes, Vectors] = {}
        with contextlib.suppress(OSError, sqlite3.Error), self._transaction("BEGIN") as kept:
            for key in dict.fromkeys(keys):
                row = kept.execute(_SELECT, (key,)).fetchone()
                if row and row[1] == _hash(key, row[0]) and len(row[0]) == 4 * dimension:
                    found[key] = np.frombuffer(row[0], dtype="<f4")
        return found

    def _store(self, vectors: Mapping[bytes, Vectors], tag: bytes) -> None:
        """Keep these vectors, if there is room."""
        numbers = {key: vector.astype("<f4").tobytes() for key, vector in vectors.items()}
        rows = [(key, each, _hash(key, each)) for key, each in numbers.items()]
        mine = (tag[:_TAG_BYTES], tag[:_TAG_BYTES] + b"\xff" * _HASH_BYTES)
        for full in (False, True):
            try:
                if shutil.disk_usage(self._folder).free < _RESERVE + sum(map(len, numbers.values())):
                    return
                with self._transaction("BEGIN IMMEDIATE") as kept:
                    if full:
                        kept.execute("DELETE FROM vector WHERE key < ? OR key > ?", mine)
                    kept.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", rows)
                return
            except (OSError, sqlite3.Error) as error:
                if error_code(error) != sqlite3.SQLITE_FULL:
                    return

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Run a transaction on the file, which is made if it is missing, and removed if it is damaged.

        sqlite3.Error or OSError if that fails; SQLite itself limits the file's size.
        """
        private_folder(self._folder.parent)
        path = private_folder(self._folder) / _FILE
        if not path.exists():
            path.touch(PRIVATE_MODE)
        settings = (*_SETTINGS, f"PRAGMA max_page_count = {max(1, self._most_bytes // _PAGE)}")
        try:
            with contextlib.closing(connect(path, *settings, wait=_WAIT_SECONDS)) as kept:
                kept.execute(_TABLE)
                kept.execute(begin)
                yield kept
                kept.execute("COMMIT")
        except sqlite3.Error as error:
            if is_damage(error):
                path.unlink(missing_ok=True)
            raise


_REOPENED: dict[tuple[str, ...], CachedEmbedder] = {}


def _reopened(embedder: Embedder, folder: Path, most_bytes: int) -> CachedEmbedder:
    """Return the cached embedder of this process for these arguments; creating one embeds some texts."""
    name = (type(embedder).__qualname__, embedder.model_id, embedder.fingerprint, str(folder), str(most_bytes))
    return _REOPENED.setdefault(name, CachedEmbedder(embedder, folder, most_bytes=most_bytes))


def _array(answer: object) -> Vectors | None:
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(answer, dtype=np.float32)
    except (TypeError, ValueError):  # which may quote the answer
        return None


def conditions(embedder: Embedder) -> tuple[bytes, int] | None:
    """Return a digest of everything that determines a vector's bits here, and its dimension; None if it is unknown.

    The same versions and processor do not guarantee the same bits (a library's setting, a driver may differ), so
    some public texts of several lengths are embedded, and their bits are part of the digest.
    """
    tried = _array(embedder.embed(list(_TRIED)))
    if tried is None or tried.ndim != 2 or len(tried) != len(_TRIED) or not np.isfinite(tried).all():
        return None
    of_class = f"{type(embedder).__module__}.{type(embedder).__qualname__}"
    told = [_FORMAT, embedder.fingerprint, of_class, *_machine(), hashlib.sha256(tried.tobytes()).hexdigest()]
    return hashlib.sha256(json.dumps(told).encode()).digest(), tried.shape[1]


def _hash(first: bytes, second: bytes) -> bytes:
    return hashlib.blake2b(first + second, digest_size=_HASH_BYTES).digest()


@cache
def _machine() -> tuple[str, ...]:
    """Return the libraries, processor and GPU."""
    found = [platform.machine(), platform.processor(), *platform.libc_ver()]
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        found += sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    with contextlib.suppress(ImportError):
        found += [str(torch.version.cuda), *map(torch.cuda.get_device_name, range(torch.cuda.device_count()))]
    return tuple(found)
