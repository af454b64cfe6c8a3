"""Small in-memory corpora, neighbours of them, and how far a query moves between the two."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedCorpus
from understudy.privacy.measurement import exact_sum
from understudy.privacy.unit import Unit

# Twelve terms.
WORDS = tuple(f"{first}{second}" for first in ("heart", "knee", "lung", "skin") for second in ("pain", "scan", "rash"))
LABELS = 3
KEY = b"a key of the dataset"
RECORD = Unit("record")
OWNER = Unit("owner", 3)


class Row(NamedTuple):
    text: str
    label: int = 0
    owner: str = "nobody"
    cells: tuple[int, ...] = ()


@dataclass(frozen=True)
class TinyBatch:
    texts: Sequence[str]
    labels: NDArray[np.int32]
    owners: Sequence[str] | None
    cells: NDArray[np.int32] | None = None


@dataclass(frozen=True)
class TinyTable:
    """Rows in memory, in batches of any size."""

    rows: tuple[Row, ...]
    batch_size: int = 4

    def batches(self) -> Iterator[TinyBatch]:
        for start in range(0, len(self.rows), self.batch_size):
            chunk = self.rows[start : start + self.batch_size]
            yield TinyBatch(
                [row.text for row in chunk],
                np.array([row.label for row in chunk], dtype=np.int32),
                [row.owner for row in chunk],
                np.array([row.cells for row in chunk], dtype=np.int32) if chunk[0].cells else None,
            )


def bounded(rows: Sequence[Row], unit: Unit = RECORD, *, batch_size: int = 4) -> BoundedCorpus:
    return BoundedCorpus(TinyTable(tuple(rows), batch_size), unit, KEY)


def text(generator: np.random.Generator) -> str:
    """Of every kind: empty, junk only, one term again and again, a few terms, very long."""
    kind = generator.integers(8)
    if kind == 0:
        return str(generator.choice(["", " ", "nothing known here", "?!"]))
    if kind == 1:
        return " ".join([str(generator.choice(WORDS))] * int(generator.integers(1, 5)))
    if kind == 2:
        return " ".join(generator.choice(WORDS, 300))
    return " junk ".join(generator.choice(WORDS, int(generator.integers(1, 7))))


def random_rows(generator: np.random.Generator, *, owners: Sequence[str], most: int) -> list[Row]:
    rows = [
        Row(text(generator), int(generator.integers(LABELS)), str(generator.choice(list(owners))))
        for _ in range(int(generator.integers(most + 1)))
    ]
    for row in rows[:2]:  # identical records, and the same text under another label
        if generator.integers(2):
            rows.append(row)
        if generator.integers(2):
            rows.append(row._replace(label=(row.label + 1) % LABELS))
    return rows


class Neighbours(NamedTuple):
    smaller: list[Row]
    larger: list[Row]


@cache
def random_neighbours(unit: Unit, *, pairs: int, seed: int) -> Sequence[Neighbours]:
    """Pairs that differ by one record, or by all records of one owner, put in anywhere."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(pairs):
        rows = random_rows(generator, owners=["ann", "bob", "cleo"], most=6)
        added = random_rows(generator, owners=["zoe"], most=9) if unit.kind == "owner" else []
        if not added:
            added = [Row(text(generator), int(generator.integers(LABELS)), "zoe")]
        if unit.kind == "record":
            added = added[:1]
        larger = list(rows)
        for row in added:
            larger.insert(int(generator.choice([0, len(larger), generator.integers(len(larger) + 1)])), row)
        made.append(Neighbours(rows, larger))
    return made


def celled(row: Row, kind: int, sizes: Sequence[int]) -> Row:
    """With cells that follow from the row; with ``kind`` 0 all alike, so that an owner's records add up."""
    number = zlib.crc32(f"{row.text}{row.label}{kind}".encode()) if kind else 5
    return row._replace(cells=tuple(number // 7**place % size for place, size in enumerate(sizes)))


def with_cells(pairs: Sequence[Neighbours], sizes: Sequence[int]) -> Iterator[Neighbours]:
    for place, pair in enumerate(pairs):
        yield Neighbours(*([celled(row, place % 3, sizes) for row in rows] for rows in pair))


class Movement(NamedTuple):
    """How far the integers moved, as a share of what the query declares: at most 1 if it tells the truth."""

    l1: float
    l2: float

    def of(self, norm: str) -> float:
        return self.l1 if norm == "laplace" else self.l2


def movement(query: Any, pair: Neighbours, unit: Unit = RECORD, *, bound: Any = bounded, records: int = 1) -> Movement:
    """Exactly: integers and fractions, rounded up to a float at the end only.

    Args:
        records: how many vectors one unit adds at most.
    """
    declared = query.sensitivity.times(records)
    difference = exact_sum(query, bound(pair.larger, unit)) - exact_sum(query, bound(pair.smaller, unit))
    steps = [int(step) for step in difference.ravel()]
    l1 = Fraction(sum(map(abs, steps))) / Fraction(declared.l2 if declared.l1 is None else declared.l1)
    squared = Fraction(sum(step * step for step in steps)) / Fraction(declared.l2) ** 2
    return Movement(_up(l1, l1 > 1), _up_root(squared))


def _up(value: Fraction, above: bool) -> float:
    return max(float(value), np.nextafter(1.0, 2.0)) if above else min(float(value), 1.0)


def _up_root(squared: Fraction) -> float:
    return _up(Fraction(float(squared) ** 0.5), squared > 1)


class HashEmbedder:
    """Unit vectors made of a hash of the text."""

    model_id = "hash"
    fingerprint = "0" * 64
    local = True

    def __init__(self, dimension: int = 8) -> None:
        self.dimension = dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = []
        for each in texts:
            digest = hashlib.sha256(each.encode()).digest()
            vector = np.random.default_rng(list(digest)).standard_normal(self.dimension)
            rows.append(vector / np.linalg.norm(vector))
        return np.asarray(rows, dtype=np.float32).reshape(len(texts), self.dimension)
