"""Open the SQLite files of the ledger, of the run store and of cached vectors."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

FULL_FSYNC = "PRAGMA fullfsync = ON"
"""macOS: an fsync that reaches the disk."""
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}


def connect(path: Path, *settings: str, wait: float) -> sqlite3.Connection:
    """Open a file that exists, for one thread at a time, and execute some statements.

    The driver does not begin a transaction by itself. ``wait`` is the seconds to wait for another program's lock.
    """
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path), safe='')}?mode=rw",  # never makes a file
        uri=True,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for setting in settings:
            connection.execute(setting)
    except BaseException:
        connection.close()
        raise
    return connection


def error_code(error: BaseException | None) -> int:
    """Return SQLite's primary result code; 0 if the driver itself failed."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error says that the file is not a database, or not the one that was written."""
    return error_code(error) in _DAMAGED or isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in str(error)
