"""The ledger's tables. Budgets are exact fractions as text ("1/10"); nothing is ever deleted.

A budget is two columns, named after epsilon and delta. Where the dataset's unit is a secret they hold a prior and a
posterior instead: the unit says how they are read, for the cap and for every entry of the dataset.
"""

from __future__ import annotations

import json
import re
import secrets
import uuid
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from understudy.base.errors import LedgerError
from understudy.ledger.values import canonical, damaged, now, reading_fields

VERSION = 2
_KEY_BYTES = 32

metadata = sa.MetaData()

meta = sa.Table(
    "understudy_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

datasets = sa.Table(
    "understudy_dataset",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("cap_epsilon", sa.Text, nullable=False),
    sa.Column("cap_delta", sa.Text, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("hash_key", sa.Text, nullable=False),
    sa.Column("opened_at", sa.Text, nullable=False),
)

fingerprints = sa.Table(
    "understudy_fingerprint",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("dataset", sa.ForeignKey(datasets.c.name), nullable=False),
    sa.Column("at", sa.Text, nullable=False),
)

entries = sa.Table(
    "understudy_entry",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("dataset", sa.ForeignKey(datasets.c.name), nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),  # "run" or "cap"
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("epsilon", sa.Text, nullable=False),  # with delta: the run's cost, or the new cap
    sa.Column("delta", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, unique=True),
    sa.Column("method", sa.Text),
    sa.Column("unit", sa.Text),
    sa.Column("charges", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
)

draws = sa.Table(
    "understudy_draw",
    metadata,
    sa.Column("run_id", sa.ForeignKey(entries.c.run_id), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),  # of the charge, or CHARGE/PART
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
)

sketches = sa.Table(
    "understudy_sketch",
    metadata,
    sa.Column("dataset", sa.ForeignKey(datasets.c.name), primary_key=True),
    sa.Column("sketch", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
)
_SINCE_2 = {sketches.name}


@dataclass(frozen=True)
class Meta:
    """The ledger's own settings.

    ``id`` is 32 hexadecimal digits, the same in a copy; ``strict_changes`` when it was made strict (True) or not, in
    order; ``fingerprint_key`` 32 bytes; ``version`` that of the tables.
    """

    id: str
    strict_changes: tuple[tuple[datetime, bool], ...]
    fingerprint_key: bytes = field(repr=False)
    version: int


def read_id(connection: sa.Connection) -> str | None:
    """The ledger's id alone, as it is written."""
    return connection.execute(sa.select(meta.c.value).where(meta.c.key == "id")).scalar_one_or_none()


def read_meta(connection: sa.Connection) -> Meta | None:
    """The ledger's own settings; None if the database holds no ledger yet.

    Raises a LedgerError if it is damaged or from a newer version, or the file is another program's.
    """
    tables = set(sa.inspect(connection).get_table_names())
    if meta.name not in tables:
        if tables and connection.dialect.name == "sqlite":
            raise LedgerError("The file holds a database that is not a ledger.", "Name another file (--ledger PATH).")
        return None
    found = {row.key: row.value for row in connection.execute(sa.select(meta))}
    version = _version(found.get("version"))
    needed = metadata.tables.keys() - (_SINCE_2 if version < 2 else set())
    if not tables >= needed:
        raise damaged()
    if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise damaged()  # an entry of a dataset that is not there
    with reading_fields():
        key = _hexadecimal(found["fingerprint_key"], _KEY_BYTES)
        if version < 2:
            return Meta("", (), key, version)
        changes = json.loads(found["strict"])
        if not isinstance(changes, list):
            raise damaged()
        return Meta(
            _hexadecimal(found["id"], 16).hex(),
            tuple((datetime.fromisoformat(at), {"on": True, "off": False}[state]) for at, state in changes),
            key,
            version,
        )


def create(connection: sa.Connection, *, strict: bool) -> None:
    """Make the tables and the ledger's own settings, in the caller's transaction."""
    metadata.create_all(connection)
    settings = {"version": str(VERSION), "fingerprint_key": secrets.token_hex(_KEY_BYTES), **_since_2()}
    connection.execute(sa.insert(meta), [{"key": key, "value": value} for key, value in settings.items()])
    if strict:
        set_strict(connection, strict=True)


def upgrade(connection: sa.Connection) -> None:
    """Bring a ledger of an older version up to date, in the caller's transaction: nothing that it holds is changed."""
    found = read_meta(connection)
    if found is None or found.version == VERSION:  # another process was quicker
        return
    metadata.create_all(connection)
    connection.execute(sa.insert(meta), [{"key": key, "value": value} for key, value in _since_2().items()])
    connection.execute(sa.update(meta).where(meta.c.key == "version").values(value=str(VERSION)))


def set_strict(connection: sa.Connection, *, strict: bool) -> None:
    """Note that the ledger is strict from now on, or is no longer, behind the changes before."""
    found = read_meta(connection)
    changes = () if found is None else found.strict_changes
    noted = [[at.isoformat(), "on" if state else "off"] for at, state in changes]
    value = canonical([*noted, [now(), "on" if strict else "off"]])
    connection.execute(sa.update(meta).where(meta.c.key == "strict").values(value=value))


def is_strict(connection: sa.Connection) -> bool:
    """Whether a run may open no dataset."""
    found = read_meta(connection)
    return found is not None and bool(found.strict_changes) and found.strict_changes[-1][1]


def _since_2() -> dict[str, str]:
    return {"id": uuid.uuid4().hex, "strict": "[]"}


def _version(text: object) -> int:
    if not isinstance(text, str) or not re.fullmatch(r"[1-9][0-9]{0,8}", text, re.ASCII):
        raise damaged()
    if int(text) > VERSION:
        raise LedgerError("The ledger was written by a newer version of understudy.", "Upgrade understudy.")
    return int(text)


def _hexadecimal(text: str, size: int) -> bytes:
    found = bytes.fromhex(text)
    if len(found) != size or found.hex() != text:
        raise damaged()
    return found
