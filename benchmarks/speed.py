"""Speed and memory of the parts that matter, each in a process of its own, each beside a floor in the same process.

python benchmarks/speed.py release     a release of dbpedia14 (14,612 records), models loaded
python benchmarks/speed.py sequences   14,000 sequences, independent and iterative
python benchmarks/speed.py matching    400,000 terms against real text, one core
python benchmarks/speed.py memory      peak memory of a release at 1 and 10 times the corpus
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import understudy as us
from sets import DATA, VOCABULARIES, embedder, load_set
from understudy.ledger import Ledger
from understudy.methods.dp_kps.sequences import contrast_weights, sample_independent, sample_iterative, structures
from understudy.vocabulary.matcher import TermMatcher
from understudy.vocabulary.terms import load_vocabulary
from utility import shared_embedder

VOCABULARY = str(VOCABULARIES / "glove6b_400k.parquet")


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one_release(corpus: us.Corpus, **parameters: object) -> float:
    """Seconds of a run that draws one sequence a label."""
    method = us.DPKPS(vocabulary=VOCABULARY, vocabulary_is_public=True, **parameters)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        ledger = Ledger.create(Path(folder) / "ledger.sqlite").location
        us.run(
            corpus, method, us.Budget(6, "1e-6"), llm="none", records_per_label=1, ledger=ledger, dataset="benchmark"
        )
        return time.perf_counter() - started


def measure_release() -> None:
    texts = load_set("dbpedia14")
    embedder().embed(["warm"])
    for parameters in ({"bandwidth": 0}, {"bandwidth": 0.35}, {"bandwidth": 0.5, "mode": "iterative"}):
        corpus = us.read_corpus(texts.train, text="text", label="label", labels=list(texts.labels))
        started = time.perf_counter()
        reading = sum(len(text) for batch in corpus.batches() for text in batch.texts)
        floor = time.perf_counter() - started
        with shared_embedder():
            seconds = one_release(corpus, **parameters)
        report(
            "release", **parameters, seconds=seconds, floor_reading_once=floor, characters=reading, peak_mb=peak_mb()
        )


def measure_sequences() -> None:
    generator = np.random.default_rng(0)
    labels, terms, length, count, frequencies = 14, 1000, 10, 1000, 2000
    weights = contrast_weights(generator.random((labels, terms)))
    started = time.perf_counter()
    for row in weights:
        sample_independent(row, length=length, count=count, generator=generator)
    report("14,000 independent sequences", seconds=time.perf_counter() - started)
    sizes = structures(length, "log")
    phases = {m: generator.standard_normal((m, terms, frequencies)).astype(np.float32) for m in sizes}
    sketches = {m: generator.standard_normal((labels, 2 * frequencies)) for m in sizes}
    left = generator.random((count, 2 * frequencies), dtype=np.float32)
    right = generator.random((2 * frequencies, terms), dtype=np.float32)
    started = time.perf_counter()
    for _ in range(labels * length):
        left @ right
    floor = time.perf_counter() - started
    started = time.perf_counter()
    sample_iterative(sketches, phases, np.zeros((labels, terms)), length=length, count=count, generator=generator)
    seconds = time.perf_counter() - started
    report("14,000 iterative sequences", seconds=seconds, floor_bare_products=floor, ratio=seconds / floor)


def measure_matching() -> None:
    terms = load_vocabulary(VOCABULARY, stop_words="none").terms
    words = [term for term in terms if " " not in term][:300_000]
    pairs = [f"{first} {second}" for first in words[:320] for second in words[:320]][: 400_000 - len(words)]
    texts = pq.read_table(DATA / "ag_news" / "train.parquet").column("text").to_pylist()
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    started = time.perf_counter()
    for text in texts:
        re.findall(r"\w+", text.lower())
    floor = megabytes / (time.perf_counter() - started)
    for name, chosen in (("one word", terms), ("one and two words", [*words, *pairs])):
        matcher = TermMatcher(chosen)
        started = time.perf_counter()
        found = sum(len(matcher.find(text)) for text in texts)
        speed = megabytes / (time.perf_counter() - started)
        report("matching", terms=len(chosen), kind=name, mb_per_second=speed, floor_regex_words=floor, found=found)


def measure_memory() -> None:
    """Corpora of 1 and 10 times dbpedia14's texts, in processes of their own."""
    for units in ("record", "owner"):
        for times in (1, 10):
            subprocess.run([sys.executable, __file__, "memory-one", units, str(times)], check=True)


def measure_memory_one(units: str, times: int) -> None:
    texts = load_set("dbpedia14")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "corpus.parquet"
        source = pq.read_table(texts.train, columns=["text", "label"])
        owners = pa.array([f"owner {row % 2000}" for row in range(len(source))])
        with pq.ParquetWriter(file, source.append_column("owner", owners).schema) as writer:
            for _ in range(times):
                writer.write_table(source.append_column("owner", owners), row_group_size=4096)
        records = len(source) * times
        del source, owners
        before = peak_mb()
        owner = "owner" if units == "owner" else None
        corpus = us.read_corpus(file, text="text", label="label", labels=list(texts.labels), owner=owner)
        seconds = one_release(corpus)
        report("memory", units=units, records=records, seconds=seconds, peak_mb=peak_mb(), before_mb=before)


def report(what: str, **figures: object) -> None:
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}
    print(json.dumps({"what": what, **rounded}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["release", "sequences", "matching", "memory", "memory-one"])
    parser.add_argument("rest", nargs="*")
    arguments = parser.parse_args()
    if arguments.what == "memory-one":
        measure_memory_one(arguments.rest[0], int(arguments.rest[1]))
        return
    {
        "release": measure_release,
        "sequences": measure_sequences,
        "matching": measure_matching,
        "memory": measure_memory,
    }[arguments.what]()


if __name__ == "__main__":
    main()
