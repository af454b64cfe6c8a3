"""Voting, the hot spot of private evolution: from the file of private embeddings to the histogram of votes."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import by_turns, in_own_process, measured, rounded, say
from benchmarks.results import Row
from understudy.corpus.bounding import BoundedBatch
from understudy.methods.shared.evolution.embeddings import PrivateEmbeddings, integer_vectors
from understudy.methods.shared.specs import VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.privacy.measurement import exact_sum
from understudy.privacy.unit import Unit

DIMENSION = 384
SEED = 0
PLAIN_ROWS = 1024  # of a block of the plain product: 512 to 4096 take the same time


class RandomEmbedder:
    """Random unit vectors, whatever the texts."""

    model_id = fingerprint = "random"

    def __init__(self) -> None:
        self._generator = np.random.default_rng(SEED)

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
    return VoteHistogram(VotesSpec(Unit()), np.concatenate(batches), np.zeros(candidates, dtype=np.int32))


def against_product(count: int, candidates: int, repetitions: int) -> dict[str, float | None]:
    """Beside a plain blocked product and argmax of the same numbers."""
    x, y = (RandomEmbedder().embed([""] * size) for size in (count, candidates))
    return _beside(
        lambda: [(x[start : start + PLAIN_ROWS] @ y.T).argmax(axis=1) for start in range(0, count, PLAIN_ROWS)],
        count,
        candidates,
        repetitions,
    )


def against_faiss(count: int, candidates: int, repetitions: int) -> dict[str, float | None] | None:
    """Beside the search of the nearest candidate by faiss, as the ``pe`` library does it; None where it is not there.

    It builds a flat L2 index of the candidates and searches it for all records at once.
    """
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(1)
    x, y = (RandomEmbedder().embed([""] * size) for size in (count, candidates))

    def search() -> None:
        index = faiss.IndexFlatL2(DIMENSION)
        index.add(y)
        _, nearest = index.search(x, 1)
        np.bincount(nearest[:, 0], minlength=candidates)

    return _beside(search, count, candidates, repetitions)


def _beside(floor: Callable[[], object], count: int, candidates: int, repetitions: int) -> dict[str, float | None]:
    query = votes(candidates)
    with tempfile.TemporaryDirectory() as folder:
        data = records(count, folder)
        return by_turns(lambda: exact_sum(query, data), floor, repetitions=repetitions)


def growth_one(count: int, candidates: int) -> Row:
    query = votes(candidates)
    with tempfile.TemporaryDirectory() as folder:
        exact_sum(votes(10), records(10, folder))  # warms up: torch is imported to look for a GPU
        data = records(count, folder)
        with measured() as used:
            exact_sum(query, data)
        x, y = (RandomEmbedder().embed([""] * size) for size in (1024, candidates))
        with measured() as floor:
            (x @ y.T).argmax(axis=1)
    plain = floor.processor_seconds * count / len(x)
    return {
        "records": count,
        "candidates": candidates,
        **used.figures(),
        "floor": "a plain product and argmax of 1,024 records, times their number",
        "floor_seconds": rounded(plain),
        "ratio": rounded(used.processor_seconds / plain),
        "nanoseconds_per_record_and_candidate": rounded(used.processor_seconds / count / candidates * 1e9),
    }


def run(options: Namespace) -> Iterator[Row]:
    for count in options.records:
        say(f"{count:,} records against {options.candidates:,} candidates")
        yield in_own_process(growth_one, count, options.candidates)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 20_000, 40_000])
    parser.add_argument("--candidates", type=int, default=5_000)
