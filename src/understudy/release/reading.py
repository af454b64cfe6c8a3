"""Read a Release file from an untrusted source: within bounds, with checks of its hashes and of its form.

Such a file may unpack to a thousand times its size. So the number of members, their names and their sizes are
read from the zip's directory first; members are then read in pieces, and none may be longer than the directory says.
Only the layout that understudy writes is accepted: nothing before, between or after the members. Every
field of ``release.json`` has its type and range. The contents of each method's Release are checked after this, by
:func:`understudy.methods.registry.load_release`, which all callers use.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import PlainValidator

from understudy.base.errors import ConfigError, ReleaseError
from understudy.base.files import is_pipe_or_device
from understudy.base.untrusted import MOST_BYTES as MOST_JSON_BYTES
from understudy.base.untrusted import parse_json, read_form
from understudy.privacy.facts import Facts
from understudy.release import (
    ARRAYS,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    STRINGS,
    TERMS,
    PublicSchema,
    Release,
    arrays_from_bytes,
    strings_from_bytes,
)
from understudy.release.statement import MethodName, Overstated, Statement


@dataclass(frozen=True)
class _Manifest:
    method: MethodName
    parameters: dict[str, Any]
    schema: Annotated[PublicSchema, PlainValidator(PublicSchema.from_json)]
    statement: Annotated[Statement, PlainValidator(Statement.from_json)]
    noise_check: Annotated[Facts, PlainValidator(Facts.from_json)]
    sha256: dict[str, str]


def _manifest(fields: dict[str, Any]) -> _Manifest:
    """Return the fields of ``release.json`` if each is present and has its type."""
    found = read_form(_Manifest, fields)
    if found.statement.method != found.method:
        raise ValueError("the statement is of a different method")
    return found


MOST_BYTES = 256 * 1024**2
"""Most bytes that a Release may unpack to, unless a larger bound is given."""
MOST_RATIO = 100
"""The factor by which a file of more than ALWAYS_BYTES may grow on unpacking, unless a larger bound is given."""
ALWAYS_BYTES = 64 * 1024**2
"""Bytes that any file may unpack to, even a small one."""

_PIECE = 1 << 20
_DIRECTORY_BYTES = 4096
_END = struct.Struct("<4s4H2LH")
_ZIP64 = b"PK\x06\x07"
_ZIP64_BYTES = 20
_LOCAL = struct.Struct("<4s5H3L2H")
_UNREADABLE_FLAGS = 0x1 | 0x8 | 0x20 | 0x40 | 0x2000  # encrypted, sizes after the data, patched, masked
_IN_EXTRA = 0xFFFFFFFF


def unpacked_bound(packed: int, max_bytes: int | None) -> int:
    return min(MOST_BYTES, max(ALWAYS_BYTES, MOST_RATIO * packed)) if max_bytes is None else max_bytes


class Archive:
    def __init__(self, archive: zipfile.ZipFile, bound: int) -> None:
        self._archive = archive
        self.bound = bound

    @property
    def names(self) -> set[str]:
        return set(self._archive.NameToInfo)

    def size(self, name: str) -> int:
        """Return the bytes of a member as the directory states them; :meth:`read` does not return more."""
        return self._archive.getinfo(name).file_size

    def read(self, name: str) -> tuple[bytearray, str]:
        """Return a member's bytes and their SHA-256 in hexadecimal."""
        size = self.size(name)
        data, digest, there = bytearray(size), hashlib.sha256(), 0
        view = memoryview(data)
        with self._archive.open(name) as member:
            while count := member.readinto(view[there : there + _PIECE]):  # type: ignore[attr-defined]
                digest.update(view[there : there + count])
                there += count
            if there != size or member.read(1):
                raise ValueError("a member is not as long as the directory says")
        return data, digest.hexdigest()


@contextmanager
def _open_archive(path: Path, *, names: Collection[str], max_bytes: int | None = None) -> Iterator[Archive]:
    """Open a Release file whose directory keeps to the bounds and names no members but ``names``, each at most once.

    Raises:
        ReleaseError: it unpacks to more than ``max_bytes``.
        ValueError, OSError, zipfile.BadZipFile: it is not such a zip file.
    """
    if is_pipe_or_device(path):
        raise ValueError("it is not an ordinary file")
    with path.open("rb") as file:
        packed = os.fstat(file.fileno()).st_size
        directory, entries = _directory(file, packed)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) != entries or {info.orig_filename for info in members} - set(names):
                raise ValueError("it has members that a Release does not have")
            if len(archive.NameToInfo) != entries:
                raise ValueError("a member occurs twice")
            _check_layout(file, members, directory)
            bound, unpacked = unpacked_bound(packed, max_bytes), sum(info.file_size for info in members)
            if unpacked > bound:
                raise ReleaseError(
                    f"{path.name} unpacks to {unpacked:,} bytes, more than the {bound:,} that are read.",
                    f"If you trust its sender, allow it with --max-release-bytes {unpacked} "
                    "(max_bytes of load_release in Python).",
                )
            yield Archive(archive, bound)


def _directory(file: BinaryIO, size: int) -> tuple[int, int]:
    """Return where the zip's directory begins, and its number of entries; it is at the end of the file."""
    file.seek(max(0, size - _END.size - _ZIP64_BYTES))
    tail = file.read(_END.size + _ZIP64_BYTES)
    signature, *fields, comment = _END.unpack(tail[-_END.size :])
    disk, first_disk, entries_here, entries, length, start = fields
    if signature != b"PK\x05\x06" or comment or disk or first_disk or entries_here != entries:
        raise ValueError("it is not a zip file")
    if start + length + _END.size != size or length > _DIRECTORY_BYTES or tail[: len(_ZIP64)] == _ZIP64:
        raise ValueError("its directory is not that of a Release")
    return start, entries


def _check_layout(file: BinaryIO, members: list[zipfile.ZipInfo], directory: int) -> None:
    """Check that the members are contiguous up to the directory, and that their headers agree with it."""
    there = 0
    for info in sorted(members, key=lambda info: info.header_offset):
        file.seek(info.header_offset)
        signature, _, flags, method, _, _, crc, packed, unpacked, name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
        sizes_agree = packed in (info.compress_size, _IN_EXTRA) and unpacked in (info.file_size, _IN_EXTRA)
        if signature != b"PK\x03\x04" or (flags, method, crc) != (info.flag_bits, info.compress_type, info.CRC):
            raise ValueError("a member's header contradicts the directory")
        if not sizes_agree or flags & _UNREADABLE_FLAGS or method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("a member is packed in a way that a Release is not")
        if info.header_offset != there:
            raise ValueError("its members overlap, or there is something between them")
        there = info.header_offset + _LOCAL.size + name + extra + info.compress_size
    if there != directory:
        raise ValueError("its members overlap, or there is something between them")


def read_release(path: Path, *, max_bytes: int | None = None) -> Release:
    """Return the Release in a file, with its bytes verified. The method-specific content is not checked.

    ``max_bytes`` is the most it may unpack to, its strings' memory included; None: :func:`unpacked_bound`. Raises
    ReleaseError if the file is missing, not a Release, damaged, too large unpacked, or from a newer version.
    """
    with _opened(path, max_bytes) as (archive, fields):
        try:
            manifest = _manifest(fields)
        except Overstated:
            raise corrupt(path, "its statement promises more than its charges keep") from None
        hashes = manifest.sha256
        if archive.names - {MANIFEST} != set(hashes) or not {ARRAYS, TERMS} <= archive.names:
            raise ValueError("its members are not those that it lists")
        data = {}
        for name, expected in hashes.items():
            data[name], digest = archive.read(name)
            if digest != expected:
                raise corrupt(path, f"{name} does not match its hash")
        return Release(
            method=manifest.method,
            parameters=manifest.parameters,
            schema=manifest.schema,
            statement=manifest.statement,
            arrays=arrays_from_bytes(data[ARRAYS]),
            terms=strings_from_bytes(data[TERMS], most=archive.bound)["term"],
            noise_check=manifest.noise_check,
            strings=strings_from_bytes(data[STRINGS], most=archive.bound) if STRINGS in data else {},
        )


def require_readable(planned: Release) -> None:
    """Raise ConfigError if the parts of a Release that are known before the release could not be read again."""
    try:
        written = planned.manifest({})
        if len(written) > MOST_JSON_BYTES:
            raise ValueError("its manifest is too long")
        _manifest(parse_json(written))
    except Exception:  # any error of reading
        raise ConfigError(
            "A Release with these settings could not be loaded: its label set or a number of its plan is out of range.",
            "Choose fewer or shorter labels, or an epsilon nearer to 1 (`understudy plan` shows the charges).",
        ) from None


def read_method(path: Path) -> str:
    """Return the name of the method of the Release in a file; nothing else is read."""
    with _opened(path, sys.maxsize) as (_, manifest):
        return str(manifest["method"])


@contextmanager
def _opened(path: Path, max_bytes: int | None) -> Iterator[tuple[Archive, dict[str, Any]]]:
    try:
        with _open_archive(path, names=(MANIFEST, ARRAYS, TERMS, STRINGS), max_bytes=max_bytes) as archive:
            if archive.size(MANIFEST) > MOST_JSON_BYTES:
                raise ValueError("its manifest is too long")
            manifest = parse_json(archive.read(MANIFEST)[0])
            if manifest["format"] != FORMAT:
                raise corrupt(path, "another format")
            version = manifest["format_version"]
            if version != FORMAT_VERSION or isinstance(version, bool):
                raise ReleaseError(
                    f"The Release {path.name} has format version {version!r:.20}; this version of understudy reads "
                    f"{FORMAT_VERSION}.",
                    "Use the version of understudy that made it.",
                )
            yield archive, manifest
    except FileNotFoundError:
        raise ReleaseError(f"There is no Release file {path.name}.", "Check the path.") from None
    except IsADirectoryError:
        raise ReleaseError(
            f"{path.name} is a folder that does not contain exactly one Release.",
            "Name the file in it: FOLDER/release/METHOD.release. It is missing if the run has not ended, and in a "
            "folder of `understudy generate`.",
        ) from None
    except ReleaseError:
        raise
    except Exception:  # a damaged zip fails in many ways
        raise corrupt(path, "it cannot be read as one") from None


def corrupt(path: Path, what: str) -> ReleaseError:
    return ReleaseError(
        f"{path.name} is damaged or is not a Release ({what}).",
        "Ask the sender for a new copy. If you made it, delete it and repeat the release (which is not charged again).",
    )
