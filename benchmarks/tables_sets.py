"""Tables for ``benchmarks.tables``: made-up ones of known dependencies, Adult, and support tickets made of dialogues.

Adult is what ``mbi``'s repository has, in its own bins: ``data/adult.csv`` and ``data/adult-domain.json`` in the
folder that UNDERSTUDY_BENCHMARK_MBI names. Tickets are made of ``sgd`` of ``UNDERSTUDY_BENCHMARK_DATA``.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.sets import CACHE, DATA
from understudy.schema.columns import Column, declared_columns

MBI = Path(os.environ.get("UNDERSTUDY_BENCHMARK_MBI", CACHE / "mbi"))
"""A checkout of github.com/ryan112358/mbi, for its ``mechanisms`` and ``data``."""
SIZES = (2, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 40)
LABEL = "service"
COLUMNS = {
    "opened": {"kind": "date", "range": ["2024-01-01", "2024-12-31"], "bins": 12},
    "words": {"kind": "integer", "range": [0, 129], "bins": 13},
    "turns": {"kind": "integer", "range": [1, 16]},
    "priority": ["low", "normal", "high"],
    "resolved": "boolean",
    "amount": {"kind": "number", "range": [0.0, 500.0], "bins": 10},
}
LEAST = 40  # dialogues that a service has
_PRIVATE, _LONGEST = 20_000, 600
_HIGH = re.compile(r"\b(now|today|soon|asap|urgent|immediately|quickly|problem|wrong)\b", re.I)
_LOW = re.compile(r"\b(thanks|great|perfect)\b", re.I)
_DONE = re.compile(r"\b(booked|confirmed|reserved|successfully|success)\b", re.I)
_AMOUNT = re.compile(r"\$\s?(\d[\d,]*(?:\.\d\d)?)")


@dataclass(frozen=True, eq=False)
class CellTable:
    """A table whose values are cells.

    Attributes:
        sizes: cells of each column.
        private: ``Int64[n, columns]``.
        fresh: as many or other records of the same source, or None.
        label: the column that is declared as the label, if one is.
    """

    sizes: tuple[int, ...]
    private: NDArray[np.int64]
    fresh: NDArray[np.int64]
    label: int | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """As the library declares them."""
        return declared_columns({f"c{place}": [f"v{n}" for n in range(size)] for place, size in enumerate(self.sizes)})


def load(name: str) -> CellTable:
    """``network:SEED:RECORDS``, ``adult`` or ``tickets``."""
    kind, _, rest = name.partition(":")
    if kind == "network":
        seed, _, records = rest.partition(":")
        return network(int(seed), int(records))
    return adult() if kind == "adult" else ticket_cells()


def network(seed: int, records: int) -> CellTable:
    """A Bayesian network over :data:`SIZES` in random order: the first column has no parent, the others one or two at
    random of those before; each row of a conditional table is Dirichlet with 0.3 per cell."""
    generator = np.random.default_rng([seed, 12])
    order = generator.permutation(len(SIZES))
    rows = np.zeros((2 * records, len(SIZES)), dtype=np.int64)
    for place, column in enumerate(order):
        parents = generator.permutation(order[:place])[: generator.integers(1, 3)]
        given = np.zeros(len(rows), dtype=np.int64)
        for parent in parents:
            given = given * SIZES[parent] + rows[:, parent]
        kinds = int(np.prod([SIZES[parent] for parent in parents], dtype=np.int64))
        reached = generator.dirichlet(np.full(SIZES[column], 0.3), size=kinds).cumsum(axis=1)[given]
        points = generator.random(len(rows)) * reached[:, -1]
        rows[:, column] = (reached <= points[:, None]).sum(axis=1)
    return CellTable(SIZES, rows[:records], rows[records:])


def adult() -> CellTable:
    """Half of Adult's 48,842 records, at random; the other half is fresh."""
    domain = json.loads((MBI / "data" / "adult-domain.json").read_text("utf-8"))
    rows = np.loadtxt(MBI / "data" / "adult.csv", delimiter=",", skiprows=1, dtype=np.int64)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    return CellTable(tuple(domain.values()), rows[: len(rows) // 2], rows[len(rows) // 2 :])


@cache
def tickets() -> tuple[pa.Table, pa.Table]:
    """20,000 private tickets and the held-out ones: ``text``, :data:`LABEL` and :data:`COLUMNS`.

    A dialogue is cut between utterances into tickets of 600 characters at most; all tickets of a dialogue are on the
    same side. The service is the dialogue's domain. The day is invented: the hash of the dialogue spreads over 120 days
    around a day of its service. Priority, whether it is resolved, and the amount (missing in most) are read from the
    ticket's own words.
    """
    made = pq.read_table(DATA / "sgd" / "train.parquet", columns=["text", "domain", "dialogue_id"]).to_pylist()
    common = Counter(row["domain"] for row in made)
    services = sorted(name for name, count in common.items() if count >= LEAST)
    made = sorted((row for row in made if row["domain"] in services), key=lambda row: _hash(row["dialogue_id"]))
    rows = [
        _ticket(part, row["domain"], services.index(row["domain"]), _hash(row["dialogue_id"] + " day"))
        for row in made
        for part in _parts(row["text"])
    ]
    table = pa.Table.from_pylist(rows)
    return table.slice(0, _PRIVATE), table.slice(_PRIVATE)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _parts(text: str) -> list[str]:
    parts = [""]
    for line in text.split("\n"):
        if parts[-1] and len(parts[-1]) + len(line) >= _LONGEST:
            parts.append("")
        parts[-1] += ("\n" if parts[-1] else "") + line
    return parts


def _ticket(text: str, service: str, place: int, hashed: int) -> dict[str, object]:
    day = (29 * place + hashed % 60 + hashed // 60 % 60) % 366  # the sum of two: most in the middle
    opened = datetime.date(2024, 1, 1) + datetime.timedelta(days=day)
    return {"text": text, LABEL: service, "opened": opened, **told(text)}


def told(text: str) -> dict[str, object]:
    """The columns that are read from a ticket's own words."""
    amounts = [float(each.replace(",", "")) for each in _AMOUNT.findall(text)]
    return {
        "words": len(text.split()),
        "turns": text.count("\n") + 1,
        "priority": "high" if _HIGH.search(text) else "low" if _LOW.search(text) else "normal",
        "resolved": bool(_DONE.search(text)),
        "amount": amounts[0] if amounts else None,
    }


def services() -> list[str]:
    """The labels."""
    return sorted(set(tickets()[0][LABEL].to_pylist()))


def ticket_columns() -> tuple[Column, ...]:
    """The label as a column, and :data:`COLUMNS`."""
    return declared_columns({LABEL: services(), **COLUMNS})


def cells(table: pa.Table, columns: Sequence[Column]) -> NDArray[np.int64]:
    """``Int64[n, columns]`` of a table of tickets, private or synthetic."""
    found = [[column.cell(value) for value in table[column.name].to_pylist()] for column in columns]
    return np.array(found, dtype=np.int64).T


def ticket_cells() -> CellTable:
    """The tickets without their texts."""
    (private, fresh), columns = tickets(), ticket_columns()
    return CellTable(tuple(column.size for column in columns), cells(private, columns), cells(fresh, columns), label=0)
