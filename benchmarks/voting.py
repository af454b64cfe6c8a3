"""Voting, the hot spot of private evolution: from the file of private embeddings to the histogram of votes.

python benchmarks/voting.py ratio     20,000 x 384 against 5,000, beside a plain blocked product and argmax, by turns
python benchmarks/voting.py growth    25,000, 50,000 and 100,000 against 35,000: seconds and memory, each in a process
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedBatch
from understudy.evolution.embeddings import PrivateEmbeddings, integer_vectors
from understudy.methods.aug_pe.votes import VoteHistogram
from understudy.privacy.measurement import exact_sum
from understudy.privacy.unit import Unit

DIMENSION = 384
REPETITIONS = 9
LAST = 1_000_000  # records to which the times are extrapolated


class RandomEmbedder:
    """Random unit vectors, whatever the texts."""

    model_id = fingerprint = "random"

    def __init__(self) -> None:
        self._generator = np.random.default_rng(0)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = self._generator.standard_normal((len(texts), DIMENSION), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dataclass(frozen=True)
class Records:
    """So many texts, one label."""

    count: int

    def batches(self) -> Iterator[BoundedBatch]:
        for start in range(0, self.count, 8192):
            size = min(8192, self.count - start)
            ones = np.ones(size, dtype=np.int64)
            yield BoundedBatch([""] * size, np.zeros(size, dtype=np.int32), ones, np.arange(start, start + size))


def records(count: int, folder: str) -> PrivateEmbeddings:
    made = PrivateEmbeddings(Records(count), RandomEmbedder(), Path(folder), str(count))
    next(made.batches())  # embedded now, not when they are first timed
    return made


def votes(candidates: int) -> VoteHistogram:
    embedder = RandomEmbedder()  # in small batches, lest their making be the peak of memory
    batches = [
        integer_vectors(embedder.embed([""] * min(1000, candidates - start))) for start in range(0, candidates, 1000)
    ]
    return VoteHistogram(np.concatenate(batches), np.zeros(candidates, dtype=np.int32), Unit())


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure_ratio() -> None:
    count, candidates = 20_000, 5_000
    query = votes(candidates)
    x, y = (RandomEmbedder().embed([""] * size) for size in (count, candidates))

    def plain(rows: int) -> Callable[[], object]:
        return lambda: [(x[start : start + rows] @ y.T).argmax(axis=1) for start in range(0, count, rows)]

    with tempfile.TemporaryDirectory() as folder:
        data = records(count, folder)
        ways = {"ours": lambda: exact_sum(query, data)}
        ways |= {f"plain, blocks of {rows}": plain(rows) for rows in (512, 1024, 4096)}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for repetition in range(REPETITIONS + 1):
            for name, work in ways.items():
                took = seconds(work)
                if repetition:  # the first turn is for warming up
                    times[name].append(took)
    medians = {name: float(np.median(taken)) for name, taken in times.items()}
    best = min(median for name, median in medians.items() if name != "ours")
    report("20,000 x 384 against 5,000", **medians, ratio_to_best_plain=medians["ours"] / best)


def measure_growth() -> None:
    for count in (25_000, 50_000, 100_000):
        subprocess.run([sys.executable, __file__, "growth-one", str(count)], check=True)


def measure_growth_one(count: int) -> None:
    query = votes(35_000)
    with tempfile.TemporaryDirectory() as folder:
        exact_sum(votes(10), records(10, folder))  # warms up: torch is imported to look for a GPU
        data = records(count, folder)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        used = time.process_time()
        took = seconds(lambda: exact_sum(query, data))
        used = time.process_time() - used
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    report(
        f"{count:,} x 384 against 35,000",
        seconds=took,
        cpu_seconds=used,
        cpu_microseconds_a_record=used / count * 1e6,
        hours_for_a_million=took / count * LAST / 3600,
        peak_growth_mb=grown / 1024,
        scores_all_at_once_mb=count * 35_000 * 4 / 2**20,
    )


def report(what: str, **figures: float) -> None:
    print(json.dumps({"what": what, **{name: round(value, 4) for name, value in figures.items()}}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ratio", "growth", "growth-one"])
    parser.add_argument("count", nargs="?", type=int)
    arguments = parser.parse_args()
    if arguments.what == "growth-one":
        measure_growth_one(arguments.count)
    else:
        {"ratio": measure_ratio, "growth": measure_growth}[arguments.what]()


if __name__ == "__main__":
    main()
