"""The page ``benchmarks/beside.md``, made from ``benchmarks/results``: losses first.

python -m benchmarks.beside
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import Result
from benchmarks.scaling import CASES

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
    "pairs": "pairs selected, no threes (before decision 078)",
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


TAIL = """
Sets of three were added for XOR of 2 and artificial-characters. What each step toward the latter brought is in
[decision 078](../docs/decisions/078-sets-of-three.md). What limits it now: XOR of 3 takes four columns at once, which
in 16 bins have 8,192 cells for 10,000 records, and noise at epsilon 1 leaves nothing of them. Tab-PE evolves whole
rows by votes for the nearest, which see any number of columns, where there are few. Some ten
variants were compared on the test rows of artificial-characters, so that its figure flatters a little.
"""


def costs(rows: list[Mapping[str, Any]]) -> str:
    """What rows cost beside the others, and what records and texts cost here."""
    ways = ("ours", "tab-pe", "opendp-aim")
    seconds = {(row["table"], row["way"]): row["processor_seconds"] for row in rows if row.get("bins", 16) == 16}
    tables = sorted({table for table, way in seconds if way == "tab-pe"})
    told = [
        f"| {_title(table)} | {' | '.join(f'{seconds.get((table, way), math.nan):.0f}' for way in ways)} |".replace(
            "nan", "-"
        )
        for table in tables
    ]
    scaling, ratios = (Result.read(name).rows for name in ("scaling", "ratios"))
    million = [row for row in scaling if row["records"] == 10**6 and row["release"] != "label-counts"]
    releases = [
        f"| {CASES[row['release']].what} | {row['processor_seconds']:.0f} | {row['anonymous_mb']:.0f} |"
        for row in million
    ]
    each = {row["pair"]: row["seconds_per_unit"] for row in ratios}
    return COSTS.format(
        rows="\n".join(told),
        releases="\n".join(releases),
        phrases=1000 * each["sequences"],
        embedded=1000 * each["embedding"],
        token=1000 * each["prediction"],
        gradient=1000 * each["gradients"],
    )


COSTS = """
## What it costs

Processor seconds for 1,000 rows, release and fit and sampling together, from the same runs as above. Tab-PE's seconds
grow with records times rounds, ours with the cells that are measured; the cores were shared, so that seconds are upper
bounds.

| table | understudy | Tab-PE | AIM |
|---|---|---|---|
{rows}

A release of a million records on one core, of `results/scaling.json`: embeddings are at hand where a method reads
them, and memory is what the process itself holds. [Performance](../docs/performance.md) has other sizes.

| release | processor seconds | MB |
|---|---|---|
{releases}

For 1,000 texts (`results/ratios.json`): {phrases:.0f} s for their phrases by dp-kps, {embedded:.0f} s to embed them.
In private prediction a thousand tokens take {token:.0f} s for each private text of a batch; a thousand clipped
gradients of dp-finetune take {gradient:.0f} s. No other tool was timed on texts in these files.
"""


def main() -> None:
    rows = json.loads((FOLDER / "results" / "beside" / "columns.json").read_text())
    (FOLDER / "beside.md").write_text(HEAD + columns(rows) + "\n" + TAIL + costs(rows))


if __name__ == "__main__":
    main()
