"""All methods side by side on labelled sets: texts of each, their evaluation on real test texts, and the report.

    python benchmarks/comparison.py generate --set ag_news --out DIR [--rows aug-pe-e6 ...] [--repetitions 3]

Folders are ``DIR/SET/ROW/REPETITION``, each as ``understudy run`` makes it (comparison_rows.py); what is there is kept.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import understudy as us
from comparison_rows import ROWS, SIZES, Place


def generate(place: Place, rows: list[str], repetitions: int, first: int) -> None:
    """Make what is not there yet; a row that fails is told and left out."""
    for repetition in range(first, first + repetitions):
        for row in rows:
            if place.table(row, repetition).exists():
                continue
            started = time.perf_counter()
            try:
                ROWS[row](place, repetition)
                said = "made"
            except us.UnderstudyError as error:
                said = f"failed: {error}"
            print(f"{place.name}/{row}/{repetition} {said} in {time.perf_counter() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["generate"])
    parser.add_argument("--set", default="ag_news", choices=sorted(SIZES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first repetition")
    arguments = parser.parse_args()
    generate(Place(arguments.out, arguments.set), arguments.rows, arguments.repetitions, arguments.first)


if __name__ == "__main__":
    main()
