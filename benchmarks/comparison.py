"""All methods side by side on labelled sets: their texts, the accuracy of classifiers trained on them, a table.

    python benchmarks/comparison.py generate --set ag_news --out DIR [--rows aug-pe-e6 ...] [--repetitions 3]
    python benchmarks/comparison.py evaluate --set ag_news --out DIR
    python benchmarks/comparison.py table --set ag_news --out DIR        # as Markdown
    python benchmarks/comparison.py speed [METRIC ...]

Folders are ``DIR/SET/ROW/REPETITION``, each as ``understudy run`` makes it (comparison_rows.py); what is there is kept.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import comparison_speed
import understudy as us
from comparison_rows import ROWS, SIZES, Place
from sets import embed
from understudy.evaluation.sample import Sample
from understudy.evaluation.utility.kinds import kind_named, numbered
from understudy.evaluation.utility.scores import accuracy, accuracy_interval

KINDS = ("tf-idf", "embedding")


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


class Reading:
    """Reads tables with their embeddings; those of the real splits are at hand."""

    def __init__(self, place: Place) -> None:
        self._known: dict[str, NDArray[np.float32]] = {}
        for split in ("train", "test"):
            texts = pq.read_table(place.split(split), columns=["text"])["text"].to_pylist()
            self._known |= zip(texts, embed(texts), strict=True)

    def __call__(self, path: Path) -> Sample:
        table = pq.read_table(path, columns=["text", "label"])
        texts = table["text"].to_pylist()
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        self._known |= zip(new, embed(new), strict=True) if new else ()
        return Sample(tuple(texts), tuple(table["label"].to_pylist()), np.stack([self._known[text] for text in texts]))


def evaluate(place: Place, rows: list[str]) -> None:
    """Train on each row's repetitions, test on the real test texts; the results are kept beside the folders."""
    read = Reading(place)
    test = read(place.split("test"))
    assert test.labels is not None
    truth = numbered(test.labels, tuple(place.labels))
    for row in rows:
        tables = [read(path) for path in sorted(place.out.glob(f"{place.name}/{row}/*/release/synthetic.parquet"))]
        if not tables:
            continue
        found: dict[str, Any] = {"texts": [len(table) for table in tables]}
        for name in KINDS:
            predictions = []
            for table in tables:
                labels, predict = kind_named(name).train(table, seed=0)
                predictions.append(numbered(labels, tuple(place.labels))[predict(test)])
            interval = accuracy_interval(truth, predictions)
            values = [accuracy(truth, each) for each in predictions]
            found[name] = {"mean": float(np.mean(values)), "low": interval.low, "high": interval.high, "runs": values}
        path = place.out / place.name / row / "accuracy.json"
        path.write_text(json.dumps(found), "utf-8")
        print(place.name, row, json.dumps(found), flush=True)


def show_table(place: Place, rows: list[str]) -> None:
    """Accuracy and its interval (over repetitions and test texts), a line a row."""
    print(f"| {place.name} | texts | runs | {' | '.join(KINDS)} |\n|---|---|---|{'---|' * len(KINDS)}")
    for row in rows:
        path = place.out / place.name / row / "accuracy.json"
        if path.exists():
            found = json.loads(path.read_text("utf-8"))
            cells = [
                f"{found[each]['mean']:.3f} ({found[each]['low']:.3f} to {found[each]['high']:.3f})" for each in KINDS
            ]
            counts = found["texts"]
            print(f"| {row} | {round(np.mean(counts)):,} | {len(counts)} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["generate", "evaluate", "table", "speed"])
    parser.add_argument("metrics", nargs="*", help="of speed")
    parser.add_argument("--set", default="ag_news", choices=sorted(SIZES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first repetition")
    arguments = parser.parse_args()
    if arguments.task == "speed":
        comparison_speed.measure(arguments.metrics)
        return
    if arguments.out is None:
        parser.error("--out is missing")
    place = Place(arguments.out, arguments.set)
    if arguments.task == "generate":
        generate(place, arguments.rows, arguments.repetitions, arguments.first)
    elif arguments.task == "evaluate":
        evaluate(place, arguments.rows)
    else:
        show_table(place, arguments.rows)


if __name__ == "__main__":
    main()
