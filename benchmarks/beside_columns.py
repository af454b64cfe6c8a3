"""Columns beside Tab-PE and AIM: what a classifier learns from synthetic rows, tested on real ones.

    python -m benchmarks.beside_columns characters:FOLDER xor:1 xor:2 --ways real ours opendp-aim tab-pe \\
        --python ~/other/bin/python

``characters`` is ``artificial-characters`` of github.com/toan-vt/cloud-data-store (``train.csv`` and ``test.csv`` in
FOLDER), the split of Tab-PE's own example. ``xor:K`` has K numbers from -1 to 1, and the parity of their signs as
label: no pair of columns shows anything for K > 1. All at epsilon 1 and Tab-PE's delta, 1 / (n ln n); 1,000 rows each
(``real``: of the private table; ``real-all``: all of it). ``star`` measures the pairs of each column with the label;
``ours`` selects pairs and sets of three, ``tree`` is a tree of pairs.
The classifier is scikit-learn's random forest, where Tab-PE's example has TabICL. Ours gets declared ranges, in at most
16 bins; Tab-PE takes them from the table.
Results go to ``benchmarks/results/beside/columns.json``.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import resource
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

import benchmarks.tables as tables
from benchmarks.tables_sets import CellTable
from understudy.schema.columns import Column, declared_columns

COUNT, EPSILON = 1000, "1"
RESULT = Path(__file__).parent / "results" / "beside" / "columns.json"
CHARACTERS = {
    **{f"V{place}": ("int", 0, high) for place, high in enumerate((7, 50, 63, 50), start=1)},
    "V5": ("int", -2, 63),
    "V6": ("float", 0, 60),
    "V7": ("float", 0, 80),
}
STAR = ",".join(f"{name}*label" for name in CHARACTERS)
ROUNDS = {"characters": 15, "xor": 20}  # of Tab-PE's examples


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers of columns, the last of which is the label, and the kind and range that each is declared with."""

    train: NDArray[np.float64]
    test: NDArray[np.float64]
    kinds: dict[str, tuple[str, float, float]]
    labels: tuple[str, ...]

    bins: int = 16

    @property
    def columns(self) -> tuple[Column, ...]:
        """As understudy has them declared."""
        kinds = {"int": "integer", "float": "number"}
        ranges = {
            name: {
                "kind": kinds[kind],
                "range": [low, high],
                "required": True,
                "bins": min(self.bins, int(high - low) + 1),
            }
            if kind == "int"
            else {
                "kind": kinds[kind],
                "range": [float(low), float(high)],
                "required": True,
                "bins": self.bins,
                "decimals": 2,
            }
            for name, (kind, low, high) in self.kinds.items()
        }
        label = {"kind": "category", "values": list(self.labels), "required": True}
        return declared_columns({**ranges, "label": label})

    @property
    def delta(self) -> float:
        return 1 / len(self.train) / math.log(len(self.train))


def characters(folder: Path) -> Table:
    def read(name: str) -> NDArray[np.float64]:
        with (folder / f"{name}.csv").open() as file:
            rows = list(csv.reader(file))[1:]
        return np.array(rows, dtype=np.float64)

    return Table(read("train"), read("test"), CHARACTERS, tuple(str(number) for number in range(1, 11)))


def xor(count: int) -> Table:
    def made(records: int, seed: int) -> NDArray[np.float64]:
        numbers = np.random.default_rng(seed).uniform(-1, 1, (records, count))
        return np.column_stack([numbers, (numbers > 0).sum(axis=1) % 2])

    kinds = {f"x{place}": ("float", -1.0, 1.0) for place in range(count)}
    return Table(made(10_000, 0), made(2000, 1), kinds, ("0", "1"))


def cells(table: Table, columns: tuple[Column, ...]) -> NDArray[np.int64]:
    found = []
    for place, column in enumerate(columns):
        values = table.train[:, place]
        written = [str(int(each)) if column.kind in ("integer", "category") else each for each in values]
        found.append([column.cell(each) for each in written])
    return np.array(found, dtype=np.int64).T


def ours(table: Table, way: str, python: str) -> NDArray[np.float64]:
    """Rows of the library, or of ``tables_others.py`` on the same cells."""
    columns = table.columns
    private = cells(table, columns)
    given = CellTable(tuple(column.size for column in columns), private, private, label=len(columns) - 1)
    with (
        mock.patch.object(tables, "DELTA", f"{table.delta:.6g}"),
        mock.patch.object(tables, "SAMPLED", COUNT),
        mock.patch.object(CellTable, "columns", columns),
        mock.patch.object(tables, "OURS", (*tables.OURS, STAR)),
    ):
        star = STAR if columns[-1].size > 2 else "x0*label"
        rows, _ = tables.sampled(given, EPSILON, {"ours": "selected", "star": star}.get(way, way), python, 80)
    return values_of(rows[:COUNT], columns)


def values_of(rows: NDArray[np.int64], columns: tuple[Column, ...]) -> NDArray[np.float64]:
    generator = np.random.default_rng()
    values = [
        [float(column.sample(cell, generator) or 0) for cell in rows[:, place].tolist()]
        for place, column in enumerate(columns)
    ]
    return np.array(values).T


def tab_pe(table: Table, python: str, rounds: int) -> NDArray[np.float64]:
    names = [*table.kinds, "label"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with (folder / "train.csv").open("w", newline="") as file:
            rows = ([f"{value:g}" for value in row] for row in table.train)
            csv.writer(file).writerows([names, *rows])
        kinds = {kind: [name for name in table.kinds if table.kinds[name][0] == kind] for kind in ("int", "float")}
        described = {f"{kind}_columns": found for kind, found in kinds.items()}
        (folder / "metadata.json").write_text(json.dumps({"cat_columns": [], **described, "label_columns": ["label"]}))
        script = Path(__file__).with_name("beside_columns_pe.py")
        ran = subprocess.run(
            [python, script, folder, EPSILON, str(rounds)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if ran.returncode:
            raise SystemExit(f"Tab-PE failed: {ran.stderr[-2000:]}")
        with (folder / "made.csv").open() as file:
            head, *made = csv.reader(file)
    order = [head.index(name) for name in names]
    return np.array(made, dtype=np.float64)[:, order]


def accuracy(rows: NDArray[np.float64], test: NDArray[np.float64], seed: int) -> float:
    forest = RandomForestClassifier(300, random_state=seed).fit(rows[:, :-1], rows[:, -1].astype(int))
    return float(forest.score(test[:, :-1], test[:, -1].astype(int)))


def scored(name: str, ways: list[str], runs: int, python: str, bins: int) -> list[dict[str, object]]:
    kind, _, rest = name.partition(":")
    table = replace(characters(Path(rest)) if kind == "characters" else xor(int(rest)), bins=bins)
    title = kind if kind == "characters" else name
    found: list[dict[str, object]] = []
    for way in ways:
        scores, seconds = [], []
        for run in range(1 if way == "real-all" else runs):
            start = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            if way.startswith("real"):
                order = np.random.default_rng(run).permutation(len(table.train))
                rows = table.train[order[: None if way == "real-all" else COUNT]]
            elif way == "tab-pe":
                rows = tab_pe(table, python, ROUNDS[kind])
            else:
                rows = ours(table, way, python)
            used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            spent = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(start, used, strict=True))
            seconds.append(spent)
            scores.append(accuracy(rows, table.test, run))
        row = {
            "table": title,
            "records": len(table.train),
            "way": way,
            "bins": bins,
            "runs": len(scores),
            "epsilon": EPSILON,
        }
        row |= {"accuracy": round(float(np.mean(scores)), 3), "std": round(float(np.std(scores)), 3)}
        row |= {"processor_seconds": round(float(np.mean(seconds)), 1)}
        print(json.dumps(row), flush=True)
        found.append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--ways", nargs="+", default=["real-all", "real", "ours"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--bins", type=int, default=16)
    parser.add_argument("--python", default="python")
    given = parser.parse_args()
    known = json.loads(RESULT.read_text()) if RESULT.exists() else []
    for name in given.tables:
        rows = scored(name, given.ways, given.runs, given.python, given.bins)
        new = {(row["table"], row["way"], row["bins"]) for row in rows}
        known = [row for row in known if (row["table"], row["way"], row.get("bins", 16)) not in new] + rows
        RESULT.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
