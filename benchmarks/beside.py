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
    "triples": "sets of three in place of pairs, chosen by hand (prototype)",
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
        f"- {_title(row['table'])}: {TRIED.get(row['way'], 'pairs selected')}, at most {row.get('bins', 16)} values of "
        f"a column: {row['accuracy']:.3f} ({row['runs']} run{'s' if row['runs'] > 1 else ''})"
        for row in rows
        if row["way"] in TRIED or (row["way"] == "ours" and row.get("bins", 16) != 16)
    ]
    return "\n".join([*lines, "", "Tried where it loses:", "", *tried])


def main() -> None:
    rows = json.loads((FOLDER / "results" / "beside" / "columns.json").read_text())
    (FOLDER / "beside.md").write_text(HEAD + columns(rows) + "\n" + TAIL)


TAIL = """
What limits it: pairs of columns show nothing of a parity of two or more, and of artificial-characters a classifier
needs more than pairs, as AIM over pairs shows. Tab-PE evolves whole rows by votes for the nearest, which see any number
of columns at once, where there are few columns. Sets of three would bring XOR of 2 level; artificial-characters they
do not. Tables whose columns matter by their interactions alone are better served by Tab-PE today.
"""


if __name__ == "__main__":
    main()
