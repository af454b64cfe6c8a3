"""The run store's SQLite file: settings, tables, transactions that are on disk when they end."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.errors import ResumeError

VERSION = 1
_APPLICATION_ID = 0x75737279  # "usry", in the file's header
_SETTINGS = (
    "PRAGMA locking_mode = EXCLUSIVE",  # one process a folder anyway: no shared memory, so any drive will do
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: an fsync that reaches the disk
)
_TABLES = (
    "CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE value (name TEXT PRIMARY KEY, arrays BLOB NOT NULL)",
    "CREATE TABLE answer (key TEXT PRIMARY KEY, text TEXT NOT NULL)",
    "CREATE TABLE stage (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
)


class Database:
    """One connection, used by one thread at a time.

    Raises:
        ResumeError: here and in every transaction, if the file is corrupt, another program's, from a newer
            version, or cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with self._translated():
                for setting in _SETTINGS:
                    self._connection.execute(setting)
            with self.transaction() as connection:
                self._prepare(connection)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; committed and synced when the block ends without an error."""
        with self._lock, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For single SELECT statements."""
        with self._lock, self._translated():
            yield self._connection

    def close(self) -> None:
        self._connection.close()

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
            raise ResumeError(f"{self._path} is not a run store.", _ELSEWHERE)
        elif version > VERSION:
            raise ResumeError(
                f"{self._path} was written by a newer version of understudy.",
                "Upgrade understudy, or use another --output.",
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ResumeError(f"{self._path} cannot be used ({error}).", _ELSEWHERE) from None


_ELSEWHERE = "Use another --output, or start anew with --fresh (which charges the budget again)."
