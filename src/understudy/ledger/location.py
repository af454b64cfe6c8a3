"""Where a ledger is: a file of this machine, or a PostgreSQL database."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import sqlalchemy as sa

from understudy.errors import LedgerError, UnderstudyWarning
from understudy.files import sync_folder
from understudy.ledger.drives import PASSING, VOUCHED, drive_type_of, is_local


def state_folder_location() -> str:
    """``ledger.sqlite`` in the user's state folder: the one place where a ledger begins by itself."""
    from platformdirs import user_state_dir

    return str(Path(user_state_dir("understudy")) / "ledger.sqlite")


def default_location() -> str:
    """``UNDERSTUDY_LEDGER`` if it is set, else ``ledger.sqlite`` in the user's state folder."""
    return os.environ.get("UNDERSTUDY_LEDGER") or state_folder_location()


def begins_by_itself(location: str | Path | None) -> bool:
    """Whether a ledger that is not there is begun: one that nobody named.

    A named one that is missing was there before, more likely than not: on a drive that is not mounted, say. To begin
    it anew would be a second full budget.
    """
    return location is None and not os.environ.get("UNDERSTUDY_LEDGER")


def parse_location(location: str | Path) -> sa.URL:
    """The database URL of a location. Makes nothing.

    Raises:
        LedgerError: for an unknown kind of URL, or a file on a drive that is not known to be local.
    """
    text = str(location)
    if "://" not in text:
        return _sqlite(Path(text))
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # the message would quote the URL, and so its password
        raise LedgerError("The ledger's URL cannot be read.", _FORMS) from None
    if url.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database:
        return _sqlite(Path(url.database))
    raise LedgerError("A ledger is a file or a PostgreSQL database, and this URL names neither.", _FORMS)


def describe(url: sa.URL) -> str:
    """For messages: never a user's name or password."""
    if url.drivername == "sqlite":
        return str(url.database)
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{url.host or ''}{port}/{url.database or ''}"


def file_of(url: sa.URL) -> Path | None:
    """The ledger's file, None for a server."""
    return Path(str(url.database)) if url.drivername == "sqlite" else None


def make_folder(path: Path) -> None:
    """Make the folder of a new ledger (mode 0700), so that its name outlives a power failure.

    Raises:
        LedgerError: if it cannot be made.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in made:
            sync_folder(folder.parent)
    except OSError as error:
        raise cannot_write(path, error) from None
    kind = drive_type_of(path)
    if kind in PASSING:
        warnings.warn(
            f"The new ledger {path} is on a drive ({kind}) that is gone with its container or at the next start, and "
            "with it what was spent. Keep it on a lasting drive (--ledger PATH or UNDERSTUDY_LEDGER).",
            UnderstudyWarning,
            stacklevel=2,
        )


def cannot_write(path: Path, error: OSError) -> LedgerError:
    """The error for a file that cannot be opened."""
    cure = "Choose a file that you may write (--ledger PATH or UNDERSTUDY_LEDGER)."
    if path.exists():
        cure = "Restore write access to it: another ledger would not know what has been spent."
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
            "Choose a file on a local disk, or share a ledger through PostgreSQL (--ledger postgresql://...); if the "
            f"drive is one of this machine alone, say so with the environment variable {VOUCHED}={kind}.",
        )
    return sa.URL.create("sqlite", database=str(path))
