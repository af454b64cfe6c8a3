"""Memory and time of an evaluation, metric by metric, each in a process of its own.

python benchmarks/evaluating.py 10000                  every metric on two tables of so many texts
python benchmarks/evaluating.py 100000 near --limit 60    one of them; what takes longer is stopped, its memory is told

Texts of about 40 words by Zipf's law, one in ten of them near a real one, and vectors made of a hash: nothing is
embedded. Memory is the peak above that of the tables themselves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from understudy.evaluate.metrics.fidelity import measure_fidelity
from understudy.evaluate.metrics.fidelity.embeddings import (
    frechet_values,
    kernel_values,
    mauve_values,
    neighbour_values,
)
from understudy.evaluate.metrics.fidelity.texts import (
    distinct_values,
    length_values,
    self_bleu_values,
    vocabulary_values,
)
from understudy.evaluate.metrics.leakage import (
    measure_copying,
    measure_leakage,
    measure_near_duplicates,
    measure_neighbours,
    measure_replay,
)
from understudy.evaluate.metrics.overview import make_overview
from understudy.evaluate.metrics.sample import Sample, normal_words, words_of
from understudy.evaluate.metrics.value import REAL, SYNTHETIC
from understudy.text.vocabulary.words import split_words

DIMENSION = 384
SAMPLING = {"seed": 0, "resamples": 100}
DETECTORS = ("email", "phone", "url", "iban", "credit_card", "us_ssn")


def table(count: int, seed: int, *, near: Sample | None = None) -> Sample:
    """Texts with labels and vectors; one in ten is a text of ``near`` with a word changed."""
    generator = np.random.default_rng(seed)
    words = np.array([f"w{number:x}" for number in range(30_000)])
    texts = []
    for start in range(0, count, 1000):
        for ranks in generator.zipf(1.3, size=(min(1000, count - start), 40)):
            texts.append(" ".join(words[np.minimum(ranks, len(words)) - 1][: generator.integers(20, 41)]))
    if near is not None:
        for row in range(0, count, 10):
            texts[row] = near.texts[row].replace(" ", " changed ", 1)
    centres = np.random.default_rng(7).normal(size=(50, DIMENSION)).astype(np.float32)
    vectors = generator.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors += 2 * centres[generator.integers(50, size=count)]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = generator.choice(["a", "b", "c"], size=count).tolist()
    return Sample(tuple(texts), tuple(labels), vectors)


def each_words(real: Sample, other: Sample, split: Callable[[str], list[str]]) -> tuple[list[list[str]], ...]:
    return tuple(words_of(each.texts, split) for each in (real, other))


METRICS: dict[str, Callable[[Sample, Sample], Any]] = {
    "words": lambda real, other: each_words(real, other, split_words),
    "frechet": lambda real, other: frechet_values(real, other, of=SYNTHETIC, **SAMPLING),
    "kernel": lambda real, other: kernel_values(real, other, of=SYNTHETIC, **SAMPLING),
    "mauve": lambda real, other: mauve_values(real, other, of=SYNTHETIC, **SAMPLING),
    "neighbourhoods": lambda real, other: neighbour_values(real, other, of=SYNTHETIC, **SAMPLING),
    "lengths": lambda real, other: length_values(
        *(np.array([len(words) for words in each]) for each in each_words(real, other, split_words)),
        of=SYNTHETIC,
        **SAMPLING,
    ),
    "vocabulary": lambda real, other: vocabulary_values(
        *each_words(real, other, split_words), of=SYNTHETIC, **SAMPLING
    ),
    "distinct": lambda real, other: distinct_values(
        words_of(other.texts, split_words), SYNTHETIC, total=10**9, **SAMPLING
    ),
    "self_bleu": lambda real, other: self_bleu_values(other.texts, SYNTHETIC, **SAMPLING),
    "copying": lambda real, other: (
        lambda ours, theirs: measure_copying(ours, {SYNTHETIC: theirs}, seed=0, resamples=200)
    )(*each_words(real, other, normal_words)),
    "near": lambda real, other: (lambda ours, theirs: measure_near_duplicates(ours, {SYNTHETIC: theirs}, seed=0))(
        *each_words(real, other, normal_words)
    ),
    "closest": lambda real, other: measure_neighbours(real, {SYNTHETIC: other}, seed=0, resamples=200),
    "replay": lambda real, other: measure_replay(real.texts, {SYNTHETIC: other.texts}, public=(), detectors=DETECTORS),
    "overview": lambda real, other: make_overview({REAL: real, SYNTHETIC: other}, seed=0),
    "fidelity": lambda real, other: measure_fidelity(real, other, holdout=None, schema=None, **SAMPLING),
    "leakage": lambda real, other: measure_leakage(real, other, holdout=None, detectors=DETECTORS, seed=0),
}


def memory(name: str) -> float:
    """``VmRSS`` or ``VmHWM`` of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def one(metric: str, count: int, limit: float) -> None:
    real = table(count, 0)
    other = table(count, 1, near=real)
    METRICS[metric](*(each.take(np.arange(200)) for each in (real, other)))  # what is imported and begun once
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    started = time.perf_counter()
    made: list[Any] = []

    def told(*, whole: bool) -> None:
        seconds, peak = time.perf_counter() - started, memory("VmHWM") - before
        values = [each.value for each in made[0]] if made and metric not in ("overview", "words") else None
        line = {"metric": metric, "texts": count, "peak_mb": round(peak), "seconds": round(seconds, 1), "whole": whole}
        print(json.dumps({**line, "values": values}), flush=True)

    def stop() -> None:
        told(whole=False)
        os._exit(0)

    timer = threading.Timer(limit, stop)
    timer.start()
    with threadpool_limits(1):
        made.append(METRICS[metric](real, other))
    timer.cancel()
    told(whole=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=int)
    parser.add_argument("metrics", nargs="*", choices=[*METRICS, []])
    parser.add_argument("--limit", type=float, default=600, help="seconds per metric")
    given = parser.parse_args()
    parts = [name for name in METRICS if name not in ("fidelity", "leakage")]
    for metric in given.metrics or parts:
        process = multiprocessing.get_context("spawn").Process(target=one, args=(metric, given.texts, given.limit))
        process.start()
        process.join()
        if process.exitcode:
            print(json.dumps({"metric": metric, "texts": given.texts, "failed": process.exitcode}), file=sys.stderr)


if __name__ == "__main__":
    main()
