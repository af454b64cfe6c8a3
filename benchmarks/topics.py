"""Topics beside k-means without privacy: mutual information with labels that nobody showed either of them.

    python -m benchmarks.topics [--set trec ...] [--topics 10 20 50] [--epsilon 1 3 8] [--seeds 3] [--records 10000]

The steps of ``us.topics`` with its queries and its noise (as floating-point numbers, for speed), delta 1e-6; whole
runs came out alike. ``nmi``: normalised mutual information of the topics that all records are assigned to with their
labels; ``kmeans``: of scikit-learn's k-means (its defaults, as many seeds) on the same vectors. Written to
``results/beside/topics.json`` after every row; ``--cache`` keeps embeddings by text.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.guided import LABELS, KeptEmbedder
from benchmarks.measuring import load, machine, peak_mb, rounded, say, versions
from benchmarks.results import FOLDER, Result, Row
from benchmarks.sets import CACHE, DATA
from understudy.methods.additions.guide.plan import COUNT_WEIGHT, GRID, EmbeddingSumsSpec
from understudy.methods.additions.topics.centres import (
    Candidates,
    Directions,
    averaged,
    cells_of,
    first_centres,
    joined,
    merged,
    nearest_centres,
    next_centres,
)
from understudy.methods.additions.topics.labelling import CELL_ROUNDS, ROUNDS, SIZES, VOTES, sums_name
from understudy.methods.additions.topics.plan import CANDIDATES, SHARES
from understudy.methods.additions.topics.release import NearestSaid, TopicSizes, TopicSums, candidate_vectors
from understudy.methods.shared.evolution.embeddings import Block, private_vectors
from understudy.methods.shared.specs import LabelCountsSpec, VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit
from understudy.text.vocabulary.terms import load_vocabulary

UNIT = Unit("record")
SETS = ("banking77", "sgd", "dbpedia14", "ag_news", "trec")


def table(name: str, most: int) -> tuple[list[str], NDArray[np.int64]]:
    """Texts and the numbers of their labels, in an order of its own."""
    rows = pq.read_table(DATA / name / "train.parquet", columns=["text", LABELS[name]])
    rows = rows.filter(pc.and_(pc.is_valid(rows["text"]), pc.is_valid(rows[LABELS[name]])))
    rows = rows.take(np.random.default_rng(1).permutation(len(rows))[:most])
    return rows["text"].to_pylist(), np.unique(rows[LABELS[name]].to_pylist(), return_inverse=True)[1]


@dataclass(frozen=True)
class Votes:
    """A table's vectors, and its records' votes for the public terms, which are the same in every run but for noise."""

    vectors: NDArray[np.int16]
    terms: NDArray[np.int16]
    cast: NDArray[np.float64]

    @classmethod
    def of(cls, texts: list[str], vectors: NDArray[np.float32], terms: NDArray[np.int16]) -> Votes:
        grid = private_vectors(vectors)
        query = VoteHistogram(VotesSpec(UNIT), terms, np.arange(len(terms), dtype=np.int32), distance="centred")
        said = NearestSaid(load_vocabulary().terms[:CANDIDATES], terms, english=True)(texts, grid)
        return cls(grid, terms, query.of_batch(replace(block(grid), labels=said)) / COUNT_GRID)

    def topics(self, topics: int, epsilon: str, seed: int) -> tuple[NDArray[np.int32], int]:
        """The topic of each record, as ``topics.release.find`` finds them; and how many stand clear of the noise."""
        multipliers = gaussian_split(Budget.of(epsilon, "1e-6"), list(SHARES.values()))
        stds = dict(zip(SHARES, multipliers, strict=True))
        noise = np.random.default_rng([seed, topics, round(1000 * float(epsilon))])
        records, public = block(self.vectors), np.random.default_rng([seed, 0x70])
        votes = self.cast + noise.normal(0, stds[VOTES], self.cast.shape)
        candidates, directions = Candidates.of(self.terms, votes, stds[VOTES]), Directions.of(self.terms)
        centres = first_centres(candidates, cells_of(votes, stds[sums_name(1)], topics))
        before: tuple[NDArray[np.float64], float] | None = None
        for number in range(1, ROUNDS + 1):
            std = stds[sums_name(number)]
            sums = TopicSums(EmbeddingSumsSpec(len(centres)), centres).of_batch(records) / GRID
            measured = sums + noise.normal(0, std, sums.shape), std
            sums, std = averaged(measured, before) if before and len(before[0]) == len(centres) else measured
            before = measured
            centres = next_centres(sums, std, directions, public, last=number == ROUNDS)
            if number == CELL_ROUNDS:
                centres = joined(centres, sums[:, 0] / COUNT_WEIGHT, topics)
        counts = TopicSizes(LabelCountsSpec(topics), centres).of_batch(records) / COUNT_GRID
        topic, sizes = merged(centres, counts + noise.normal(0, stds[SIZES], counts.shape))
        return topic[np.maximum(nearest_centres(centres, self.vectors), 0)], int((sizes > 3 * stds[SIZES]).sum())


def block(vectors: NDArray[np.int16]) -> Block:
    return Block(vectors, np.zeros(len(vectors), np.int32), np.arange(len(vectors)))


def rows(options: argparse.Namespace, embedder: KeptEmbedder) -> Iterator[Row]:
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score as information

    for name in options.set:
        texts, labels = table(name, options.records)
        vectors = embedder.embed(texts)
        votes = Votes.of(texts, vectors, candidate_vectors(embedder))
        embedder.save()
        for topics in options.topics:
            plain = [
                float(information(labels, KMeans(topics, random_state=seed).fit_predict(vectors)))
                for seed in range(options.seeds)
            ]
            for epsilon in options.epsilon:
                runs = [votes.topics(topics, epsilon, seed) for seed in range(options.seeds)]
                ours, shown = [float(information(labels, topic)) for topic, _ in runs], [clear for _, clear in runs]
                yield {
                    "set": name,
                    "records": len(texts),
                    "labels": len(set(labels.tolist())),
                    "topics": topics,
                    "epsilon": float(epsilon),
                    "nmi": round(float(np.mean(ours)), 3),
                    "nmi_std": round(float(np.std(ours)), 3),
                    "kmeans": round(float(np.mean(plain)), 3),
                    "share": round(float(np.mean(ours) / np.mean(plain)), 3),
                    "topics_shown": round(float(np.mean(shown)), 1),
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--topics", nargs="+", type=int, default=[10, 20, 50])
    parser.add_argument("--epsilon", nargs="+", default=["1", "3", "8"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--cache", type=Path, default=CACHE / "topics.npz")
    options = parser.parse_args()
    embedder = KeptEmbedder(options.cache)
    begun, clock, processor, made = load(), time.perf_counter(), time.process_time(), list[Row]()
    settings = {name: value for name, value in vars(options).items() if name != "cache"}
    for row in rows(options, embedder):
        say(" ".join(f"{name} {value}" for name, value in row.items()))
        made.append(row)
        Result(
            "topics",
            datetime.now(UTC).isoformat(timespec="seconds"),
            machine(),
            versions(),
            {"start": begun, "end": load()},
            settings,
            {"order of rows": 1},
            round(time.perf_counter() - clock, 1),
            round(time.process_time() - processor, 1),
            rounded(peak_mb()) or 0.0,
            made,
        ).write(FOLDER / "beside")


if __name__ == "__main__":
    main()
