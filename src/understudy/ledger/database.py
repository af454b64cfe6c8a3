"""Run transactions on SQLite or PostgreSQL: one writer at a time, on disk when they return.

A write begins by taking the ledger's only write lock (the file's and ``BEGIN IMMEDIATE``, or an advisory lock), so
that everything it reads stays true until it commits: check-and-charge is serialised by construction.

SQLite keeps a rollback journal, whose locks are on the file and not on one of its names. A write-ahead log belongs to
one name: two writers by different names (a file mounted into a container, a hard link) would each have a separate log,
and lose each other's charges.

The lock on the file itself works for all of its names. SQLite's own locks are POSIX record locks, which a
process loses as soon as it closes *any* descriptor of the file. So there is one table of descriptors for the whole
process: every transaction enters its file in the table first and leaves it last, and a descriptor is closed only when
no transaction of this process is in that file. The lock is ``flock``, which is independent of record locks; threads of
one process share the descriptor and take turns.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from understudy.base.errors import LedgerError
from understudy.base.sqlite import FULL_FSYNC, connect, is_damage
from understudy.ledger.location import cannot_write, describe, file_of
from understudy.ledger.locking import try_lock, unlock
from understudy.ledger.values import damaged

PATIENCE_SECONDS = 120  # that a transaction waits for others
VANISHED_SECONDS = 60  # after which PostgreSQL takes the lock from a client that no longer answers
CONNECT_SECONDS = 30
_WRITE = "understudy_write"
_ADVISORY_KEY = int.from_bytes(b"understd", "big") >> 1  # PostgreSQL's keys are signed 64-bit
_SQLITE_SETTINGS = (
    "PRAGMA synchronous = EXTRA",  # as FULL, and the removal of the journal (the commit) is on disk too
    FULL_FSYNC,
    "PRAGMA foreign_keys = ON",
)
_LOG = "it has a write-ahead log, with which charges could be lost: set its journal_mode to DELETE"
_BUSY = "Another process is using it: try again when that one has finished."
_Inode = tuple[int, int]


class Database:
    """A ledger's database, which runs transactions. No connection stays open between them, so this is safe across
    threads and forks."""

    def __init__(self, url: sa.URL) -> None:
        self.place = describe(url)
        self.file = file_of(url)
        self._secrets = [word for word in (url.password, url.query.get("password")) if isinstance(word, str)]
        self._engine = _postgresql(url) if self.file is None else _sqlite(self.file)

    def read(self) -> AbstractContextManager[sa.Connection]:
        return self._transaction(write=False)

    def write(self, *, create: bool = False) -> AbstractContextManager[sa.Connection]:
        """Run a transaction that may write; only one runs at a time. It is committed and synced at the end, and rolled
        back on any error.

        ``create`` makes the file if it is missing.
        """
        return self._transaction(write=True, create=create)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _transaction(self, *, write: bool, create: bool = False) -> Iterator[sa.Connection]:
        try:
            with (
                self._file_held(write=write, create=create),
                self._engine.connect().execution_options(**{_WRITE: write}) as connection,
                connection.begin(),  # which undoes uncommitted changes
            ):
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise self._translate(error) from None
        except UnicodeDecodeError:  # of the driver: SQLite's own message quotes a damaged schema
            raise damaged() from None

    @contextmanager
    def _file_held(self, *, write: bool, create: bool) -> Iterator[None]:
        with ExitStack() as stack:
            if self.file is not None:
                try:
                    opened = stack.enter_context(in_use(self.file, create=create))
                    if write:
                        stack.enter_context(opened.alone(time.monotonic() + PATIENCE_SECONDS))
                except StillLocked:
                    raise LedgerError(f"The ledger {self.place} cannot be used (it is locked).", _BUSY) from None
                except OSError as error:
                    raise cannot_write(self.file, error, new=create) from None
            yield

    def _translate(self, error: sa.exc.SQLAlchemyError) -> LedgerError:
        """Return an error with only the driver's first line (no statement, no parameters), without the password."""
        cause = getattr(error, "orig", None)
        reason = str(cause or type(error).__name__).partition("\n")[0]
        for secret in self._secrets:
            for form in (secret, quote(secret, safe="")):
                reason = reason.replace(form, "***") if form else reason
        if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
            return LedgerError(
                f"The connection to the ledger {self.place} was lost ({reason}).",
                "Run the same command again: nothing is charged twice.",
            )
        if "decode to UTF-8" in reason:  # SQLite quotes the field
            return damaged()
        if "locked" in reason or "lock timeout" in reason:
            cure = _BUSY
        elif is_damage(cause):
            cure = "Restore the file from a backup: its records must not be lost."
        else:
            cure = "Check that it exists and that you may write to it, then run the same command again."
        return LedgerError(f"The ledger {self.place} cannot be used ({reason}).", cure)


@lru_cache(8)  # it keeps no connection, only compiled statements
def _sqlite(file: Path) -> sa.Engine:
    def creator() -> sqlite3.Connection:
        return connect(file, *_SQLITE_SETTINGS, wait=PATIENCE_SECONDS)

    engine = sa.create_engine("sqlite://", creator=creator, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options()[_WRITE]
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        connection.exec_driver_sql("SELECT 1 FROM sqlite_master").close()  # reads take their snapshot now
        if writes and connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal":
            raise sa.exc.OperationalError("BEGIN", None, sqlite3.OperationalError(_LOG))

    return engine


def _postgresql(url: sa.URL) -> sa.Engine:
    try:
        import psycopg  # noqa: F401 - only to see that it is there
    except ImportError:
        raise LedgerError(
            "A ledger in PostgreSQL needs the package psycopg, which is not installed.",
            "Install it with: pip install 'understudy[postgres]'",
        ) from None
    # Read committed: each statement sees all earlier commits, hence the writes of the last holder of the lock.
    # In a stricter level the snapshot would be older than the lock.
    settings = {  # a server that has vanished is noticed in minutes, not in hours
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": VANISHED_SECONDS,
        "keepalives_interval": 10,
        "keepalives_count": 6,
        "tcp_user_timeout": PATIENCE_SECONDS * 1000,
    }
    engine = sa.create_engine(
        url,
        poolclass=sa.NullPool,
        isolation_level="READ COMMITTED",
        connect_args={name: value for name, value in settings.items() if name not in url.query},
    )

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options()[_WRITE]:
            connection.exec_driver_sql(
                f"SELECT set_config('lock_timeout', '{PATIENCE_SECONDS}s', true), "
                f"set_config('idle_in_transaction_session_timeout', '{VANISHED_SECONDS}s', true), "
                "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)"
            )
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_KEY})")

    return engine


class StillLocked(Exception):
    pass


class OpenFile:
    """The open descriptors of one file in this process, and the lock that the process's threads share."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.users = 0
        self._turn = threading.Lock()

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())

    @contextmanager
    def alone(self, deadline: float) -> Iterator[None]:
        """Lock the file while the context is open. Raises StillLocked if it is not free by ``deadline`` (monotonic
        time), OSError if the drive has no locks.
        """
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise StillLocked
        try:
            while not try_lock(self.descriptors[0]):
                if time.monotonic() > deadline:
                    raise StillLocked
                time.sleep(random.uniform(0.002, 0.02))
            try:
                yield
            finally:
                if self.descriptors:  # empty in a child that was forked meanwhile: the lock is its parent's
                    unlock(self.descriptors[0])
        finally:
            self._turn.release()


_files: dict[_Inode, OpenFile] = {}
_guard = threading.Lock()


@contextmanager
def in_use(path: Path, *, create: bool = False) -> Iterator[OpenFile]:
    """Keep a descriptor of the file for as long as a connection to it is open.

    ``path`` has its symbolic links resolved; ``create`` makes the file (mode 0600) if it is missing. OSError if it
    cannot be opened for reading and writing.
    """
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
    try:
        yield file
    finally:
        with _guard:
            file.users -= 1
            if not file.users:
                for inode in [inode for inode, each in _files.items() if each is file]:
                    del _files[inode]
                file.close()


def _inode(status: os.stat_result) -> _Inode:
    return status.st_dev, status.st_ino


def _forget() -> None:
    """Forget the descriptors in a forked child: they are its parent's locks, and must not count as its own."""
    global _guard
    _guard = threading.Lock()
    for file in _files.values():
        file.close()
    _files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
