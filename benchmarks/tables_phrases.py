"""Phrases that depend on typed columns, on tables of other kinds: what do settings of dp-kps teach of each column?

    python -m benchmarks.tables_phrases --set reviews answers films areas --epsilon 6 1 --runs 2 [--real]

Whole runs with a ledger of their own, ``--llm none``. A row: accuracy and macro F1 on held-out texts of a TF-IDF
classifier of each column (the label is one), which synthetic texts and their rows taught; ``--real``: as many private
texts, and the most frequent value.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import understudy as us
from benchmarks import tables_methods, tables_sets
from benchmarks.sets import DATA
from benchmarks.tables import DELTA, learned, show
from understudy.ledger import Ledger
from understudy.schema.columns import declared_columns

RECORDS = 1_200
SETTINGS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "30 terms": {"terms_per_record": 30},
    "12 long": {"length": 12, "shortest": 6},
    "30 terms, 12 long": {"terms_per_record": 30, "length": 12, "shortest": 6},
}


@dataclass(frozen=True)
class Table:
    """Private rows and held-out ones: ``text``, the label and the columns.

    Args:
        label: its column.
        labels: all its values.
        columns: beside it, as they are declared.
    """

    private: pa.Table
    held: pa.Table
    label: str
    labels: list[str]
    columns: dict[str, Any]


def _split(name: str, label: str, columns: dict[str, Any], change: Callable[[pa.Table], pa.Table], least: int) -> Table:
    """Of a set's own split, the labels that so many private rows have."""
    parts = [change(pq.read_table(DATA / name / f"{part}.parquet")) for part in ("train", "test")]
    counts = pc.value_counts(parts[0][label]).to_pylist()
    labels = sorted(each["values"] for each in counts if each["counts"] >= least)
    kept = [part.filter(pc.is_in(part[label], pa.array(labels))).select(["text", label, *columns]) for part in parts]
    return Table(kept[0], kept[1], label, labels, columns)


def reviews() -> Table:
    """Yelp: the label is what is reviewed; how many stars."""

    def whole(table: pa.Table) -> pa.Table:
        stars = pc.cast(pc.cast(table["stars"], pa.float64()), pa.int64())
        return table.set_column(table.schema.get_field_index("stars"), "stars", stars)

    return _split("yelp_augpe", "category", {"stars": "1..5"}, whole, 200)


def answers() -> Table:
    """MedQuAD: the label is what was asked; who answers."""
    sources = ["GARD", "GHR", "NINDS", "MPlusHealthTopics", "NIDDK", "NIHSeniorHealth"]

    def known(table: pa.Table) -> pa.Table:
        return table.filter(pc.is_in(table["source"], pa.array(sources)))

    return _split("medquad", "label", {"source": sources}, known, 300)


def films() -> Table:
    """Wikipedia: the label is the genre; the year."""

    def dated(table: pa.Table) -> pa.Table:
        year = pc.cast(table["year"], pa.int64())
        return table.set_column(table.schema.get_field_index("year"), "year", year)

    return _split("wikimovies", "label", {"year": "1901..2020/12"}, dated, 1_000)


def areas() -> Table:
    """Tickets of ``tables_methods``."""
    private, held = tables_methods.splits()
    return Table(private, held, tables_methods.AREA, list(tables_methods.SERVICES), tables_methods.COLUMNS)


SETS = {each.__name__: cache(each) for each in (reviews, answers, films, areas)}


def measure(table: Table, parameters: dict[str, Any], epsilon: str, seed: int, records: int) -> dict[str, float]:
    """What one run's texts teach."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        made = us.run(
            us.read_corpus(table.private, text="text", label=table.label, labels=table.labels, columns=table.columns),
            us.DPKPS(**parameters),
            us.Budget(epsilon, DELTA),
            llm="none",
            records=records,
            ledger=Ledger.create(Path(folder) / "ledger.sqlite").location,
            dataset="table",
            seed=seed,
        )
    found = made.to_arrow()
    found = found.filter(pc.not_equal(found["text"], ""))
    return {**taught(table, found), "seconds": time.perf_counter() - start}


def taught(table: Table, rows: pa.Table) -> dict[str, float]:
    """What texts and rows teach of each column."""
    columns = declared_columns({table.label: table.labels, **table.columns})
    held = table.held.take(np.random.default_rng(0).permutation(table.held.num_rows)[:3_000])
    truth = tables_sets.cells(held, columns)
    return learned(columns, rows["text"].to_pylist(), tables_sets.cells(rows, columns), held, truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--epsilon", nargs="+", default=["6", "1"])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--real", action="store_true", help="real rows first")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for name in given.set:
        table = SETS[name]()
        if given.real:
            few = table.private.take(np.random.default_rng(0).permutation(table.private.num_rows)[: given.records])
            show([taught(table, few)], given.out, set=name, rows="real", records=few.num_rows)
            columns = declared_columns({table.label: table.labels, **table.columns})
            truth = tables_sets.cells(table.held, columns)
            most = {
                each.name: np.bincount(cells).max() / len(cells) for each, cells in zip(columns, truth.T, strict=True)
            }
            show([most], given.out, set=name, rows="the most frequent value", private=table.private.num_rows)
        for epsilon in given.epsilon:
            for each in given.settings:
                found = [measure(table, SETTINGS[each], epsilon, run, given.records) for run in range(given.runs)]
                show(found, given.out, set=name, rows=each, epsilon=epsilon)


if __name__ == "__main__":
    main()
