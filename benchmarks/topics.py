"""Topics beside k-means without privacy: mutual information with labels that nobody showed either of them.

    python -m benchmarks.topics [--set trec ...] [--topics 10 20 50] [--epsilon 1 3 8] [--seeds 3] [--records 10000]

Whole runs of ``us.topics`` with ledgers of their own, delta 1e-6. ``nmi``: normalised mutual information of the topics
that all records are assigned to with their labels; ``kmeans``: of scikit-learn's k-means (its defaults, as many seeds)
on the same vectors. Written to ``results/beside/topics.json`` after every row; ``--cache`` keeps embeddings by text.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import understudy as us
import understudy.models.catalog as catalog
from benchmarks.guided import LABELS, KeptEmbedder
from benchmarks.measuring import load, machine, peak_mb, rounded, say, versions
from benchmarks.results import FOLDER, Result, Row
from benchmarks.sets import CACHE, DATA
from understudy.ledger import Ledger

SETS = ("banking77", "sgd", "dbpedia14", "ag_news", "trec")


def table(name: str, most: int) -> tuple[list[str], NDArray[np.int64]]:
    """Texts and the numbers of their labels, in an order of its own."""
    rows = pq.read_table(DATA / name / "train.parquet", columns=["text", LABELS[name]])
    rows = rows.filter(pc.and_(pc.is_valid(rows["text"]), pc.is_valid(rows[LABELS[name]])))
    rows = rows.take(np.random.default_rng(1).permutation(len(rows))[:most])
    return rows["text"].to_pylist(), np.unique(rows[LABELS[name]].to_pylist(), return_inverse=True)[1]


def found(texts: list[str], topics: int, epsilon: str, seed: int) -> us.FoundTopics:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.sqlite"
        Ledger.create(ledger).close()
        named: dict[str, Any] = {"text": "text", "dataset": "benchmark", "ledger": str(ledger), "seed": seed}
        return us.topics([{"text": text} for text in texts], us.Budget(epsilon, "1e-6"), topics=topics, **named)


def rows(options: argparse.Namespace, embedder: KeptEmbedder) -> Iterator[Row]:
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score as information

    for name in options.set:
        texts, labels = table(name, options.records)
        vectors = embedder.embed(texts)
        embedder.save()
        for topics in options.topics:
            plain = [
                float(information(labels, KMeans(topics, random_state=seed).fit_predict(vectors)))
                for seed in range(options.seeds)
            ]
            for epsilon in options.epsilon:
                start, ours, shown = time.perf_counter(), [], []
                for seed in range(options.seeds):
                    made = found(texts, topics, epsilon, seed)
                    ours.append(float(information(labels, made.assign(texts))))
                    shown.append(sum(topic.clear for topic in made.topics))
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
                    "seconds_each": rounded((time.perf_counter() - start) / options.seeds),
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
    embedder: Any = KeptEmbedder(options.cache)
    catalog.load_embedder = lambda _spec: embedder  # type: ignore[assignment]
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
