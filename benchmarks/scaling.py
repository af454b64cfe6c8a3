"""Whole releases without a language model, by the number of private records: time, memory, and what grows.

Each release is made in a process of its own from a made-up Parquet file: reading, the ledger and the run's folder are
in it. Its floor, in the same process, is decoding the columns of the file once into Python objects. Embeddings are
hashes, so an embedder's time per text comes on top (the row ``embedding`` of ``ratios``).
"""

from __future__ import annotations

import tempfile
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq

import understudy as us
from benchmarks import corpora
from benchmarks.measuring import in_own_process, measured, peak_mb, rounded, say
from benchmarks.results import Row
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.verified import VerifiedCorpus, contents
from understudy.ledger import Ledger
from understudy.methods.shared.queries.counts import LabelCounts
from understudy.methods.shared.specs import LabelCountsSpec
from understudy.privacy.measurement import exact_sum
from understudy.privacy.unit import Unit

SEED = corpora.SEED
PUBLIC_TEXTS = 2_000
_BUDGET = us.Budget(6, "1e-6")
_SECRETS = us.SecretBudget("1e-4", "1e-3")


@dataclass(frozen=True)
class Case:
    """One kind of release.

    Attributes:
        what: shown on the page.
        columns: that are read; the floor decodes these.
        make: makes the release of a corpus, with a folder for what it needs.
        grows: what its memory holds of each record or unit, where it is found to grow.
    """

    what: str
    columns: dict[str, Any]
    make: Callable[[us.Corpus, Path], object]
    grows: str = "little: what is read ahead of a file, and what the allocator keeps"


def releasing(method: Any, budget: Any = _BUDGET, **options: Any) -> Callable[[us.Corpus, Path], object]:
    def make(corpus: us.Corpus, folder: Path) -> object:
        ledger = Ledger.create(folder / "ledger.sqlite").location
        settings = {"dataset": "benchmark", "ledger": ledger, "output": folder / "out", "embedder": "benchmark:hash"}
        made = method(folder) if callable(method) else method
        return us.release(corpus, made, budget, **settings, **options)

    return make


def _count_labels(corpus: us.Corpus, _folder: Path) -> object:
    key = b"benchmark"
    steady = VerifiedCorpus(corpus, key=key, expected=contents(corpus, key))
    return exact_sum(LabelCounts(LabelCountsSpec(len(corpus.labels))), BoundedCorpus(steady, Unit(), key))


def _sec_pe(folder: Path) -> us.SecPE:
    public = corpora.write_table(folder / "public.parquet", PUBLIC_TEXTS, seed=corpora.SEED + 2)
    return us.SecPE(public_corpus=str(public), public_corpus_is_public=True)


PLAIN: dict[str, Any] = {"text": "text", "label": "label"}
_OWNERS = "hashes of owners and their used records, a number per owner (a part of them with `--engine`)"
_UNITS = "a number per record, to find its block in the file of embeddings"
CASES = {
    "label-counts": Case("label counts alone (one sum)", PLAIN, _count_labels),
    "dp-kps": Case("dp-kps, defaults", PLAIN, releasing(us.DPKPS())),
    "dp-kps-1000": Case("dp-kps, --top-terms 1000", PLAIN, releasing(us.DPKPS(top_terms=1000))),
    "dp-kps-owners": Case(
        "dp-kps, owners of ten records (five used)",
        {**PLAIN, "owner": "owner"},
        releasing(us.DPKPS(), max_records_per_owner=5),
        _OWNERS,
    ),
    "guided-evolution": Case("guided-evolution, or a guide", PLAIN, releasing(us.GuidedEvolution())),
    "aug-pe": Case(
        "aug-pe, one round, 200 candidates per label",
        PLAIN,
        releasing(us.AugPE(rounds=1, population=50, variations=3), llm="benchmark:hash"),
        _UNITS,
    ),
    "sec-pe": Case(
        "sec-pe, one record in ten with a secret",
        {**PLAIN, "secrets": ["secret"]},
        releasing(_sec_pe, _SECRETS, max_records_per_secret=5),
        "each secret, to count in how many records it is",
    ),
}


def measure_one(name: str, file: Path) -> Row:
    """The release ``name`` of one table; to be called in a process of its own."""
    return {"release": name, **measure_release(CASES[name], file)}


def measure_release(case: Case, file: Path, *, labels: int = corpora.LABELS) -> Row:
    """What one release takes, beside its floor."""
    stand_ins = {
        "load_embedder": lambda *_, **__: corpora.HashEmbedder(),
        "load_chat": lambda *_, **__: corpora.HashChat(),
    }
    with tempfile.TemporaryDirectory() as folder, patch.multiple("understudy.models.catalog", **stand_ins):
        corpora.HashEmbedder().embed(["warm"])
        corpus = us.read_corpus(file, labels=corpora.label_names(labels), **case.columns)
        passes = _count_passes(corpus)
        before = peak_mb()
        with measured() as used, warnings.catch_warnings(action="ignore", category=us.UnderstudyWarning):
            case.make(corpus, Path(folder))  # it may warn of too few records, which is no matter here
        with measured() as floor:  # afterwards: Arrow keeps some of what it took
            _decode(file, case.columns)
    return {
        **used.figures(),
        "before_mb": rounded(before),
        "floor": "decoding the columns once into Python objects",
        "floor_seconds": rounded(floor.processor_seconds),
        "ratio": rounded(used.processor_seconds / floor.processor_seconds),
        "passes": len(passes),
    }


def _decode(file: Path, columns: dict[str, Any]) -> None:
    names = [name for each in columns.values() for name in ([each] if isinstance(each, str) else each)]
    with pq.ParquetFile(file, pre_buffer=False) as parquet:
        for batch in parquet.iter_batches(4096, columns=names):
            batch.to_pydict()


def _count_passes(corpus: us.Corpus) -> list[None]:
    """Grows by one entry with each pass over the rows."""
    passes: list[None] = []
    table = corpus._table

    def rows() -> Any:
        passes.append(None)
        return table.rows()

    corpus._table = replace(table, rows=rows)
    return passes


def run(options: Namespace) -> Iterator[Row]:
    for records in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            file = corpora.write_table(Path(folder) / "corpus.parquet", records)
            megabytes = rounded(file.stat().st_size / 2**20)
            for name in options.releases:
                found = in_own_process(measure_one, name, file)
                say(f"{records:>9,} {name:18} {found['processor_seconds']:>8} s {found['anonymous_mb']} MiB")
                yield {"records": records, "file_mb": megabytes, **found}


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="numbers of records")
    parser.add_argument("--releases", nargs="+", choices=CASES, default=list(CASES))


def growth(rows: Sequence[Row], release: str, figure: str) -> float:
    """What one more record adds to ``figure``, between the smallest and the largest table."""
    found = sorted((row["records"], row[figure]) for row in rows if row["release"] == release)
    (few, low), (many, high) = found[0], found[-1]
    return max(0.0, (high - low) / (many - few))
