"""All methods side by side on labelled sets: their texts, the accuracy of classifiers trained on them, a table.

    python -m benchmarks.comparison generate --set ag_news --out DIR [--rows aug-pe-e6 ...] [--repetitions 3]
    python -m benchmarks.comparison evaluate --set ag_news --out DIR
    python -m benchmarks.comparison table --set ag_news --out DIR        # as Markdown
    python -m benchmarks.comparison leaks --set ag_news --out DIR        # as Markdown
    python -m benchmarks.comparison speed [METRIC ...]

Folders are ``DIR/SET/ROW/REPETITION``, each as ``understudy run`` makes it (comparison_rows.py); what is there is kept.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import understudy as us
from benchmarks import comparison_speed
from benchmarks.comparison_rows import ROWS, SIZES, Place, Remembering
from understudy.evaluate.metrics.fidelity.embeddings import kernel_values
from understudy.evaluate.metrics.leakage import measure_leakage
from understudy.evaluate.metrics.results import Evaluation, load_evaluation
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import ACCURACY, accuracy, accuracy_interval, kind_named, numbered
from understudy.evaluate.metrics.value import HOLDOUT, SYNTHETIC, MetricValue

KINDS = ("tf-idf", "embedding")
LEAKS = {
    "words in copied spans of 8": "copied_words",
    "near duplicates": "near_duplicates",
    "nearer to training than to test texts": "nearer_to_real_than_holdout",
}
"""Some leakage metrics: a column each of the table."""


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
    """Reads tables with their embeddings."""

    def __init__(self, place: Place) -> None:
        self._embedder = Remembering(place)

    def __call__(self, path: Path) -> Sample:
        table = pq.read_table(path, columns=["text", "label"])
        texts = tuple(table["text"].to_pylist())
        return Sample(texts, tuple(table["label"].to_pylist()), self._embedder.embed(texts))


def evaluate(place: Place, rows: list[str]) -> None:
    """The figures of each row, over its repetitions, into ``DIR/SET/ROW/evaluation.json``; what is there is kept.

    Accuracy on the real test texts, with an interval over repetitions and test texts; of the first repetition, the
    kernel distance to 2,000 of the test texts.
    """
    read = Reading(place)
    test = read(place.split("test"))
    assert test.labels is not None
    labels = tuple(place.labels)
    truth = numbered(test.labels, labels)
    for row in rows:
        tables = [read(path) for path in sorted(place.folder(row, 0).parent.glob("*/release/synthetic.parquet"))]
        if not tables or place.figures(row).exists():
            continue
        sizes = [len(table) for table in tables]
        found: list[MetricValue] = []
        for name in KINDS:
            predictions = []
            for table in tables:
                known, predict = kind_named(name).train(table, seed=0)
                predictions.append(numbered(known, labels)[predict(test)])
            values = [accuracy(truth, each) for each in predictions]
            settings = {"classifier": name, "runs": len(tables)}
            interval = accuracy_interval(truth, predictions)
            size = round(np.mean(sizes))
            found.append(
                MetricValue(ACCURACY, float(np.mean(values)), interval=interval, settings=settings, sample_size=size)
            )
            print(place.name, row, name, sizes, [round(value, 4) for value in values], flush=True)
        found += kernel_values(test.at_most(2000, seed=0), tables[0], of=SYNTHETIC, seed=0, resamples=50)
        Evaluation(tuple(found), None, {"set": place.name, "row": row}).save(place.figures(row))


def show_table(place: Place, rows: list[str]) -> None:
    """A line a row, as Markdown."""
    print(f"| {place.name} | texts a label | runs | {' | '.join(KINDS)} | kernel distance |\n|---|---|---|---|---|---|")
    for row in rows:
        if place.figures(row).exists():
            *accuracies, distance = load_evaluation(place.figures(row)).values
            count = (accuracies[0].sample_size or 0) / len(place.labels)
            cells = [_cell(measured, 3) for measured in accuracies] + [_cell(distance, 4)]
            print(f"| {row} | {count:,.0f} | {accuracies[0].settings['runs']} | {' | '.join(cells)} |")


def _cell(measured: MetricValue, digits: int) -> str:
    assert measured.interval is not None
    value, low, high = (
        f"{each:z.{digits}f}" for each in (measured.value, measured.interval.low, measured.interval.high)
    )
    return f"{value} ({low} to {high})"


def leaks(place: Place, rows: list[str]) -> None:
    """What the first repetition of each row shares with all training texts, beside 2,000 test texts; as Markdown."""
    read = Reading(place)
    train, test = read(place.split("train")), read(place.split("test")).at_most(2000, seed=0)
    print(f"| {place.name} | {' | '.join(LEAKS)} |\n|---|{'---|' * len(LEAKS)}")
    told = False
    for row in rows:
        if row.startswith("real-") or not place.table(row, 0).exists():
            continue
        values = measure_leakage(train, read(place.table(row, 0)), holdout=test, detectors=(), seed=0)
        for name, of in ((row, SYNTHETIC),) if told else (("held-out texts", HOLDOUT), (row, SYNTHETIC)):
            found = {each.metric.name: each for each in values if each.of == of and _is_shown(each)}
            cells = [_cell(found[metric], 3) if metric in found else "" for metric in LEAKS.values()]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        told = True


def _is_shown(measured: MetricValue) -> bool:
    return measured.settings.get("n", 8) == 8 and measured.settings.get("similarity", 0.8) == 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["generate", "evaluate", "table", "leaks", "speed"])
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
    elif arguments.task == "leaks":
        leaks(place, arguments.rows)
    else:
        show_table(place, arguments.rows)


if __name__ == "__main__":
    main()
