"""Time and memory of each metric at 10,000 x 10,000 texts of AG News, embeddings given, each in a process of its own.

Beside them as a floor: the plain product of the two matrices of embeddings (float32 and float64), in blocks.
Processor seconds tell more than the clock where other work is on the machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.sets import DATA, embed
from understudy.evaluate.metrics.fidelity.embeddings import (
    frechet_values,
    kernel_values,
    mauve_values,
    neighbour_values,
)
from understudy.evaluate.metrics.fidelity.texts import (
    distinct_values,
    label_distance_values,
    label_share_values,
    length_values,
    self_bleu_values,
    vocabulary_values,
)
from understudy.evaluate.metrics.leakage import (
    measure_copying,
    measure_near_duplicates,
    measure_neighbours,
    measure_replay,
)
from understudy.evaluate.metrics.overview import make_overview
from understudy.evaluate.metrics.sample import Sample, normal_words
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.text.vocabulary.words import split_words

COUNT = 10_000
DRAWN: dict[str, Any] = {"seed": 0, "resamples": 100}
DETECTORS = ("email", "phone", "url", "us_ssn", "iban", "credit_card")
OF: dict[str, Any] = {"of": "synthetic", **DRAWN}


def samples() -> tuple[Sample, Sample]:
    """20,000 training texts in two halves."""
    table = pq.read_table(DATA / "ag_news" / "train.parquet")
    embeddings = embed(table["text"].to_pylist())
    whole = Sample(tuple(table["text"].to_pylist()), tuple(table["label_name"].to_pylist()), embeddings)
    rows = np.random.default_rng(0).permutation(len(whole))
    return whole.take(rows[:COUNT]), whole.take(rows[COUNT : 2 * COUNT])


def _product(a: Sample, b: Sample, kind: type[Any]) -> None:
    x, y = a.embeddings.astype(kind), b.embeddings.astype(kind)  # type: ignore[union-attr]
    for start in range(0, len(x), 512):
        x[start : start + 512] @ y.T


def _split(sample: Sample) -> list[list[str]]:
    return [split_words(text) for text in sample.texts]


def _normal(sample: Sample) -> list[Any]:
    return [normal_words(text) for text in sample.texts]


def _lengths(sample: Sample) -> Any:
    return np.asarray([len(text) for text in _split(sample)], np.int64)


def _classifier(kind: str) -> Callable[[Sample, Sample], Any]:
    return lambda a, b: measure_classifiers(None, a, {"synthetic": b}, kinds=(kind,), seeds=1)


METRICS: dict[str, Callable[[Sample, Sample], Any]] = {
    "floor, float32": lambda a, b: _product(a, b, np.float32),
    "floor, float64": lambda a, b: _product(a, b, np.float64),
    "Frechet distance": lambda a, b: frechet_values(a, b, **OF),
    "kernel distance": lambda a, b: kernel_values(a, b, **OF),
    "MAUVE, frontier integral": lambda a, b: mauve_values(a, b, **OF),
    "precision, recall, density, coverage": lambda a, b: neighbour_values(a, b, **OF),
    "lengths": lambda a, b: length_values(_lengths(a), _lengths(b), **OF),
    "vocabulary": lambda a, b: vocabulary_values(_split(a), _split(b), **OF),
    "distinct-n": lambda a, b: [distinct_values(_split(each), "x", total=400_000, **DRAWN) for each in (a, b)],
    "self-BLEU": lambda a, b: [self_bleu_values(each.texts, "x", **DRAWN) for each in (a, b)],
    "labels": lambda a, b: (
        label_distance_values(a.labels, b.labels, **OF),  # type: ignore[arg-type]
        label_share_values(b.labels, "synthetic", names=sorted(set(a.labels or ()))),  # type: ignore[arg-type]
    ),
    "copied spans, n-grams": lambda a, b: measure_copying(_normal(a), {"synthetic": _normal(b)}, seed=0, resamples=200),
    "near duplicates": lambda a, b: measure_near_duplicates(_normal(a), {"synthetic": _normal(b)}, seed=0),
    "nearest neighbours": lambda a, b: measure_neighbours(a, {"synthetic": b}, seed=0, resamples=200),
    "personal data": lambda a, b: measure_replay(a.texts, {"synthetic": b.texts}, public=(), detectors=DETECTORS),
    "accuracy, TF-IDF": _classifier("tf-idf"),
    "accuracy, embeddings": _classifier("embedding"),
    "accuracy, network": _classifier("network"),
    "map, topics, profiles": lambda a, b: make_overview({"real": a, "synthetic": b}, seed=0),
}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_one(name: str) -> None:
    a, b = samples()
    before, wall, core = _peak_mb(), time.perf_counter(), time.process_time()
    METRICS[name](a, b)
    wall, core = time.perf_counter() - wall, time.process_time() - core
    figures = {"wall_s": wall, "core_s": core, "peak_mb": _peak_mb(), "before_mb": before}
    print(json.dumps({"metric": name, **{key: round(value, 2) for key, value in figures.items()}}), flush=True)


def measure(names: list[str]) -> None:
    """Each metric in a process of its own, whose peak memory is its own, with one thread for matrix products."""
    for name in names or METRICS:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.comparison_speed", name],
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


if __name__ == "__main__":
    measure_one(sys.argv[1])
