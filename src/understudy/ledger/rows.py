"""Reads rows into values, and budgets into rows."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from understudy.errors import LedgerError
from understudy.ledger.schema import datasets, draws, entries, fingerprints
from understudy.ledger.values import Dataset, Entry, require_name
from understudy.privacy.guarantee import Budget
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.unit import Unit

_ENTRIES = sa.select(entries, datasets.c.unit.label("dataset_unit")).join(datasets)


def stored(budget: Budget | SecretBudget) -> tuple[str, str]:
    """The two numbers of a budget as the ledger keeps them."""
    first, second = budget.to_json().values()
    return first, second


def find(connection: sa.Connection, name: str) -> Dataset | None:
    """The dataset of this name, None if it is not open."""
    row = connection.execute(sa.select(datasets).where(datasets.c.name == name)).one_or_none()
    return None if row is None else _to_dataset(row)


def require(connection: sa.Connection, name: str) -> Dataset:
    """The dataset of this name; LedgerError if it is not open."""
    found = find(connection, name)
    if found is None:
        require_name(name)  # so that the message quotes no more than a name
        raise LedgerError(
            f"The ledger has no dataset {name!r}.",
            f"Open it with: understudy ledger open {name} --epsilon E --delta D",
        )
    return found


def every_dataset(connection: sa.Connection) -> list[Dataset]:
    """All datasets, by name."""
    found = [_to_dataset(row) for row in connection.execute(sa.select(datasets))]
    return sorted(found, key=lambda dataset: dataset.name)  # not in SQL: collations differ


def history(connection: sa.Connection, name: str) -> list[Entry]:
    """The dataset's entries, in order."""
    wanted = _ENTRIES.where(entries.c.dataset == name).order_by(entries.c.number)
    return [_to_entry(row) for row in connection.execute(wanted)]


def booked(connection: sa.Connection, run_id: str) -> tuple[str, Entry] | None:
    """The dataset's name and the entry of a run, None if it was never charged."""
    row = connection.execute(_ENTRIES.where(entries.c.run_id == run_id)).one_or_none()
    return None if row is None else (row.dataset, _to_entry(row))


def drawn(connection: sa.Connection, run_id: str, name: str | None = None) -> dict[str, str]:
    """The digests of the run's values that were used, by name: all, or that of one (a run may have thousands)."""
    wanted = sa.select(draws.c.name, draws.c.digest).where(draws.c.run_id == run_id)
    if name is not None:
        wanted = wanted.where(draws.c.name == name)
    return {row.name: row.digest for row in connection.execute(wanted)}


def known_as(connection: sa.Connection, fingerprint: str) -> str | None:
    """The name of the dataset with this content."""
    wanted = sa.select(fingerprints.c.dataset).where(fingerprints.c.fingerprint == fingerprint)
    name: str | None = connection.execute(wanted).scalar_one_or_none()
    return name


def _budget(unit: str, first: str, second: str) -> Budget | SecretBudget:
    """As the dataset's unit says: epsilon and delta, or a secret's prior and posterior."""
    return SecretBudget(first, second) if json.loads(unit)["kind"] == "secret" else Budget(first, second)


def _to_dataset(row: sa.Row[Any]) -> Dataset:
    return Dataset(
        name=row.name,
        cap=_budget(row.unit, row.cap_epsilon, row.cap_delta),
        unit=Unit.from_json(json.loads(row.unit)),
        rule=row.rule,
        hash_key=bytes.fromhex(row.hash_key),
        opened_at=datetime.fromisoformat(row.opened_at),
    )


def _to_entry(row: sa.Row[Any]) -> Entry:
    budget = _budget(row.dataset_unit, row.epsilon, row.delta)
    return Entry(
        at=datetime.fromisoformat(row.at),
        cost=budget if row.kind == "run" else None,
        cap=budget if row.kind == "cap" else None,
        run_id=row.run_id,
        method=row.method,
        unit=None if row.unit is None else Unit.from_json(json.loads(row.unit)),
        charges=tuple(json.loads(row.charges)),
        note=row.note,
    )
