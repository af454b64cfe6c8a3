"""Locate a ledger: a PostgreSQL database, or a file with one name, private to its owner, on a drive of this machine.

SQLite's locks cannot be trusted on drives of other machines. And after a crash, the journal that undoes a transaction
belongs to *one* name of the file: opened by a different name, the ledger would show half a transaction.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePath

import sqlalchemy as sa

from understudy.base.errors import LedgerError, UnderstudyWarning
from understudy.base.files import sync_folder

VOUCHED = "UNDERSTUDY_LOCAL_DRIVES"
"""The environment variable with file system types, separated by commas, that the user declares local."""

PASSING = frozenset({"overlay", "ramfs", "rootfs", "tmpfs"})
"""Local, but deleted with the container or at the next start."""

LOCAL = PASSING | {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "nilfs2", "reiserfs", "bcachefs"),
    *("ubifs", "jffs2", "fuseblk"),  # fuseblk: a block device by a driver outside the kernel, as ntfs-3g
    *("ntfs", "ntfs3", "vfat", "msdos", "exfat", "udf"),
    *("apfs", "hfs", "hfsplus", "ufs", "ffs", "hammer2"),
}
"""File system types whose locks are the kernel's. All others may have their locks on another machine, or no locks:
network drives, shares with a virtual machine's host (virtiofs, vboxsf, 9p), object stores and all of FUSE."""

UNKNOWN = "unknown"
_MOUNTS = Path("/proc/self/mountinfo")
_LINUX_MOUNT = re.compile(r"^(?:[^ \n]+ ){4}(/[^ \n]*) (?:[^ \n]+ )+?- ([^ \n]+)", re.MULTILINE)  # not \S: a path may
_BSD_MOUNT = re.compile(r"^.* on (/.*) \(([^,()]+)[^()]*\)$", re.MULTILINE)  # contain U+2028
_WINDOWS = {2: "removable", 3: "fixed", 4: "mapped", 5: "cdrom", 6: "ramdisk"}
_WINDOWS_LOCAL = {"removable", "fixed", "ramdisk"}


def mounts_of(table: str) -> list[tuple[str, str]]:
    """Return mount points and their types, in order, from the text of Linux's ``mountinfo`` or of macOS's ``mount``."""
    found = _LINUX_MOUNT.findall(table) or _BSD_MOUNT.findall(table)
    return [(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point), kind) for point, kind in found]


def drive_type(mounts: Iterable[tuple[str, str]], path: PurePath) -> str:
    """Return the type of the file system that contains ``path`` (absolute, symbolic links resolved), or ``unknown``."""
    depths = {len(PurePath(point).parts): kind for point, kind in mounts if path.is_relative_to(point)}
    return depths[max(depths)] if depths else UNKNOWN  # a later mount on the same point hides the earlier


def drive_type_of(path: Path) -> str:
    """Return the type of the file system that holds the path, such as ``ext4`` or ``nfs``, as this machine mounts it;
    ``unc`` for a UNC path (``//server/share``)."""
    path = path.resolve()
    if path.as_posix().startswith("//"):
        return "unc"
    if sys.platform == "win32":
        import ctypes

        return _WINDOWS.get(ctypes.windll.kernel32.GetDriveTypeW(path.anchor), UNKNOWN)
    return drive_type(_mounts(), path)


def is_local(kind: str) -> bool:
    """Return whether drives of this type are local: known to be, or declared by the user."""
    vouched = {word.strip() for word in os.environ.get(VOUCHED, "").split(",")}
    return kind in LOCAL or kind in vouched or (sys.platform == "win32" and kind in _WINDOWS_LOCAL)


def _mounts() -> list[tuple[str, str]]:
    with suppress(OSError):
        if _MOUNTS.exists():
            return mounts_of(_MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
        return mounts_of(subprocess.run(["mount"], capture_output=True, text=True, check=False).stdout)
    return []


def require_one_name(path: Path) -> None:
    """Check that the file at ``path`` (absolute, symbolic links resolved) has one name: no hard link, and not
    itself mounted (``docker -v FILE:FILE``, ``subPath``). Else LedgerError."""
    try:
        status = path.stat()
    except OSError:  # opening it says why
        return
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise LedgerError(
            f"The ledger {path} has several names (hard links), so charges could be lost.",
            "Remove all names but one. To reach it elsewhere, link or mount its folder.",
        )
    if _MOUNTS.exists() and str(path) in dict(_mounts()):
        raise LedgerError(
            f"The ledger {path} is mounted as a single file and has a second name elsewhere, so charges could be lost.",
            "Mount its folder instead.",
        )


def keep_to_owner(path: Path) -> None:
    """Make the file private to its owner; warn if its mode had to be changed or cannot be."""
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
                f"The ledger {path} could be read or written by others; now only its owner can use it (mode 0600). "
                "Share a ledger through PostgreSQL (--ledger postgresql://...)."
            )
    folder = path.parent.stat()
    by_group = folder.st_mode & stat.S_IWGRP and folder.st_gid != folder.st_uid  # equal: a group of one, as on Debian
    if (by_group or folder.st_mode & stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX:
        _warn(f"Others can write to the folder of the ledger {path}, and so replace it: chmod go-w {path.parent}")


def _warn(line: str) -> None:
    warnings.warn(line, UnderstudyWarning, stacklevel=2)  # Python shows the same line once per process


def state_folder_location() -> str:
    from platformdirs import user_state_dir

    return str(Path(user_state_dir("understudy")) / "ledger.sqlite")


def default_location() -> str:
    """Return ``UNDERSTUDY_LEDGER`` if it is set, else ``ledger.sqlite`` in the user's state folder."""
    return os.environ.get("UNDERSTUDY_LEDGER") or state_folder_location()


def begins_by_itself(location: str | Path | None) -> bool:
    """Return whether a missing ledger is created: only if neither the user nor the environment named one.

    A named ledger that is missing probably existed before, for example on a drive that is not mounted now. A new one
    would grant the full budget a second time.
    """
    return location is None and not os.environ.get("UNDERSTUDY_LEDGER")


def parse_location(location: str | Path) -> sa.URL:
    """Return the database URL of a location. Creates nothing."""
    text = str(location)
    if "://" not in text:
        return _sqlite(Path(text))
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # the message would quote the URL, and so its password
        raise LedgerError("The ledger's URL cannot be read.", _FORMS) from None
    if url.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        if "@" in f"{url.host}{url.database}{text.partition('?')[2]}":
            raise LedgerError(
                "The ledger's URL has an extra @, and the text before it may be part of a password.",
                f"Write @ as %40 and ? as %3F. {_FORMS}",
            )
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database:
        return _sqlite(Path(url.database))
    raise LedgerError("A ledger is a file or a PostgreSQL database, and this URL names neither.", _FORMS)


def describe(url: sa.URL) -> str:
    """Return the location for messages, without user name and password."""
    if url.drivername == "sqlite":
        return str(url.database)
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{url.host or ''}{port}/{url.database or ''}"


def file_of(url: sa.URL) -> Path | None:
    return Path(str(url.database)) if url.drivername == "sqlite" else None


def make_folder(path: Path) -> None:
    """Make the folder of a new ledger (mode 0700), synced so that it survives a power failure; LedgerError if that
    fails.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in made:
            sync_folder(folder.parent)
    except OSError as error:
        raise cannot_write(path, error, new=True) from None
    kind = drive_type_of(path)
    if kind in PASSING:
        warnings.warn(
            f"The new ledger {path} is on a drive ({kind}) that is deleted with its container or at the next start, "
            "and the record of the spending with it. Keep it on a lasting drive (--ledger PATH or UNDERSTUDY_LEDGER).",
            UnderstudyWarning,
            stacklevel=2,
        )


def cannot_write(path: Path, error: OSError, *, new: bool) -> LedgerError:
    """Return the error for a file that cannot be opened, or cannot be made if it is ``new``."""
    cure = "Restore write access to it: a new ledger would not know the earlier spending."
    if new:
        cure = "Choose a file that you may write (--ledger PATH or UNDERSTUDY_LEDGER)."
    elif isinstance(error, FileNotFoundError):
        return LedgerError(
            f"The ledger {path} is gone.",
            "Restore it (is its drive mounted?): a new ledger would not know the earlier spending.",
        )
    return LedgerError(f"The ledger {path} cannot be written ({error.strerror}).", cure)


_FORMS = "Give a path or postgresql://USER:PASSWORD@HOST/DATABASE (special characters in percent form)."


def _sqlite(path: Path) -> sa.URL:
    try:
        path = path.expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        raise LedgerError("The ledger's path cannot be resolved.", "Name another file (--ledger PATH).") from None
    kind = drive_type_of(path)
    if not is_local(kind):
        raise LedgerError(
            f"The ledger {path} is on a drive of the type {kind!r}, which is not known to be local: file locks cannot "
            "be trusted there, and charges could be lost.",
            "Choose a file on a local disk, or share a ledger through PostgreSQL (--ledger postgresql://...); if "
            f"only this machine uses the drive, declare it with the environment variable {VOUCHED}={kind}.",
        )
    return sa.URL.create("sqlite", database=str(path))
