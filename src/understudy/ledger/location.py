"""Where a ledger is: a file of this machine, or a PostgreSQL database."""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa

from understudy.errors import LedgerError
from understudy.ledger.drives import network_type_of


def default_location() -> str:
    """``UNDERSTUDY_LEDGER`` if it is set, else ``ledger.sqlite`` in the user's state folder."""
    from platformdirs import user_state_dir

    return os.environ.get("UNDERSTUDY_LEDGER") or str(Path(user_state_dir("understudy")) / "ledger.sqlite")


def parse_location(location: str | Path) -> sa.URL:
    """The database URL of a location; a file's folder is made (mode 0700), and the file (mode 0600).

    Raises:
        LedgerError: for an unknown kind of URL, a file on a network drive, or a folder that cannot be made.
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


_FORMS = "Give a path or postgresql://USER:PASSWORD@HOST/DATABASE (special characters in percent form)."


def _sqlite(path: Path) -> sa.URL:
    path = path.expanduser().resolve()
    drive = network_type_of(path)
    if drive is not None:
        raise LedgerError(
            f"The ledger {path} is on a network drive ({drive}), where SQLite's locks cannot be trusted.",
            "Choose a file on a local disk, or share a ledger through PostgreSQL (--ledger postgresql://...).",
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise LedgerError(
            f"The ledger {path} cannot be written ({error.strerror}).",
            "Choose a file that you may write (--ledger PATH or UNDERSTUDY_LEDGER).",
        ) from None
    return sa.URL.create("sqlite", database=str(path))
