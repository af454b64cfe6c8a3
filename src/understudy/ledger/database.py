"""Transactions on SQLite or PostgreSQL: one writer at a time, on disk when they return.

A write begins by taking the ledger's only write lock (``BEGIN IMMEDIATE``, or an advisory lock), so that
whatever it reads stays true until it commits: check-and-charge is serialised by construction.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import quote

import sqlalchemy as sa

from understudy.errors import LedgerError
from understudy.ledger.location import describe

PATIENCE_SECONDS = 120  # how long a transaction waits for others
_WRITE = "understudy_write"
_ADVISORY_KEY = int.from_bytes(b"understd", "big") >> 1  # PostgreSQL's keys are signed 64-bit
_SQLITE_SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: an fsync that reaches the disk
    "PRAGMA foreign_keys = ON",
)


class Database:
    """Makes transactions; keeps no connection open between them, so that it is safe across threads and forks."""

    def __init__(self, url: sa.URL) -> None:
        self.place = describe(url)
        self._secrets = [word for word in (url.password, url.query.get("password")) if isinstance(word, str)]
        self._engine = _sqlite(url) if url.drivername == "sqlite" else _postgresql(url)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that writes nothing and waits for nobody."""
        with self._transaction(write=False) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """The only writing transaction at its time; committed and synced at the end, undone on any error."""
        with self._transaction(write=True) as connection:
            yield connection

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[sa.Connection]:
        try:
            with self._begun(write=write) as connection:  # which undoes what is not committed
                yield connection
                connection.commit()
        except sa.exc.SQLAlchemyError as error:
            raise self._translate(error) from None

    def _begun(self, *, write: bool) -> sa.Connection:
        """A connection in a transaction that has what it waits for.

        SQLite says "locked" at once, without waiting, while another process turns the file to WAL or is the last to
        close it: nothing has been done yet, so begin again.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with ExitStack() as stack:
                    connection = stack.enter_context(self._engine.connect())
                    connection = connection.execution_options(**{_WRITE: write})
                    connection.begin()
                    stack.pop_all()
                    return connection
            except sa.exc.OperationalError as error:
                if "locked" not in str(error.orig) or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.01, 0.05))

    def _translate(self, error: sa.exc.SQLAlchemyError) -> LedgerError:
        """The driver's first line only (no statement, no parameters), without the password."""
        reason = str(getattr(error, "orig", None) or type(error).__name__).partition("\n")[0]
        for secret in self._secrets:
            for form in (secret, quote(secret, safe="")):
                reason = reason.replace(form, "***") if form else reason
        if "locked" in reason or "lock timeout" in reason:
            cure = "Another process holds it: try again when that one has finished."
        elif "malformed" in reason or "not a database" in reason:
            cure = "Restore the file from a backup: what it recorded must not be forgotten."
        else:
            cure = "See that it is there and that you may write it, then run the same command again."
        return LedgerError(f"The ledger {self.place} cannot be used ({reason}).", cure)


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(url, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def configure(connection: sa.engine.interfaces.DBAPIConnection, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        cursor = connection.cursor()
        for setting in (f"PRAGMA busy_timeout = {PATIENCE_SECONDS * 1000}", *_SQLITE_SETTINGS):
            cursor.execute(setting)
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options()[_WRITE]
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        connection.exec_driver_sql("SELECT 1 FROM sqlite_master").close()  # reads take their snapshot now

    return engine


def _postgresql(url: sa.URL) -> sa.Engine:
    try:
        import psycopg  # noqa: F401 - only to see that it is there
    except ImportError:
        raise LedgerError(
            "A ledger in PostgreSQL needs the package psycopg, which is not installed.",
            "Install it with: pip install 'understudy[postgres]'",
        ) from None
    # Read committed: each statement sees what was committed before it, hence what the last holder of the lock
    # wrote. In a stricter level the snapshot would be older than the lock.
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="READ COMMITTED")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options()[_WRITE]:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE_SECONDS}s'")
            connection.exec_driver_sql(
                "SELECT set_config('synchronous_commit', 'on', true) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_KEY})")

    return engine
