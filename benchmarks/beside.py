"""The page ``benchmarks/beside.md``, made from ``benchmarks/results``: losses first.

python -m benchmarks.beside
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
HEAD = """# Beside the field

Made by `python -m benchmarks.beside` from files in `benchmarks/results/`. What is not here has not been compared.

## Columns: what a classifier learns from 1,000 synthetic rows

`python -m benchmarks.beside_columns` says how each row is made. Epsilon 1, delta 1 / (n ln n), accuracy of a random
forest on real test rows, means of the runs with their standard deviation. *Tab-PE* is that of microsoft/DPSDA at the
settings of its own examples; it takes ranges and label counts from the private table without noise, which this
comparison lets it. *AIM* is OpenDP's, over pairs. *Real* are 1,000 rows of the private table.

| table | understudy | Tab-PE | AIM | real | all real | understudy less the better |
|---|---|---|---|---|---|---|
"""
TITLES = {"characters": "artificial-characters (7 numbers, 10 labels)"}
TRIED = {
    "star": "pairs of each column with the label alone",
    "tree": "a tree of pairs",
}


def _title(table: str) -> str:
    count = table.partition(":")[2]
    return TITLES.get(table) or f"XOR of {count} column{'s' if count != '1' else ''}"


def columns(rows: list[Mapping[str, Any]]) -> str:
    """The table, by how much is lost, and what was tried where it is more than 5 points."""
    by = {(row["table"], row["way"], row.get("bins", 16)): row for row in rows}

    def told(table: str, way: str) -> str:
        row = by.get((table, way, 16))
        return "-" if row is None else f"{row['accuracy']:.3f}" + (f" ± {row['std']:.3f}" if row["runs"] > 1 else "")

    def lost(table: str) -> float:
        others = [by[table, way, 16]["accuracy"] for way in ("tab-pe", "opendp-aim") if (table, way, 16) in by]
        return float(by[table, "ours", 16]["accuracy"] - max(others))

    compared = sorted({row["table"] for row in rows if row["way"] == "tab-pe"}, key=lost)
    ways = ("ours", "tab-pe", "opendp-aim", "real", "real-all")
    lines = [
        f"| {_title(table)} | {' | '.join(told(table, way) for way in ways)} | {lost(table):+.3f} |"
        for table in compared
    ]
    tried = [
        f"- {_title(row['table'])}: {TRIED.get(row['way'], 'pairs and threes')}, at most {row.get('bins', 16)} "
        f"values of a column: {row['accuracy']:.3f} (runs: {row['runs']})"
        for row in rows
        if row["way"] in TRIED or (row["way"] == "ours" and row.get("bins", 16) != 16)
    ]
    return "\n".join([*lines, "", "Tried where it loses:", "", *tried])


def main() -> None:
    rows = json.loads((FOLDER / "results" / "beside" / "columns.json").read_text())
    (FOLDER / "beside.md").write_text(HEAD + columns(rows) + "\n" + TAIL)


TAIL = """
Threes were added for the first two rows of losses (at 0.488 and 0.312 with pairs alone). What each step toward
artificial-characters brought is in [decision 078](../docs/decisions/078-sets-of-three.md). What limits it now: XOR of 3
takes four columns at once, with 8,192 cells for 10,000 records. Tab-PE evolves whole rows by votes for the nearest,
which see any number of columns, where there are few.
"""


if __name__ == "__main__":
    main()
