"""Is the ledger's file one file with one name, and its owner's alone?"""

from __future__ import annotations

import os
import re
import stat
import warnings
from contextlib import suppress
from pathlib import Path

from understudy.errors import LedgerError, UnderstudyWarning

_MOUNTS = Path("/proc/self/mountinfo")


def require_one_name(path: Path) -> None:
    """See that the file has one name: what a crash leaves to be undone lies beside *one* name of it.

    Whoever opens the file by another name after a crash would not find it, and would read half a transaction.

    Args:
        path: absolute, symbolic links resolved.

    Raises:
        LedgerError: if it has several (hard links), or is itself mounted (``docker -v FILE:FILE``, ``subPath``).
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise LedgerError(
            f"The ledger {path} has several names (hard links), by which charges could be lost.",
            "Remove all but one, and link the folder that holds it instead.",
        )
    if str(path) in _mount_points():
        raise LedgerError(
            f"The ledger {path} is mounted as a single file, and has another name elsewhere, by which charges could "
            "be lost.",
            "Mount the folder that holds it instead.",
        )


def keep_to_owner(path: Path) -> None:
    """See that nobody else can read or write the file, and say so where it had to be changed, or cannot be."""
    if os.name != "posix":
        return
    status = path.stat()
    if status.st_mode & 0o077:
        with suppress(OSError):
            path.chmod(0o600)
        if path.stat().st_mode & 0o077:
            _warn(f"The ledger {path} can be read or written by others. Make it private: chmod 600 {path}")
        else:
            _warn(
                f"The ledger {path} could be read or written by others; it is now its owner's alone (mode 0600). "
                "Share a ledger through PostgreSQL (--ledger postgresql://...)."
            )
    folder = path.parent.stat()
    by_group = folder.st_mode & stat.S_IWGRP and folder.st_gid != folder.st_uid  # alike: a group of one, as on Debian
    if (by_group or folder.st_mode & stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX:
        _warn(f"Others can write to the folder of the ledger {path}, and so replace it: chmod go-w {path.parent}")


def _warn(line: str) -> None:
    warnings.warn(line, UnderstudyWarning, stacklevel=2)  # Python shows the same line once per process


def _mount_points() -> set[str]:
    try:
        table = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return set()  # not Linux
    fields = [line.split(" ") for line in table.split("\n")]  # not splitlines: a path may hold U+2028
    return {unescaped(field[4]) for field in fields if len(field) > 4}


def unescaped(field: str) -> str:
    r"""A path of a mount table, which writes a space as ``\040``."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), field)
