"""The zip file that a Release is, read within bounds that are checked before anything is unpacked.

A stranger's file may unpack to a thousand times its size. So the number of members, their names and their sizes are
taken from the zip's directory first; members are then read in pieces, and none may be longer than the directory says.
The layout that understudy writes is the only one that is read: nothing before, between or behind the members.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from understudy.errors import ReleaseError
from understudy.files import is_pipe_or_device

MOST_BYTES = 256 * 1024**2
"""Bytes that a Release unpacks to at most, unless a larger bound is given."""
MOST_RATIO = 100
"""How many times its own size a file of more than ALWAYS_BYTES may unpack to, unless a larger bound is given."""
ALWAYS_BYTES = 64 * 1024**2
"""Bytes that any file may unpack to, however small it is."""

_PIECE = 1 << 20
_DIRECTORY_BYTES = 4096
_END = struct.Struct("<4s4H2LH")
_ZIP64 = b"PK\x06\x07"
_ZIP64_BYTES = 20
_LOCAL = struct.Struct("<4s5H3L2H")
_UNREADABLE_FLAGS = 0x1 | 0x8 | 0x20 | 0x40 | 0x2000  # encrypted, sizes behind the data, patched, masked
_IN_EXTRA = 0xFFFFFFFF


def unpacked_bound(packed: int, max_bytes: int | None) -> int:
    """Bytes that a file of ``packed`` bytes may unpack to."""
    return min(MOST_BYTES, max(ALWAYS_BYTES, MOST_RATIO * packed)) if max_bytes is None else max_bytes


class Archive:
    """The members of a Release file. Use :func:`open_archive`."""

    def __init__(self, archive: zipfile.ZipFile, bound: int) -> None:
        self._archive = archive
        self.bound = bound

    def __contains__(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    @property
    def names(self) -> set[str]:
        return set(self._archive.NameToInfo)

    def size(self, name: str) -> int:
        """Bytes of a member as the directory states them; :meth:`read` returns no more."""
        return self._archive.getinfo(name).file_size

    def read(self, name: str) -> tuple[bytearray, str]:
        """A member's bytes and their SHA-256 in hexadecimal."""
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
def open_archive(path: Path, *, names: Collection[str], max_bytes: int | None = None) -> Iterator[Archive]:
    """Open a Release file whose directory keeps to the bounds.

    Args:
        names: members that it may have, each at most once.
        max_bytes: bytes that it may unpack to; None for the public bounds of this module.

    Raises:
        ReleaseError: it unpacks to more.
        ValueError, OSError, zipfile.BadZipFile: it is no such zip file.
    """
    if is_pipe_or_device(path):
        raise ValueError("it is no ordinary file")
    with path.open("rb") as file:
        packed = os.fstat(file.fileno()).st_size
        directory, entries = _directory(file, packed)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) != entries or {info.orig_filename for info in members} - set(names):
                raise ValueError("it has members that a Release does not have")
            if len(archive.NameToInfo) != entries:
                raise ValueError("a member is there twice")
            _check_layout(file, members, directory)
            bound, unpacked = unpacked_bound(packed, max_bytes), sum(info.file_size for info in members)
            if unpacked > bound:
                raise too_large(path, unpacked, bound)
            yield Archive(archive, bound)


def too_large(path: Path, unpacked: int, bound: int) -> ReleaseError:
    return ReleaseError(
        f"{path.name} unpacks to {unpacked:,} bytes, more than the {bound:,} that are read.",
        f"If you trust its maker, allow it with --max-release-bytes {unpacked} (max_bytes of load_release in Python).",
    )


def _directory(file: BinaryIO, size: int) -> tuple[int, int]:
    """Where the zip's directory begins, and how many entries it has; it is the last thing in the file."""
    file.seek(max(0, size - _END.size - _ZIP64_BYTES))
    tail = file.read(_END.size + _ZIP64_BYTES)
    signature, *fields, comment = _END.unpack(tail[-_END.size :])
    disk, first_disk, entries_here, entries, length, start = fields
    if signature != b"PK\x05\x06" or comment or disk or first_disk or entries_here != entries:
        raise ValueError("it is no zip file")
    if start + length + _END.size != size or length > _DIRECTORY_BYTES or tail[: len(_ZIP64)] == _ZIP64:
        raise ValueError("its directory is not that of a Release")
    return start, entries


def _check_layout(file: BinaryIO, members: list[zipfile.ZipInfo], directory: int) -> None:
    """That the members lie one behind the other up to the directory, and that their own headers say what it says."""
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
