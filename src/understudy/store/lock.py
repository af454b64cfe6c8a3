"""A lock on a folder that dies with its holder, even by ``kill -9``."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

from understudy.errors import ResumeError, StorageError
from understudy.files import AGAIN

WAIT_SECONDS = 3.0
"""For which a holder that is about to end is waited; one that works takes hours."""
_PAUSE_SECONDS = 0.1
_HELD = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}


class FolderLock:
    """Held from construction to :meth:`release`, or the end of the process.

    Raises:
        ResumeError: if another process (or this one) holds it.
        StorageError: if the drive has no locks.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _wait_for_lock(self._file)
        except OSError as error:
            os.close(self._file)
            if error.errno not in _HELD:
                raise StorageError(
                    f"{folder} cannot be locked ({error.strerror}).", f"Move it to a drive with locks, then {AGAIN}"
                ) from None
            raise ResumeError(
                f"Another process is using {folder}.",
                f"Wait until it has finished, then {AGAIN}",
            ) from None

    def release(self) -> None:
        os.close(self._file)  # closing unlocks; the file stays, since deleting it would race


def _wait_for_lock(file: int) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return _lock(file)
        except OSError as error:
            if error.errno not in _HELD or time.monotonic() >= end:
                raise
        time.sleep(_PAUSE_SECONDS)


def _lock(file: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
