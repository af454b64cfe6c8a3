"""Keep the run store's SQLite file: settings, tables, and transactions that are on disk when they end. A new file
replaces an old one in such a way that a crash at any moment leaves one of the two whole.

SQLite keeps the last commits in a log in a second file. A store that lost its log has lost values that
were sampled and used, but still knows its run and so the run's charge: it would sample them again. So the log is first
emptied into the file. The new store, finished under a temporary name, then replaces it by one rename.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from understudy.base.errors import ResumeError, StorageError, UnderstudyError
from understudy.base.files import AGAIN, PRIVATE_MODE, atomic_file, storage_error, sync_folder
from understudy.base.sqlite import FULL_FSYNC, connect, error_code, is_damage

VERSION = 1
WAIT_SECONDS = 30.0
"""The wait for a lock that another program holds on the file."""
_APPLICATION_ID = 0x75737279  # "usry", in the file's header
_SETTINGS = (
    "PRAGMA locking_mode = EXCLUSIVE",  # one process per folder anyway: no shared memory, so it works on any drive
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    FULL_FSYNC,
)
_TABLES = (
    "CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE value (name TEXT PRIMARY KEY, arrays BLOB NOT NULL, noise TEXT NOT NULL, seal TEXT)",
    "CREATE TABLE answer (key TEXT PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE TABLE blank_answer (key TEXT PRIMARY KEY, text TEXT NOT NULL, times INTEGER NOT NULL)",
    "CREATE TABLE batch_job (token TEXT PRIMARY KEY, id TEXT)",
    "CREATE TABLE batch_request (key TEXT PRIMARY KEY, token TEXT NOT NULL, tries INTEGER NOT NULL)",
    "CREATE TABLE stage (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
)


class Database:
    """One connection, used by one thread at a time.

    Raises:
        ResumeError: here and in every transaction, if the file is damaged, another program's or another version's.
        StorageError: likewise, if the disk is full, another program has locked the file, or it cannot be read or
            written: earlier data are stored, and the same command resumes from them.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._open(path)

    def _open(self, path: Path) -> None:
        self._path = path
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise storage_error(path, error) from None
        with self._translated():
            self._connection = connect(path, *_SETTINGS, wait=WAIT_SECONDS)
        try:
            with self.transaction() as connection:
                self._prepare(connection)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a query."""
        with self._lock, self._translated():
            return self._connection.execute(query, values).fetchall()

    def of_keys(self, query: str, keys: Sequence[str]) -> list[Any]:
        """Return the rows of a query that ends in a column, if its value is one of ``keys``."""
        return self.rows(f"{query} IN (SELECT value FROM json_each(?))", json.dumps(list(keys)))

    def close(self) -> None:
        self._connection.close()

    def move(self, path: Path, put: Callable[[Path, Path], None]) -> None:
        self.close()
        put(self._path, path)
        self._open(path)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (found,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == 0 and found == 0:
            for table in _TABLES:
                connection.execute(table)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        elif found != _APPLICATION_ID:
            raise ResumeError(f"{self._path} is not a run store.", "Use another --output, or move that file away.")
        elif version != VERSION:
            raise ResumeError(
                f"{self._path} has format version {version}; this version of understudy reads {VERSION}.",
                "Use the version of understudy that wrote it: the same command then resumes. Or use another --output.",
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise store_error(self._path, error) from None


RESTORE = (
    "Restore it from a backup; without one, --fresh charges the budget again, while `understudy generate` with a "
    "Release that exists already is free."
)
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def store_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> UnderstudyError:
    """Return SQLite's error in the user's terms: a damaged file, or a temporary fault."""
    code = error_code(error)
    if is_damage(error):  # without a code the driver's message quotes a text that is not UTF-8
        return ResumeError(f"{path} is damaged ({error if code else 'it contains text that is not UTF-8'}).", RESTORE)
    if code == sqlite3.SQLITE_FULL:
        return StorageError(f"The disk is full: {path} cannot be written.", f"Free some space, then {AGAIN}")
    if code in _LOCKED:
        return StorageError(f"Another program has locked {path}.", f"Close it there, then {AGAIN}")
    return StorageError(f"{path} cannot be read or written ({error}).", f"Fix that, then {AGAIN}")


MOST_BLANK = 3
"""How often a request is sent that is answered without text, over all runs of one output folder."""


class AnswerStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def get_many(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the stored answers for ``keys``. An answer without text is returned only after it came MOST_BLANK
        times."""
        blank = dict(
            self._database.of_keys(f"SELECT key, text FROM blank_answer WHERE times >= {MOST_BLANK} AND key", keys)
        )
        return blank | dict(self._database.of_keys("SELECT key, text FROM answer WHERE key", keys))

    def put_many(self, answers: Mapping[str, str]) -> None:
        """Store answers in one transaction, on disk when this returns; a key keeps its first answer.

        One call is one write to the disk: pass about twenty at a time.
        """
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers.items())

    def put_blank(self, answers: Mapping[str, str]) -> None:
        """Record an answer without text for each key, in one transaction that is on disk when this returns.

        Nothing is counted while no answer with text is stored: if a model writes nothing at all, the questions are not
        at fault, and all of them are asked again.
        """
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT INTO blank_answer SELECT ?, ?, 1 WHERE EXISTS (SELECT 1 FROM answer) "
                "ON CONFLICT (key) DO UPDATE SET times = times + 1, text = excluded.text",
                answers.items(),
            )


class JobStore:
    """Records which request was submitted in which batch. Made by :class:`understudy.ledger.store.RunStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def assign(self, token: str, tries: Mapping[str, int]) -> None:
        """Record, before the batch ``token`` is submitted, which requests it contains, and how often each was tried."""
        rows = [(key, token, count) for key, count in tries.items()]
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO batch_job VALUES (?, NULL)", (token,))
            connection.executemany("INSERT OR REPLACE INTO batch_request VALUES (?, ?, ?)", rows)

    def assigned(self, keys: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return, for each of ``keys`` that was submitted, the batch that contains it and how often it was tried."""
        found = self._database.of_keys("SELECT key, token, tries FROM batch_request WHERE key", keys)
        return {key: (token, tries) for key, token, tries in found}

    def release(self, keys: Sequence[str]) -> None:
        """Forget that the requests ``keys`` were submitted."""
        with self._database.transaction() as connection:
            connection.executemany("DELETE FROM batch_request WHERE key = ?", [(key,) for key in keys])

    def batch(self, token: str) -> str | None:
        """Return the name that the endpoint gave the batch ``token``; None if the process ended before it was known."""
        return next((name for (name,) in self._database.rows("SELECT id FROM batch_job WHERE token = ?", token)), None)

    def name_batch(self, token: str, batch: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("UPDATE batch_job SET id = ? WHERE token = ?", (batch, token))

    def waiting(self) -> int:
        """Return the number of submitted requests without a stored answer."""
        return len(self._database.rows("SELECT 1 FROM batch_request WHERE key NOT IN (SELECT key FROM answer)"))


_EMPTYING = (
    "PRAGMA locking_mode = EXCLUSIVE",
    FULL_FSYNC,
    "SELECT 1 FROM sqlite_master",  # which reads the log
    "PRAGMA wal_checkpoint(TRUNCATE)",
)
_LOGS = ("-wal", "-journal", "-shm")


def take_place(new: Path, path: Path) -> None:
    """Move the store ``new``, which nobody has open, to ``path``, replacing the one there.

    The old one is kept as ``NAME-TIME.sqlite``: as a copy, so that there is a store at ``path`` at every moment.
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

    A corrupt one is renamed as it is. Its log stays for :func:`remove_orphans`: it could only restore the store under
    its old name, which no run uses any more.
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
    path.unlink(missing_ok=True)
    _remove_logs(path)


def remove_orphans(path: Path) -> None:
    """Remove the logs of a store that no longer exists: a new one must not use them."""
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
    """Return whether all commits are in the file now; False if the file is damaged."""
    try:
        connect(path, *_EMPTYING, wait=WAIT_SECONDS).close()
    except sqlite3.OperationalError as error:  # locked, full or not readable: the file may be undamaged
        raise store_error(path, error) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # not a database, or a damaged one
        return False
    if any(log.exists() and log.stat().st_size for log in (path.with_name(path.name + end) for end in _LOGS[:2])):
        raise StorageError(
            f"{path} cannot be set aside: another program reads its log.",
            "Close that program, then repeat the command.",
        )
    return True
