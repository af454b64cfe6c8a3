"""Lock files. The kernel releases the locks when their process ends."""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from understudy.base.errors import ResumeError, StorageError
from understudy.base.files import AGAIN

_HELD = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_FAR = 1 << 40  # Windows' locks prevent reading, so this is beyond everything that SQLite reads or locks

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, mode: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, mode, 1)

    _TAKE, _LEAVE = msvcrt.LK_NBLCK, msvcrt.LK_UNLCK
else:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_UN
    from fcntl import flock as _lock

    _TAKE, _LEAVE = LOCK_EX | LOCK_NB, LOCK_UN


def try_lock(descriptor: int) -> bool:
    """Take the file's lock, if no other process has it; OSError if the drive has no locks."""
    try:
        _lock(descriptor, _TAKE)
    except OSError as error:
        if error.errno not in _HELD:
            raise
        return False
    return True


def unlock(descriptor: int) -> None:
    _lock(descriptor, _LEAVE)


_LOCK = "run.lock"
LOCK_SECONDS = 3.0
"""The wait for a holder that is about to end; one that is working takes hours."""
_PAUSE_SECONDS = 0.1


class FolderLock:
    """A lock on a folder, held from construction to :meth:`release` or the end of the process.

    Raises:
        ResumeError: if another process (or this one) holds it.
        StorageError: if the drive has no locks.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _LOCK
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            mine = _locked_in_time(self._file) and self._path.exists()
            if not mine or not os.path.samestat(os.fstat(self._file), self._path.stat()):  # its holder removed it
                raise ResumeError(f"Another process is using {folder}.", f"Wait until it has finished, then {AGAIN}")
        except OSError as error:
            os.close(self._file)
            raise StorageError(
                f"{folder} cannot be locked ({error.strerror}).", f"Move it to a drive with locks, then {AGAIN}"
            ) from None
        except ResumeError:
            os.close(self._file)
            raise

    def release(self, *, remove: bool = False) -> None:
        """Release the lock. The file stays unless its folder is removed too: a waiting process notices that."""
        if remove:
            with suppress(OSError):
                self._path.unlink()
        os.close(self._file)  # which unlocks


def is_in_use(folder: Path) -> bool:
    """Return whether a process holds the folder's :class:`FolderLock`. Takes the lock for a moment; others wait for
    it."""
    try:
        file = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        return not try_lock(file)
    except OSError:
        return False
    finally:
        os.close(file)


def _locked_in_time(file: int) -> bool:
    end = time.monotonic() + LOCK_SECONDS
    while not try_lock(file):
        if time.monotonic() >= end:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True
