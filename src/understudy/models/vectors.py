"""Vectors that were computed before, kept in a private folder, so that a text is embedded once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import secrets
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder
from understudy.base.lazy import torch
from understudy.models.types import Embedder, WrappedEmbedder
from understudy.schema.transcript import TextForm

FOLDER = "embeddings"  # in private/
CACHE_GB = 4.0  # most gigabytes of vectors that a folder keeps

_FORMAT = 1
_KEY, _KEY_BYTES = "key", 32
_SUFFIX = ".vectors"
_HEADER = struct.Struct("<8sQQ")  # what it is, dimension, entries
_MAGIC = b"vectors1"
_PREFIX = np.dtype("<u8")
_SEAL_BYTES = 16
_AT_ONCE = 8192  # texts that are looked up, embedded and stored together: what a kill loses
_SMALL, _MANY_SMALL = 1 << 22, 16  # bytes of a segment that is merged, and how many there must be
_RESERVE = 1 << 30  # bytes of the disk that are left to the run itself
_PACKAGES = ("understudy", "numpy", "torch", "transformers", "tokenizers", "sentence-transformers")
_TRIED = tuple(" ".join(["the public text of a note is"] * times) for times in (1, 4, 15, 60))

Vectors = NDArray[np.float32]


def remembering(embedder: Embedder, private: Path | None, *, gigabytes: float | None = None) -> Embedder:
    """``embedder``, with its vectors kept in the folder ``embeddings`` of ``private``; itself where none are kept.

    None are kept without a folder, with 0 gigabytes, and of an embedder that is not local: whoever runs an endpoint
    may put another model behind its name at any time, and then a text's vector would depend on when it was computed.
    """
    gigabytes = CACHE_GB if gigabytes is None else gigabytes
    if private is None or not gigabytes or getattr(embedder, "local", None) is not True:
        return embedder
    return CachedEmbedder(embedder, private / FOLDER, most_bytes=int(gigabytes * 1e9))


def uncached(embedder: Embedder) -> Embedder:
    """The embedder itself, which is tried: stored vectors say nothing about the machine at hand."""
    found: Embedder = getattr(embedder, "uncached", embedder)
    return found


@dataclass(frozen=True)
class ContentsEmbedder(WrappedEmbedder):
    """An embedder of transcripts; other texts, such as terms, are embedded as they are."""

    form: TextForm

    @property
    def uncached(self) -> Embedder:
        """As :func:`uncached`."""
        return ContentsEmbedder(uncached(self.embedder), self.form)

    def __getattr__(self, name: str) -> object:
        if name in ("longest", "batch_tokens"):  # which not every embedder has
            return getattr(self.embedder, name)
        raise AttributeError(name)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embedder.embed([self.form.contents(text) for text in texts])


class CachedEmbedder:
    """An embedder that looks first whether it knows a text's vector. Many processes and machines may share a folder.

    **A stored vector is, bit for bit, the one that would be computed here.** Otherwise a record's vector would depend
    on what was embedded before it, so on other records, and a bound on one record's influence would fail. So a vector
    is found only under the text, the embedder's fingerprint and all that decides its bits: processor, GPU, versions of
    the libraries, and the bits of some public texts, which every process embeds when it opens the folder. A vector is a
    function of its record alone, whether it is looked up or computed; what is stored, evicted, damaged or lost decides
    only how long it takes. This rests, as all embedding does, on an embedder whose vectors do not change with the texts
    beside them (:mod:`understudy.models.embedder_checks`, which bypasses this class).

    **In the folder** (mode 0700, files 0600, made when the first text comes) are a random key and immutable *segments*,
    each written at once and under a random name, so that no lock is needed. An entry is 8 bytes of the text's keyed
    hash, by which it is found, the vector, and a keyed hash of text and vector, by which cut, changed or foreign
    entries are recognised: their segment is removed. There is no text, and no hash that could be tried without the key.
    Vectors with non-finite numbers are not stored. **Vectors reveal much about their texts: the folder is as private as
    the table.** It may be deleted at any time.

    A process merges its own small segments, and no other's. Where there is no room (``most_bytes``, which processes
    that write at once may each exceed by a segment), it removes the segments that were not used for longest, but none
    that it uses itself: then it stores no more. A disk that is nearly full gets none either, and whatever fails about
    the folder, texts are embedded as if it were not there.
    """

    def __init__(self, embedder: Embedder, folder: Path, *, most_bytes: int) -> None:
        self.uncached = embedder
        self.model_id, self.fingerprint, self.local = embedder.model_id, embedder.fingerprint, embedder.local
        self._folder, self._most_bytes = Path(os.path.abspath(folder)), most_bytes  # noqa: PTH100 - links stay

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.uncached, self._folder, self._most_bytes)

    def embed(self, texts: Sequence[str]) -> Vectors:
        segments = self._segments if texts else None
        if segments is None:
            return self.uncached.embed(texts)
        vectors = np.empty((len(texts), segments.dimension), dtype=np.float32)
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            if not self._fill(vectors[start : start + len(some)], some, segments):
                return self.uncached.embed(texts)
        return vectors

    def _fill(self, vectors: Vectors, texts: Sequence[str], segments: _Segments) -> bool:
        """Whether the vectors of some texts are in place; False where the embedder's answer makes no sense."""
        keys = [segments.key(text) for text in texts]
        found = segments.look_up(dict.fromkeys(keys))
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            answer = _array(self.uncached.embed(list(missing.values())))
            if answer is None or answer.shape != (len(missing), segments.dimension):
                return False
            new = dict(zip(missing, answer, strict=True))
            found |= new
            segments.store({key: vector for key, vector in new.items() if np.isfinite(vector).all()})
        for row, key in enumerate(keys):
            vectors[row] = found[key]
        return True

    @cached_property
    def _segments(self) -> _Segments | None:
        decided = conditions(self.uncached)
        with contextlib.suppress(OSError):
            return decided and _Segments(self._folder, *decided, most_bytes=self._most_bytes)
        return None


_REOPENED: dict[tuple[str, ...], CachedEmbedder] = {}


def _reopened(embedder: Embedder, folder: Path, most_bytes: int) -> CachedEmbedder:
    """One per process, however many tasks it gets: opening embeds some texts and reads the index of all segments."""
    name = (type(embedder).__qualname__, embedder.model_id, embedder.fingerprint, str(folder), str(most_bytes))
    if name not in _REOPENED:
        _REOPENED[name] = CachedEmbedder(embedder, folder, most_bytes=most_bytes)
    return _REOPENED[name]


def _array(answer: object) -> Vectors | None:
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(answer, dtype=np.float32)
    except (TypeError, ValueError):  # which may quote the answer
        return None


def conditions(embedder: Embedder) -> tuple[bytes, int] | None:
    """A digest of what decides the bits of a vector here, and its dimension; None where that is unknown.

    That the versions and the processor are the same is no proof that the bits are (a library's setting, a driver), so
    some public texts of several lengths are embedded, and their bits are part of it.
    """
    tried = _array(embedder.embed(list(_TRIED)))
    if tried is None or tried.ndim != 2 or len(tried) != len(_TRIED) or not np.isfinite(tried).all():
        return None
    of_class = f"{type(embedder).__module__}.{type(embedder).__qualname__}"
    told = [_FORMAT, embedder.fingerprint, of_class, *_machine(), hashlib.sha256(tried.tobytes()).hexdigest()]
    return hashlib.sha256(json.dumps(told).encode()).digest(), tried.shape[1]


@cache
def _machine() -> tuple[str, ...]:
    """Libraries, processor and GPU."""
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


@dataclass(frozen=True, eq=False, repr=False)
class _Segment:
    """A file of vectors that was whole when it was opened."""

    path: Path
    prefixes: NDArray[np.uint64]  # rising: the first 8 bytes of the texts' hashes
    row_bytes: int

    @classmethod
    def open(cls, path: Path, dimension: int) -> _Segment | None:
        """None where it is no segment, or of other vectors, or cut."""
        row_bytes = 4 * dimension + _SEAL_BYTES
        with path.open("rb", buffering=0) as file:
            header = file.read(_HEADER.size)
            if len(header) != _HEADER.size:
                return None
            magic, width, entries = _HEADER.unpack(header)
            there = os.fstat(file.fileno()).st_size
            if (magic, width) != (_MAGIC, dimension) or there != _segment_bytes(entries, dimension) or not entries:
                return None
            prefixes = np.frombuffer(file.read(entries * _PREFIX.itemsize), dtype=_PREFIX)
        return cls(path, prefixes, row_bytes) if len(prefixes) == entries else None

    @property
    def bytes(self) -> int:
        return self._begin + len(self.prefixes) * self.row_bytes

    @property
    def _begin(self) -> int:
        return _HEADER.size + self.prefixes.nbytes

    def places(self, prefixes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """``Int64[n]``: in which row each is, -1 for none."""
        at = np.minimum(np.searchsorted(self.prefixes, prefixes), len(self.prefixes) - 1)
        return np.where(self.prefixes[at] == prefixes, at, -1)

    def rows(self, numbers: Sequence[int]) -> Iterator[memoryview]:
        """Vector and seal of some rows; a whole segment is read at once where a quarter is wanted. May be cut short."""
        with self.path.open("rb", buffering=0) as file:
            if 4 * len(numbers) >= len(self.prefixes):
                file.seek(self._begin)
                data = memoryview(file.read())
                for number in numbers:
                    yield data[number * self.row_bytes : (number + 1) * self.row_bytes]
                return
            for number in numbers:
                file.seek(self._begin + number * self.row_bytes)
                yield memoryview(file.read(self.row_bytes))


def _segment_bytes(entries: int, dimension: int) -> int:
    return _HEADER.size + entries * (_PREFIX.itemsize + 4 * dimension + _SEAL_BYTES)


class _Segments:
    """The segments of one folder that hold vectors of one embedder as it computes here."""

    def __init__(self, folder: Path, conditions: bytes, dimension: int, *, most_bytes: int) -> None:
        private_folder(folder.parent)
        private_folder(folder)
        self._folder, self._secret, self._conditions = folder, _secret(folder), conditions
        self.dimension, self._most_bytes = dimension, most_bytes
        self._tag = hashlib.blake2b(conditions, key=self._secret, digest_size=8).hexdigest()
        self._known: dict[str, _Segment] = {}
        self._own: set[str] = set()  # written by this process
        self._used: set[str] = set()  # written or read by it
        self._look_for_new()

    def key(self, text: str) -> bytes:
        """A keyed hash of the text and of what decides its vector."""
        data = self._conditions + text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._secret, digest_size=32).digest()

    def look_up(self, keys: Mapping[bytes, object]) -> dict[bytes, Vectors]:
        found: dict[bytes, Vectors] = {}
        with contextlib.suppress(OSError):
            self._look_in(list(self._known), keys, found)
            if len(found) < len(keys):
                self._look_in(self._look_for_new(), keys, found)
        return found

    def _look_in(self, names: Sequence[str], keys: Mapping[bytes, object], found: dict[bytes, Vectors]) -> None:
        wanted = sorted(key for key in keys if key not in found)
        prefixes = np.frombuffer(b"".join(key[:8] for key in wanted), dtype=">u8").astype(np.uint64)
        for name in reversed(names):  # the newest first
            if not len(prefixes):
                return
            rows = self._known[name].places(prefixes)
            there = np.flatnonzero(rows >= 0)
            if len(there):
                self._read(name, [wanted[place] for place in there], rows[there].tolist(), found)
                left = [place for place, key in enumerate(wanted) if key not in found]
                wanted, prefixes = [wanted[place] for place in left], prefixes[left]

    def _read(self, name: str, keys: Sequence[bytes], rows: Sequence[int], found: dict[bytes, Vectors]) -> None:
        """Add what is whole to ``found``; a segment that is not, or is gone, is forgotten."""
        segment = self._known[name]
        try:
            for key, row in zip(keys, segment.rows(rows), strict=True):
                vector = bytes(row[:-_SEAL_BYTES])
                if len(row) != segment.row_bytes or self._seal(key, vector) != row[-_SEAL_BYTES:]:
                    self._remove(name)
                    return
                found[key] = np.frombuffer(vector, dtype="<f4")
            if name not in self._used:
                self._used.add(name)
                with contextlib.suppress(OSError):
                    os.utime(segment.path)  # so that other processes know that it is of use
        except OSError:
            self._known.pop(name, None)

    def _seal(self, key: bytes, vector: bytes) -> bytes:
        return hashlib.blake2b(key + vector, key=self._secret, digest_size=_SEAL_BYTES).digest()

    def store(self, vectors: Mapping[bytes, Vectors]) -> None:
        """Add a segment of these, if there is room."""
        entries = sorted((key, np.ascontiguousarray(vector, dtype="<f4").tobytes()) for key, vector in vectors.items())
        prefixes = np.frombuffer(b"".join(key[:8] for key, _ in entries), dtype=">u8").astype(_PREFIX)
        with contextlib.suppress(OSError):
            if entries and self._make_room(_segment_bytes(len(entries), self.dimension)):
                self._write(prefixes, [vector + self._seal(key, vector) for key, vector in entries])
                self._merge()

    def _write(self, prefixes: NDArray[np.uint64], rows: Sequence[bytes | memoryview]) -> None:
        path = self._folder / f"{self._tag}-{secrets.token_hex(8)}{_SUFFIX}"
        with atomic_file(path, mode=PRIVATE_MODE) as file:
            file.write(_HEADER.pack(_MAGIC, self.dimension, len(rows)))
            file.write(prefixes.tobytes())
            file.writelines(rows)
        self._known[path.name] = _Segment(path, prefixes, 4 * self.dimension + _SEAL_BYTES)
        self._own.add(path.name)
        self._used.add(path.name)

    def _merge(self) -> None:
        """One segment of many small ones of this process. A reader of one of those finds it gone, and looks for new
        ones."""
        small = [name for name in self._own & self._known.keys() if self._known[name].bytes < _SMALL]
        if len(small) < _MANY_SMALL:
            return
        parts = [self._known[name] for name in small]
        prefixes = np.concatenate([part.prefixes for part in parts])
        rows = [row for part in parts for row in part.rows(range(len(part.prefixes)))]
        order = np.argsort(prefixes, kind="stable").tolist()
        self._write(prefixes[order], [rows[place] for place in order])
        for name in small:
            self._remove(name)

    def _make_room(self, needed: int) -> bool:
        """Whether a segment of so many bytes may be added; what was not used for longest goes for it."""
        if shutil.disk_usage(self._folder).free < needed + _RESERVE:
            return False
        files = self._files()
        spare = [(size, name) for size, name in files if name not in self._used]
        excess = needed + sum(size for size, _ in files) - self._most_bytes
        if excess > sum(size for size, _ in spare):
            return False
        for size, name in spare:
            if excess <= 0:
                break
            self._remove(name)
            excess -= size
        return True

    def _files(self) -> list[tuple[int, str]]:
        """Size and name of all but the key, the longest unused first."""
        found = []
        with os.scandir(self._folder) as entries:
            for each in entries:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    found.append((each.stat().st_mtime_ns, each.stat().st_size, each.name))
        return [(size, name) for _, size, name in sorted(found) if name != _KEY]

    def _remove(self, name: str) -> None:
        self._known.pop(name, None)
        self._own.discard(name)
        with contextlib.suppress(OSError):  # Windows removes nothing that another reads
            (self._folder / name).unlink()

    def _look_for_new(self) -> list[str]:
        """The names of segments that were not known before."""
        with os.scandir(self._folder) as entries:
            names = {each.name for each in entries if each.name.startswith(self._tag) and each.name.endswith(_SUFFIX)}
        for gone in self._known.keys() - names:
            del self._known[gone]
        new = []
        for name in sorted(names - self._known.keys()):
            try:
                segment = _Segment.open(self._folder / name, self.dimension)
            except OSError:  # removed meanwhile
                continue
            if segment is None:
                self._remove(name)
            else:
                self._known[name] = segment
                new.append(name)
        return new


def _secret(folder: Path) -> bytes:
    """The folder's random key, made by whoever comes first, and again if it is cut: then old segments are foreign."""
    path = folder / _KEY
    for _ in range(2):
        if not path.exists():
            made = folder / f".{_KEY}.{secrets.token_hex(4)}.tmp"
            with atomic_file(made, mode=PRIVATE_MODE) as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
            try:
                os.link(made, path)  # unlike a renamed file, it never takes the place of one that is there
            except FileExistsError:
                pass
            except OSError:  # a drive that knows no links
                made.replace(path)
            finally:
                made.unlink(missing_ok=True)
        found = path.read_bytes()
        if len(found) == _KEY_BYTES:
            return found
        path.unlink(missing_ok=True)
    raise OSError("the key cannot be kept")
