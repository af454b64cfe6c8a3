"""All text methods on one table with typed columns: do the columns show in the texts?

    python -m benchmarks.tables_methods make --out DIR [--rows ROW ...]       # DIR/ROW, as ``understudy run`` makes it
    python -m benchmarks.tables_methods measure --out DIR [--rows ROW ...]    # a line of JSON for each that is there

The table: tickets (``tables_sets.tickets``) of single services; the label is the area that a service belongs to. Of a
row of the comparison: total variation of the columns from the private ones (``apart``), accuracy on held-out tickets of
a TF-IDF classifier of each column (``learned``), and how well texts fit their rows (``fitting``).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import understudy as us
import understudy.models.catalog as catalog
from benchmarks import tables_sets
from benchmarks.corpora import prompt_file
from benchmarks.guided import KeptEmbedder
from benchmarks.sets import CACHE
from benchmarks.tables import apart, learned, show
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import kind_named
from understudy.evaluate.metrics.utility.fitting import Predict
from understudy.ledger import Ledger
from understudy.schema.columns import Column, declared_columns

AREA, SERVICE = "area", tables_sets.LABEL
SERVICES = {
    "travel": ("Buses", "Flights", "Hotels", "RentalCars", "RideSharing"),
    "leisure": ("Events", "Media", "Movies", "Music", "Restaurants"),
    "errands": ("Banks", "Calendar", "Homes", "Services"),
}
COLUMNS: dict[str, Any] = {
    SERVICE: sorted(service for area in SERVICES.values() for service in area),
    **{name: tables_sets.COLUMNS[name] for name in ("priority", "resolved", "amount")},
}
BUDGET = us.Budget(6, "1e-6")
RECORDS = 120
KIND = "customer service dialogue"
TOKENS = 100
WRITING: dict[str, Any] = {"llm_temperature": 0.8, "max_tokens": TOKENS}
BATCHES, BATCH = 8, 31
EMBEDDED = 1000
EVOLUTION: dict[str, Any] = {
    "rounds": 1,
    "population": 20,
    "variations": 3,
    "blank_probability": 0,
    "min_words": 30,
    "max_words": 70,
}


@cache
def splits() -> tuple[pa.Table, pa.Table]:
    """The private tickets and the held-out ones: ``text``, the area and :data:`COLUMNS`."""
    areas = {service: area for area, services in SERVICES.items() for service in services}

    def kept(table: pa.Table) -> pa.Table:
        table = table.filter(pc.is_in(table[SERVICE], pa.array(list(areas))))
        area = pa.array([areas[service] for service in table[SERVICE].to_pylist()])
        return table.append_column(AREA, area).select(["text", AREA, *COLUMNS])

    private, held = tables_sets.tickets()
    return kept(private), kept(held)


def columns() -> tuple[Column, ...]:
    """The label as a column, and :data:`COLUMNS`."""
    return declared_columns({AREA: list(SERVICES), **COLUMNS})


# -- the rows ---------------------------------------------------------------------------------------------------------


def real(count: int | None) -> Callable[[Path], None]:
    """Private tickets as they are."""

    def make(folder: Path) -> None:
        private, _ = splits()
        (folder / "release").mkdir(parents=True)
        pq.write_table(
            private.take(np.random.default_rng(0).permutation(private.num_rows)[:count]),
            folder / "release" / "synthetic.parquet",
        )

    return make


def zero_shot(folder: Path) -> None:
    """Texts of the areas, without a row: nothing private is read."""
    us.baseline(
        labels=list(SERVICES),
        records_per_label=RECORDS // len(SERVICES),
        document_type=KIND,
        output=str(folder),
        **WRITING,
    )


def run(method: us.Method, *, label: str = AREA, each: int | None = None, **options: Any) -> Callable[[Path], None]:
    """A whole run of a method.

    Args:
        method: the method.
        label: of the table; of columns, such as ``service*priority``, in which all columns are declared.
        each: of so many private tickets of each area alone.
        options: of the run.
    """

    def make(folder: Path) -> None:
        table, _ = splits()
        if each is not None:
            areas = np.array(table[AREA].to_pylist())
            places = np.random.default_rng(0).permutation(table.num_rows)
            table = table.take(np.concatenate([places[areas[places] == area][:each] for area in SERVICES]))
        declared = {"labels": list(SERVICES), "columns": COLUMNS}
        if label != AREA:
            declared = {"columns": {AREA: list(SERVICES), **COLUMNS}}
        folder.mkdir(parents=True)
        us.run(
            us.read_corpus(table, text="text", label=label, **declared),
            method,
            BUDGET,
            document_type=KIND,
            ledger=Ledger.create(folder / "ledger.sqlite").location,
            dataset="tickets",
            output=str(folder),
            **options,
        )

    return make


def phrases(source: str = "dp-kps-none", columns: str = "all", **options: Any) -> Callable[[Path], None]:
    """Texts of the language model from four phrases each, of the Release of another row; ``columns`` in prompts."""

    def make(folder: Path) -> None:
        settings = {"label_in_prompt": True, "prompt_columns": columns}
        us.generate(
            folder.parent / source / "release" / "dp-kps.release",
            llm="builtin",
            records=RECORDS,
            document_type=KIND,
            prompt=prompt_file(folder / "prompt.yaml", **settings),
            length=4,
            output=str(folder),
            **WRITING,
            **options,
        )

    return make


def evolved(method: us.Method) -> Callable[[Path], None]:
    """A run whose texts are all variations, asked for with their rows; private texts are embedded once for all runs."""

    def make(folder: Path) -> None:
        embedder = KeptEmbedder(CACHE / "tickets-of-areas.npz")
        catalog.load_embedder = lambda *_args, **_options: embedder  # type: ignore[assignment]
        run(method, each=EMBEDDED, llm="builtin", records=RECORDS, **WRITING)(folder)
        embedder.save()

    return make


DECLARED = 7500
ROWS: dict[str, Callable[[Path], None]] = {
    "real-all": real(None),
    "real": real(RECORDS),
    "zero-shot": zero_shot,
    "dp-kps-none": run(us.DPKPS(), llm="none", records=RECORDS),
    "dp-kps-none-crossed": run(us.DPKPS(), label="service*priority", llm="none", records=RECORDS),
    "dp-kps-rows": phrases(),
    "dp-kps-few": phrases(columns=f"{SERVICE},priority"),
    "dp-kps-no-rows": phrases(columns="none"),
    "dp-kps-best-of-4": phrases(samples=4),
    "dp-kps-few-best-of-4": phrases(columns=f"{SERVICE},priority", samples=4),
    "dp-kps-no-rows-best-of-4": phrases(columns="none", samples=4),
    "dp-kps-crossed": phrases("dp-kps-none-crossed"),
    "private-prediction": run(
        us.PrivatePrediction(
            batches=BATCHES,
            tokens_per_batch=TOKENS,
            texts_per_batch=2,
            private_text_tokens=128,
            unfinished="keep",
        ),
        each=BATCHES * BATCH,
        max_tokens=TOKENS,
    ),
    "dp-finetune": run(
        us.DPFinetune(
            declared_records=DECLARED,
            steps=5,
            sampling_rate=112 / DECLARED,
            private_text_tokens=112,
            learning_rate=0.05,
        ),
        records=RECORDS,
        **WRITING,
    ),
    "few-shot": run(
        us.FewShot(
            sampling_rate=6 * 2 * len(SERVICES) / DECLARED,
            subsets=6,
            examples_per_subset=2,
            tokens=40,
            exemplar_tokens=40,
            exemplars=1,
            candidates=50,
            private_text_tokens=60,
        ),
        llm="builtin",
        records=RECORDS,
        **WRITING,
    ),
    "aug-pe": evolved(us.AugPE(harvest="variations", **EVOLUTION)),
    "guided-evolution": evolved(us.GuidedEvolution(harvest="variations", **EVOLUTION)),
    "seq-pate": run(
        us.SeqPATE(declared_records=DECLARED, teachers=120, queries=120, private_text_tokens=96),
        records=RECORDS,
        **WRITING,
    ),
}
"""By name, as said in ``benchmarks/README.md``; those of another row's Release after it."""


# -- the measures -----------------------------------------------------------------------------------------------------


def fitting(texts: Sequence[str], rows: NDArray[np.int64], there: Sequence[Column]) -> dict[str, float]:
    """Cohen's kappa of what the texts tell of each column and what their rows say: 0 by chance, 1 if all fit.

    Priority, whether resolved, and the amount are read from a text as they were from the private ones. The area and the
    service are what a TF-IDF classifier says that learned them from all private texts.
    """
    found = {}
    for place, column in enumerate(there):
        if column.name in (AREA, SERVICE):
            known, predict = classifier(column.name)
            says = [column.cell(known[number]) for number in predict(Sample(tuple(texts)))]
        else:
            says = [column.cell(tables_sets.told(text)[column.name]) for text in texts]
        found[f"{column.name} fits"] = kappa(np.array(says), rows[:, place])
    return found


@cache
def classifier(name: str) -> tuple[tuple[str, ...], Predict]:
    """Of a column, by TF-IDF, from all private texts."""
    private, _ = splits()
    texts, values = (tuple(private[each].to_pylist()) for each in ("text", name))
    return kind_named("tf-idf").train(Sample(texts, values), seed=0)


def kappa(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Cohen's kappa of two columns of cells, ``Int64[n]``."""
    equal = float(np.mean(a == b))
    chance = sum(float(np.mean(a == cell) * np.mean(b == cell)) for cell in set(a.tolist()))
    return (equal - chance) / (1 - chance) if chance < 1 else 0.0


def measure(folder: Path) -> dict[str, float]:
    """The figures of a row; of zero-shot texts, which have no rows, those of the area alone."""
    table = pq.read_table(folder / "release" / "synthetic.parquet")
    table = table.filter(pc.not_equal(table["text"], ""))
    if AREA not in table.column_names:
        table = table.append_column(AREA, table["label"])
    there = [column for column in columns() if column.name in table.column_names]
    private, held = splits()
    texts, rows = table["text"].to_pylist(), tables_sets.cells(table, there)
    source, truth = tables_sets.cells(private, there), tables_sets.cells(held, there)
    copied = [any(f"{column.name}: " in text.lower() for column in there) for text in texts]
    words = [len(text.split()) for text in texts]
    found = {"texts": float(len(texts)), "words": float(np.mean(words)), "row copied": float(np.mean(copied))}
    if len(there) > 1:
        found |= apart(rows, source, tuple(column.size for column in there))
    return found | fitting(texts, rows, there) | learned(there, texts, rows, held, truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["make", "measure"])
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    for row in given.rows:
        folder = given.out / row
        there = (folder / "release" / "synthetic.parquet").exists()
        if given.task == "make" and not there:
            start = time.perf_counter()
            ROWS[row](folder)
            print(f"{row} made in {time.perf_counter() - start:.0f} s", flush=True)
        elif given.task == "measure" and there:
            show([measure(folder)], given.out / "figures.jsonl", row=row)


if __name__ == "__main__":
    main()
