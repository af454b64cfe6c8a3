"""A guide of a large table: how long embedding its sample takes beside the rest of a release, and how much memory.

    python -m benchmarks.large_guides --records 100000 1000000 --epsilon 1
    python -m benchmarks.large_guides --records 100000 --epsilon 1 --set ag_news

Each release (dp-kps, made-up texts of 20 words at most, four labels, the built-in embedder) runs in a process of its
own, with as many records declared as there are. With ``--set`` nothing is timed: so many records are drawn from a set,
with replacement, and classifiers learn from phrases that a guide of all of them chose, and one of the sample; simulated
releases, as in ``defaults``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import understudy as us
from benchmarks import corpora
from benchmarks.measuring import in_own_process, measured
from benchmarks.results import Row
from benchmarks.sets import CACHE
from understudy.ledger import Ledger
from understudy.methods.additions.guide import plan as guides
from understudy.methods.dp_kps.plan import public_vocabulary
from understudy.methods.facts import PublicFacts
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet

_WORDS = 20


def write_table(path: Path, records: int) -> Path:
    names = corpora.label_names(corpora.LABELS)
    with pq.ParquetWriter(path, pa.schema([("text", pa.string()), ("label", pa.string())])) as writer:
        for texts, labels in corpora.texts(records):
            short = [" ".join(text.split()[:_WORDS]) for text in texts]
            writer.write_table(pa.table({"text": short, "label": [names[label] for label in labels]}))
    return path


def measure_one(file: Path, records: int, epsilon: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        corpus = us.read_corpus(file, text="text", label="label", labels=corpora.label_names(corpora.LABELS))
        with measured() as used:
            made = us.release(
                corpus,
                us.DPKPS(),
                us.Budget(epsilon, "1e-6"),
                guide=True,
                expected_records=records,
                dataset="benchmark",
                ledger=Ledger.create(Path(folder) / "ledger.sqlite").location,
                output=Path(folder) / "out",
            )
        diary = (Path(folder) / "out" / "private" / "diary.jsonl").read_text("utf-8").splitlines()
    seconds = {note["charge"]: round(note["seconds"], 1) for note in map(json.loads, diary) if "charge" in note}
    sampled = float(made.arrays["guide"][:, 0].sum() / 0.3)
    return {"records": records, "sampled": round(sampled), "seconds": seconds, **used.figures()}


def of_sample_and_all(name: str, records: int, epsilon: str, seed: int) -> Iterator[Row]:
    """What phrases teach (100 per label) that a guide of all records chose, and one of the sample of them."""
    # not above: a process that measures a release would hold the vocabulary that ``defaults`` reads
    from benchmarks.defaults import Private, scores, texts_of
    from benchmarks.guided import KeptEmbedder, sample, table

    embedder, unit = KeptEmbedder(CACHE / "texts.npz"), Unit("record")
    rows, tested = table(name, "train"), table(name, "test", 3000)
    names = tuple(sorted(set(rows["label"].to_pylist())))
    test = sample(tested["text"].to_pylist(), tested["label"].to_pylist(), embedder)
    drawn = rows.take(np.random.default_rng(seed).integers(rows.num_rows, size=records))
    number = {label: place for place, label in enumerate(names)}
    labels = np.array([number[label] for label in drawn["label"].to_pylist()], dtype=np.int32)
    every = Private(drawn["text"].to_pylist(), labels, names, embedder, seed)
    facts, budget, most = PublicFacts(unit, LabelSet(names), records), us.Budget(epsilon, "1e-6"), guides.MOST_EMBEDDED
    exact = every.sums(public_vocabulary(us.DPKPS()).terms, by_label=False)
    for way, embedded in (("all", records), ("sample", most)):
        guides.MOST_EMBEDDED = embedded
        plan = guides.plan_with_guide(
            lambda rest: us.DPKPS().plan(rest, facts),
            budget,
            share=guides.GUIDE_SHARE,
            labels=len(names),
            expected_records=records,
            unit=unit,
        )
        guides.MOST_EMBEDDED = most
        rate = plan.mechanism("guide").rate
        some = np.flatnonzero(np.random.default_rng([seed, 3]).random(records) < rate)
        read = Private([every.texts[place] for place in some.tolist()], labels[some], names, embedder, seed)
        every.__dict__["guide_sums"] = read.guide_sums
        counts = exact + np.random.default_rng([seed, 1]).normal(0, plan.mechanism("vocabulary").noise_std, len(exact))
        texts, made = texts_of(every, counts, plan, size=None, per_label=100)
        found = scores(sample(texts, [names[label] for label in made], embedder), test)
        yield {"set": name, "epsilon": epsilon, "seed": seed, "guide": way, "embedded": len(some), **found}
    embedder.save()


def main() -> None:
    from benchmarks.guided import LABELS

    parser = argparse.ArgumentParser()
    parser.add_argument("--set", choices=LABELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--epsilon", default="1")
    given = parser.parse_args()
    if given.set:
        for records, seed in ((records, seed) for records in given.records for seed in given.seeds):
            for row in of_sample_and_all(given.set, records, given.epsilon, seed):
                print(json.dumps(row), flush=True)
        return
    for records in given.records:
        with tempfile.TemporaryDirectory() as folder:
            file = write_table(Path(folder) / "table.parquet", records)
            print(json.dumps(in_own_process(measure_one, file, records, given.epsilon)), flush=True)


if __name__ == "__main__":
    main()
