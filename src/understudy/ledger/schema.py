"""The ledger's tables. Budgets are exact fractions as text ("1/10"); nothing is ever deleted.

A budget is two columns, named after epsilon and delta. Where the dataset's unit is a secret they hold a prior and a
posterior instead: the unit says how they are read, for the cap and for every entry of the dataset.
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa

from understudy.errors import LedgerError

VERSION = 1

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


def read_meta(connection: sa.Connection) -> dict[str, str] | None:
    """The ledger's own settings; None if the database holds no ledger yet.

    Raises:
        LedgerError: if the ledger is from a newer version, or the file is another program's.
    """
    tables = set(sa.inspect(connection).get_table_names())
    if meta.name not in tables:
        if tables and connection.dialect.name == "sqlite":
            raise LedgerError("The file holds a database that is not a ledger.", "Name another file (--ledger PATH).")
        return None
    found = {row.key: row.value for row in connection.execute(sa.select(meta))}
    if not {"version", "fingerprint_key"} <= found.keys() or not tables >= metadata.tables.keys():
        raise LedgerError("The ledger is damaged: parts of it are missing.", "Restore it from a backup.")
    if int(found["version"]) > VERSION:
        raise LedgerError("The ledger was written by a newer version of understudy.", "Upgrade understudy.")
    return found


def create(connection: sa.Connection) -> dict[str, str]:
    """Make the tables and the ledger's own settings, in the caller's transaction."""
    metadata.create_all(connection)
    settings = {"version": str(VERSION), "fingerprint_key": secrets.token_hex(32)}
    connection.execute(sa.insert(meta), [{"key": key, "value": value} for key, value in settings.items()])
    return settings
