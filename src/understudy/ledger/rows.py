"""Define the ledger's tables, and read rows as values. Budgets are exact fractions as text ("1/10"). No row is deleted.

A budget is two columns, named after epsilon and delta. If the dataset's unit is a secret, they contain a prior and a
posterior instead: the unit determines how they are read, for the cap and for every entry of the dataset.
"""

from __future__ import annotations

import json
import re
import secrets
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any, get_args

import sqlalchemy as sa

from understudy.base.errors import LedgerError
from understudy.ledger.values import Dataset, Entry, Sketch, canonical_json, damaged, now, reading_fields, require_name
from understudy.privacy.accountant import CrossRunRule
from understudy.privacy.exact import exact
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.unit import Unit

VERSION = 1
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


@dataclass(frozen=True)
class Meta:
    """The ledger's own settings.

    ``id`` is 32 hexadecimal digits, the same in a copy; ``strict_changes`` says when it was made strict (True) or not,
    in order; ``fingerprint_key`` is 32 bytes.
    """

    id: str
    strict_changes: tuple[tuple[datetime, bool], ...]
    fingerprint_key: bytes = field(repr=False)


def read_meta(connection: sa.Connection) -> Meta | None:
    """Return the ledger's own settings; None if the database does not contain a ledger yet."""
    tables = set(sa.inspect(connection).get_table_names())
    if meta.name not in tables:
        if tables and connection.dialect.name == "sqlite":
            raise LedgerError("The file is a database that is not a ledger.", "Name another file (--ledger PATH).")
        return None
    found = {row.key: row.value for row in connection.execute(sa.select(meta))}
    version = found.get("version")
    if not isinstance(version, str) or not re.fullmatch(r"[1-9][0-9]{0,8}", version, re.ASCII):
        raise damaged()
    if int(version) != VERSION:
        raise LedgerError(
            f"The ledger has format version {version}; this version of understudy reads {VERSION}.",
            "Use the version of understudy that wrote it.",
        )
    if not tables >= metadata.tables.keys():
        raise damaged()
    if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise damaged()  # an entry of a missing dataset
    with reading_fields():
        changes = json.loads(found["strict"])
        if not isinstance(changes, list):
            raise damaged()
        return Meta(
            _hexadecimal(found["id"], 16).hex(),
            tuple((datetime.fromisoformat(at), {"on": True, "off": False}[state]) for at, state in changes),
            _hexadecimal(found["fingerprint_key"], _KEY_BYTES),
        )


def create(connection: sa.Connection, *, strict: bool) -> None:
    metadata.create_all(connection)
    key = secrets.token_hex(_KEY_BYTES)
    settings = {"version": str(VERSION), "fingerprint_key": key, "id": uuid.uuid4().hex, "strict": "[]"}
    connection.execute(sa.insert(meta), [{"key": key, "value": value} for key, value in settings.items()])
    if strict:
        set_strict(connection, strict=True)


def set_strict(connection: sa.Connection, *, strict: bool) -> None:
    """Record that the ledger is strict from now on, or no longer, after the earlier changes."""
    found = read_meta(connection)
    changes = () if found is None else found.strict_changes
    noted = [[at.isoformat(), "on" if state else "off"] for at, state in changes]
    value = canonical_json([*noted, [now(), "on" if strict else "off"]])
    connection.execute(sa.update(meta).where(meta.c.key == "strict").values(value=value))


def is_strict(connection: sa.Connection) -> bool:
    found = read_meta(connection)
    return found is not None and bool(found.strict_changes) and found.strict_changes[-1][1]


def _hexadecimal(text: str, size: int) -> bytes:
    found = bytes.fromhex(text)
    if len(found) != size or found.hex() != text:
        raise damaged()
    return found


_WRITTEN = re.compile(r"[0-9]+(/[0-9]+)?", re.ASCII)  # the only form of a written fraction
_ENTRIES = sa.select(entries, datasets.c.unit.label("dataset_unit")).join(datasets)


def stored(budget: Budget | SecretBudget) -> tuple[str, str]:
    first, second = budget.to_json().values()
    return first, second


def find(connection: sa.Connection, name: str) -> Dataset | None:
    row = connection.execute(sa.select(datasets).where(datasets.c.name == name)).one_or_none()
    return None if row is None else _to_dataset(row)


def require(connection: sa.Connection, name: str) -> Dataset:
    """Return the dataset of this name; LedgerError if it is not open."""
    found = find(connection, name)
    if found is None:
        require_name(name)  # so that the message only quotes a name
        raise LedgerError(
            f"The ledger has no dataset {name!r}.",
            f"Open it with: understudy ledger open {name} --epsilon E --delta D",
        )
    return found


def every_dataset(connection: sa.Connection) -> list[Dataset]:
    found = [_to_dataset(row) for row in connection.execute(sa.select(datasets))]
    return sorted(found, key=lambda dataset: dataset.name)  # not in SQL: collations differ


def history(connection: sa.Connection, name: str) -> list[Entry]:
    wanted = _ENTRIES.where(entries.c.dataset == name).order_by(entries.c.number)
    return [_to_entry(row) for row in connection.execute(wanted)]


def booked(connection: sa.Connection, run_id: str) -> tuple[str, Entry] | None:
    """Return the dataset's name and the entry of a run; None if it was never charged."""
    row = connection.execute(_ENTRIES.where(entries.c.run_id == run_id)).one_or_none()
    return None if row is None else (row.dataset, _to_entry(row))


def entry_number(connection: sa.Connection, run_id: str) -> int:
    return int(connection.execute(sa.select(entries.c.number).where(entries.c.run_id == run_id)).scalar_one())


def drawn(connection: sa.Connection, run_id: str, name: str | None = None) -> dict[str, str]:
    """Return the digests of a run's used values, by name; with ``name``, only that of one value."""
    wanted = sa.select(draws.c.name, draws.c.digest).where(draws.c.run_id == run_id)
    if name is not None:
        wanted = wanted.where(draws.c.name == name)
    found = {row.name: row.digest for row in connection.execute(wanted)}
    if not all(isinstance(each, str) and each for each in found.values()):
        raise damaged()
    return found


def known_as(connection: sa.Connection, prints: Collection[str]) -> list[str]:
    wanted = sa.select(fingerprints.c.dataset).where(fingerprints.c.fingerprint.in_(list(prints))).distinct()
    with reading_fields():
        names = sorted(row.dataset for row in connection.execute(wanted))
        for name in names:
            require_name(name)
    return names


def add_prints(connection: sa.Connection, name: str, prints: Collection[str]) -> None:
    there = sa.select(fingerprints.c.fingerprint).where(fingerprints.c.fingerprint.in_(list(prints)))
    known = set(connection.execute(there).scalars())
    for fingerprint in sorted(set(prints) - known):
        connection.execute(sa.insert(fingerprints).values(fingerprint=fingerprint, dataset=name, at=now()))


def similar(connection: sa.Connection, name: str, sketch: Sketch) -> list[str]:
    """Return the names of the other datasets that share much of their content with this sketch's table, sorted."""
    wanted = sa.select(sketches).where(sketches.c.dataset != name)
    with reading_fields():
        found = [row.dataset for row in connection.execute(wanted) if sketch.is_near(Sketch.from_text(row.sketch))]
        return sorted(found)


def add_sketch(connection: sa.Connection, name: str, sketch: Sketch) -> None:
    """Add the sketch of a dataset's content to its earlier sketches."""
    mine = sketches.c.dataset == name
    before = connection.execute(sa.select(sketches.c.sketch).where(mine)).scalar_one_or_none()
    if before is None:
        connection.execute(sa.insert(sketches).values(dataset=name, sketch=sketch.to_text(), at=now()))
        return
    with reading_fields():
        together = sketch.merged(Sketch.from_text(before))
    if together.to_text() != before:
        connection.execute(sa.update(sketches).where(mine).values(sketch=together.to_text(), at=now()))


def _budget(unit: Unit, first: str, second: str) -> Budget | SecretBudget:
    of = SecretBudget.of if unit.kind == "secret" else Budget.of
    return of(_as_written(first), _as_written(second))


def _as_written(text: str) -> Fraction:
    if not _WRITTEN.fullmatch(text):
        raise damaged()
    return exact(text)


def _unit(text: str) -> Unit:
    unit = Unit.from_json(json.loads(text))
    if canonical_json(unit.to_json()) != text:
        raise damaged()
    return unit


def _charges(text: str) -> tuple[dict[str, Any], ...]:
    charges = json.loads(text)
    if not isinstance(charges, list):
        raise damaged()
    for charge in charges:
        if not isinstance(charge["name"], str) or not isinstance(charge["event"]["kind"], str):
            raise damaged()
    return tuple(charges)


def _to_dataset(row: sa.Row[Any]) -> Dataset:
    with reading_fields():
        require_name(row.name)
        unit = _unit(row.unit)
        hash_key = bytes.fromhex(row.hash_key)
        if row.rule not in get_args(CrossRunRule) or len(hash_key) != 32:
            raise damaged()
        cap = _budget(unit, row.cap_epsilon, row.cap_delta)
        if isinstance(cap, SecretBudget) and row.rule != "rdp":
            raise damaged()
        return Dataset(row.name, cap, unit, row.rule, hash_key, datetime.fromisoformat(row.opened_at))


def _to_entry(row: sa.Row[Any]) -> Entry:
    with reading_fields():
        run = {"run": True, "cap": False}[row.kind]
        budget = _budget(_unit(row.dataset_unit), row.epsilon, row.delta)
        of_run = (row.run_id, row.method, row.unit) if run else ()
        if not all(isinstance(text, str) and text for text in (*of_run, row.charges)) or not isinstance(row.note, str):
            raise damaged()
        charges = _charges(row.charges)
        if charges and not run:
            raise damaged()
        return Entry(
            at=datetime.fromisoformat(row.at),
            cost=budget if run else None,
            cap=None if run else budget,
            run_id=row.run_id,
            method=row.method,
            unit=_unit(row.unit) if run else None,
            charges=charges,
            note=row.note,
        )
