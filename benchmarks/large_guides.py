"""A guide of a large table: how long embedding its sample takes beside the rest of a release, and how much memory.

    python -m benchmarks.large_guides --records 100000 1000000 --epsilon 1

Each release (dp-kps, made-up texts of 20 words at most, four labels, the built-in embedder) runs in a process of its
own, with as many records declared as there are.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import understudy as us
from benchmarks import corpora
from benchmarks.measuring import in_own_process, measured
from benchmarks.results import Row
from understudy.ledger import Ledger

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--epsilon", default="1")
    given = parser.parse_args()
    for records in given.records:
        with tempfile.TemporaryDirectory() as folder:
            file = write_table(Path(folder) / "table.parquet", records)
            print(json.dumps(in_own_process(measure_one, file, records, given.epsilon)), flush=True)


if __name__ == "__main__":
    main()
