"""A lock on the ledger's file itself, by whatever name it is opened.

SQLite's own locks are POSIX record locks, which a process loses as soon as it closes *any* descriptor of the file. So
there is one table of descriptors for the whole process: every transaction enters its file here first and leaves it
last, and a descriptor is closed only when no transaction of this process is in that file. The lock is ``flock``, which
knows nothing of record locks; threads of one process, which share the descriptor, take turns.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_Inode = tuple[int, int]


class StillLocked(Exception):
    """Another process, or thread, has not let go of the file in time."""


class OpenFile:
    """The descriptors of one file in this process, and whose turn it is."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.users = 0
        self._turn = threading.Lock()

    @contextmanager
    def alone(self, deadline: float) -> Iterator[None]:
        """Hold the file's lock; StillLocked if it is not free by ``deadline`` (monotonic), OSError if there are no
        locks.
        """
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise StillLocked
        try:
            while not _lock(self.descriptors[0]):
                if time.monotonic() > deadline:
                    raise StillLocked
                time.sleep(random.uniform(0.002, 0.02))
            try:
                yield
            finally:
                if self.descriptors:  # none in a child that was forked meanwhile: the lock is its parent's
                    _unlock(self.descriptors[0])
        finally:
            self._turn.release()


_files: dict[_Inode, OpenFile] = {}
_guard = threading.Lock()


@contextmanager
def in_use(path: Path, *, create: bool = False) -> Iterator[OpenFile]:
    """Keep a descriptor of the file for as long as a connection to it is open.

    ``path`` has its symbolic links resolved; ``create`` makes it (mode 0600) where it is not there. OSError where it
    cannot be opened for reading and writing.
    """
    file = _enter(path, create=create)
    try:
        yield file
    finally:
        _leave(file)


def _enter(path: Path, *, create: bool) -> OpenFile:
    with _guard:
        try:
            file = _files.get(_inode(path.stat()))
        except FileNotFoundError:
            file = None
        if file is None:
            flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | (os.O_CREAT if create else 0)
            descriptor = os.open(path, flags, 0o600)
            file = _files.setdefault(_inode(os.fstat(descriptor)), OpenFile())
            file.descriptors.append(descriptor)
        file.users += 1
        return file


def _leave(file: OpenFile) -> None:
    with _guard:
        file.users -= 1
        if file.users or not file.descriptors:
            return
        for inode in [inode for inode, each in _files.items() if each is file]:
            del _files[inode]
        for descriptor in file.descriptors:
            os.close(descriptor)
        file.descriptors.clear()


def _inode(status: os.stat_result) -> _Inode:
    return status.st_dev, status.st_ino


def _forget() -> None:
    """In a forked child: its descriptors are its parent's locks, and must neither count as its own nor outlive them."""
    global _guard
    _guard = threading.Lock()
    for file in _files.values():
        for descriptor in file.descriptors:
            os.close(descriptor)
        file.descriptors.clear()
    _files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 40  # Windows' locks keep others from reading: beyond all that SQLite reads or locks

    def _lock(descriptor: int) -> bool:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
