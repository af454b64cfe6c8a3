"""A lock on a folder that dies with its holder, even by ``kill -9``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from understudy.errors import ResumeError


class FolderLock:
    """Held from construction to :meth:`release`, or the end of the process.

    Raises:
        ResumeError: if another process (or this one) holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._file)
        except OSError:
            os.close(self._file)
            raise ResumeError(
                f"Another process is using {folder}.", "Wait until it has finished, or use another --output."
            ) from None

    def release(self) -> None:
        os.close(self._file)  # closing unlocks; the file stays, since deleting it would race


def _lock(file: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
