"""A new store in the place of an old one, so that a crash at any moment leaves the one or the other whole.

SQLite keeps what was committed last in a log beside the file. A file that lost its log has forgotten values that
were sampled and used, yet knows its run and so the run's charge: it would sample them again. So the log is first
emptied into the file. The new store, finished beside it, then takes its place by one rename.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from understudy.base.errors import ResumeError, StorageError
from understudy.base.files import AGAIN, PRIVATE_MODE, atomic_file, storage_error, sync_folder
from understudy.ledger.store.database import WAIT_SECONDS, store_error

_LOCK = "run.lock"
LOCK_SECONDS = 3.0
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
        self._path = folder / _LOCK
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _wait_for_lock(self._file)
            if not self._path.exists() or not os.path.samestat(os.fstat(self._file), self._path.stat()):
                raise OSError(errno.EAGAIN, "its holder removed it")  # and others may hold what is there now
        except OSError as error:
            os.close(self._file)
            if error.errno not in _HELD:
                raise StorageError(
                    f"{folder} cannot be locked ({error.strerror}).", f"Move it to a drive with locks, then {AGAIN}"
                ) from None
            raise ResumeError(
                f"Another process is using {folder}.", f"Wait until it has finished, then {AGAIN}"
            ) from None

    def release(self, *, remove: bool = False) -> None:
        """Let others in. The file stays unless its folder is to go with it; whoever waits for a removed one notices."""
        if remove:
            with suppress(OSError):
                self._path.unlink()
        os.close(self._file)  # which unlocks


def is_in_use(folder: Path) -> bool:
    """Whether a process holds the folder's :class:`FolderLock`. It is tried for a moment, which holders wait out."""
    try:
        file = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        _lock(file)
    except OSError as error:
        return error.errno in _HELD
    finally:
        os.close(file)
    return False


def _wait_for_lock(file: int) -> None:
    end = time.monotonic() + LOCK_SECONDS
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


_LOGS = ("-wal", "-journal", "-shm")


def take_place(new: Path, path: Path) -> None:
    """Put the store ``new``, which nobody has open, in the place of the one at ``path``, if there is one.

    That one is kept as ``NAME-TIME.sqlite``: as a copy, so that there is a store at ``path`` at every moment.
    Raises StorageError if a log cannot be emptied into its store, or a file cannot be written or renamed.
    """
    try:
        _empty_log(new)
        if path.exists() and _empty_log(path):
            with atomic_file(_aside(path), mode=PRIVATE_MODE) as copy, path.open("rb") as old:
                shutil.copyfileobj(old, copy)
        else:
            set_aside(path)
        _remove_logs(path)
        new.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(path, error) from None


def set_aside(path: Path) -> None:
    """Rename the store at ``path``, if there is one, to ``NAME-TIME.sqlite``.

    A corrupt one is renamed as it is: its log, which stays behind for :func:`remove_orphans`, could only bring it
    back under its old name, where no run looks for it any more.
    Raises StorageError if its log cannot be emptied into it, or it cannot be renamed.
    """
    if not path.exists():
        return
    try:
        _empty_log(path)
        path.rename(_aside(path))
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(path, error) from None


def discard(path: Path) -> None:
    """Remove a store in which no run began, with its logs."""
    path.unlink(missing_ok=True)
    _remove_logs(path)


def remove_orphans(path: Path) -> None:
    """Remove the logs of a store that is not there any more: they must not meet a new one."""
    if path.exists():
        return
    _remove_logs(path)
    sync_folder(path.parent)


def _remove_logs(path: Path) -> None:
    for log in _LOGS:
        path.with_name(path.name + log).unlink(missing_ok=True)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}{path.suffix}")


def _empty_log(path: Path) -> bool:
    """Whether all that was committed is in the file now; False if that is damaged."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # which reads the log
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:  # locked, full, not readable: it may be whole
        raise store_error(path, error) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # not a database, or a damaged one
        return False
    if any(log.exists() and log.stat().st_size for log in (path.with_name(path.name + end) for end in _LOGS[:2])):
        raise StorageError(
            f"{path} cannot be set aside: another program reads its log.", "Close it there, then repeat the command."
        )
    return True
