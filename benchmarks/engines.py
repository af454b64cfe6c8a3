"""The same exact sums of private records on every engine: seconds by the clock, and that they are equal bit for bit.

Each engine works in a process of its own, after its workers have begun and been checked. The first pass, which sees
that the table stays as it is, is in it. The floor is one core of one process. Embeddings of ``guide`` are hashes; those
of ``embedding`` the built-in embedder's.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from benchmarks import corpora
from benchmarks.measuring import ONE_THREAD, in_own_process, rounded, say
from benchmarks.results import Row
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.corpus.verified import VerifiedCorpus, contents
from understudy.methods.additions.guide.plan import EmbeddingSumsSpec
from understudy.methods.additions.guide.sums import GuideSums
from understudy.methods.shared.queries.counts import TermHistogram
from understudy.methods.shared.specs import TermHistogramSpec
from understudy.privacy.measurement import Query, exact_sum
from understudy.privacy.unit import Unit
from understudy.run.settings import EngineParameters
from understudy.run.working import open_engine
from understudy.text.vocabulary.terms import built_in_terms
from understudy.text.vocabulary.words import TermMatcher

SEED = corpora.SEED
_KEY = b"benchmark"
ENGINES = ("in-process", "processes", "ray")
_OWNERS = Unit("owner", 5, "owner")


def _terms() -> Query[Any]:
    terms = built_in_terms()
    return TermHistogram(TermHistogramSpec("gaussian", 20, len(terms)), TermMatcher(terms))


def _guide() -> Query[Any]:
    return GuideSums(EmbeddingSumsSpec(corpora.LABELS), corpora.HashEmbedder(), corpora.DIMENSION)


def _embedding() -> Query[Any]:
    from understudy.models.catalog import load_embedder

    return GuideSums(EmbeddingSumsSpec(corpora.LABELS), load_embedder("builtin"), corpora.DIMENSION)


WORK: dict[str, tuple[str, Unit, Callable[[], Query[Any]]]] = {
    "matching": ("term counts of dp-kps over the built-in vocabulary", Unit(), _terms),
    "owners": ("the same, owners of ten records (five used), brought together first", _OWNERS, _terms),
    "guide": ("a guide, embeddings of hashes", Unit(), _guide),
    "embedding": ("a guide with the built-in embedder", Unit(), _embedding),
}


def measure_one(work: str, engine: str, file: Path, workers: int) -> Row:
    """To be called in a process of its own."""
    os.environ["UNDERSTUDY_THREADS"] = "1"  # in-process embedding would use all cores
    _, unit, make = WORK[work]
    query = make()
    columns = {"text": "text", "label": "label"} | ({"owner": "owner"} if unit.kind == "owner" else {})
    corpus = us.read_corpus(file, labels=corpora.label_names(corpora.LABELS), **columns)
    parameters = EngineParameters(engine=engine, **({} if engine == "in-process" else {"workers": workers}))
    with tempfile.TemporaryDirectory() as folder, open_engine(parameters, Path(folder) / "scratch") as opened:
        if opened is not None:
            list(opened.map(partial(_warm, query), range(2 * workers)))
        start = time.perf_counter()
        steady = VerifiedCorpus(corpus, key=_KEY, expected=contents(corpus, _KEY, opened))
        data = BoundedCorpus(steady, unit, _KEY, engine=opened, scratch=Path(folder) / "scratch" / "run")
        sums = exact_sum(query, data)
        seconds = time.perf_counter() - start
    return {"seconds": rounded(seconds), "sums": hashlib.sha256(sums.tobytes()).hexdigest()[:16]}


def _warm(query: Query[Any], _number: int) -> None:
    """Has a worker load what the query needs, and leaves time for the others to do so too."""
    query.of_batch(BoundedBatch(["a public text"], *(np.ones(1, kind) for kind in (np.int32, np.int64, np.int64))))
    time.sleep(1)


def run(options: Namespace) -> Iterator[Row]:
    sizes = dict(zip(WORK, options.sizes, strict=True))
    for work in options.work:
        with tempfile.TemporaryDirectory() as folder:
            file = corpora.write_table(Path(folder) / "corpus.parquet", sizes[work])
            first: Row | None = None
            for engine in options.engines:
                found = in_own_process(measure_one, work, engine, file, options.workers, environment=ONE_THREAD)
                first = first or found
                ratio = first["seconds"] / found["seconds"]
                equal = found.pop("sums") == first.get("sums", None) if found is not first else True
                say(f"{work:10} {engine:11} {found['seconds']:>8} s, {ratio:.2f} times as fast, equal: {equal}")
                yield {
                    **{"work": work, "what": WORK[work][0], "records": sizes[work], "engine": engine},
                    **{"wall_seconds": found["seconds"], "times_as_fast": rounded(ratio), "equal": equal},
                    **{"floor": "the same in one process with one core", "floor_seconds": first["seconds"]},
                }


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--sizes", type=int, nargs=len(WORK), default=[1_000_000, 200_000, 50_000, 1_000])
    parser.add_argument("--workers", type=int, default=2)
