"""Typed columns: their marginals beside other implementations, other splits of the budget, and support tickets.

    python -m benchmarks.tables marginals --table network:0:5000 adult tickets --ways selected tree none fresh
    python -m benchmarks.tables marginals --table adult --ways mst aim --python ~/mbi/bin/python
    python -m benchmarks.tables marginals --table adult --ways opendp-mst --python ~/opendp/bin/python
    python -m benchmarks.tables splits --table network:0:5000 adult
    python -m benchmarks.tables tickets --epsilon 6 1 [--guide] [--llm builtin --records 150]

**Marginals**: total variation between the private table and 1,000,000 sampled rows, over all columns, all pairs, and
all triples of at most 50,000 cells. All of the budget goes to the columns. Ours are the library's own sums, noise and
fit, without a ledger; those of others run in a process of their own (``tables_others.py``), with the same epsilon and
delta, or the largest rho of zCDP that implies them. ``fresh`` is as many other records of the same source.

**Tickets** (``tables_sets.tickets``): whole runs with a ledger of their own. As many synthetic tickets as there are
held-out ones; total variation of their columns from the private ones, and what a TF-IDF classifier of each column
learns from their texts, tested on held-out tickets; real ones are as many private tickets.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import understudy as us
import understudy.methods.additions.columns.fitting as fitting
import understudy.methods.additions.columns.plan as tables_plan
import understudy.models.catalog as catalog
from benchmarks import tables_sets
from benchmarks.guided import KeptEmbedder
from benchmarks.sets import CACHE
from benchmarks.tables_sets import LABEL, CellTable
from understudy.corpus.bounding import BoundedBatch
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.ledger import Ledger
from understudy.methods.additions.columns.distribution import Distribution
from understudy.methods.additions.columns.plan import column_charges
from understudy.methods.additions.columns.release import measure_marginals
from understudy.methods.additions.columns.variables import (
    COLUMNS,
    PAIRS,
    SCORES,
    SELECTED,
    TablesParameters,
    Variables,
)
from understudy.privacy.accountant import zcdp_within
from understudy.privacy.measurement import measure
from understudy.privacy.noise import SystemNoise
from understudy.schema.columns import Column
from understudy.schema.labels import LabelSet

DELTA = "1e-6"
SAMPLED, MOST_CELLS = 1_000_000, 50_000
OURS = ("selected", "tree", "all", "none")
OTHERS = ("mst", "aim", "opendp-mst", "opendp-aim")
SPLITS = ((0.3, 0.15, 0.55), (0.2, 0.1, 0.7), (0.4, 0.2, 0.4), (0.3, 0.3, 0.4))


class Records:
    """A table of cells, as the library's sums read one.

    Args:
        labelled: whether the first column is the label.
    """

    def __init__(self, rows: NDArray[np.int64], *, labelled: bool = False) -> None:
        self._rows, self._labelled = rows.astype(np.int32), labelled

    def batches(self) -> Iterator[BoundedBatch]:
        count, ones = len(self._rows), np.ones(len(self._rows), dtype=np.int64)
        labels = self._rows[:, 0] if self._labelled else np.zeros(count, dtype=np.int32)
        yield BoundedBatch([""] * count, labels, ones, np.arange(count), cells=self._rows[:, int(self._labelled) :])


def distribution(table: CellTable, epsilon: str, way: str) -> Distribution:
    """As typed columns are released with all of the budget. A label comes first."""
    columns, rows, label, labels = table.columns, table.private, table.label, LabelSet()
    if label is not None:
        columns = tuple(column for place, column in enumerate(columns) if place != label)
        labels = LabelSet(tuple(f"v{n}" for n in range(table.sizes[label])))
        rows = np.column_stack([rows[:, label], np.delete(rows, label, axis=1)])
    variables, parameters = Variables(None, labels, columns), TablesParameters(column_pairs=way)
    planned = {each.name: each for each in column_charges(us.Budget(epsilon, DELTA), variables, parameters)}
    charges: dict[str, Any] = {name: each.mechanism for name, each in planned.items()}
    records = Records(rows, labelled=label is not None)

    def noisy(name: str, query: Any) -> NDArray[np.float64]:
        return measure(charges[name], query, records, source=SystemNoise())

    made = measure_marginals(
        variables,
        parameters,
        lambda name: planned[name].query,
        noisy,
        lambda name: float(charges[name].noise_std),
        lambda _, make: make(),
    )
    return made.fitted()


def sampled(table: CellTable, epsilon: str, way: str, python: str, limit: float) -> tuple[NDArray[Any], float]:
    """Rows of one private release of the table, and the seconds that release and fit took."""
    start = time.perf_counter()
    if way in OURS:
        made = distribution(table, epsilon, way)
        seconds = time.perf_counter() - start
        allowed = [np.ones(size, dtype=np.bool_) for size in made.sizes]
        rows = made.sample(SAMPLED, allowed, np.random.default_rng())
        if table.label is not None:
            rows = np.insert(rows[:, 1:], table.label, rows[:, 0], axis=1)
        return rows, seconds
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "table.npz", Path(folder) / "rows.npz"
        budget = us.Budget(epsilon, DELTA)
        np.savez(
            source,
            rows=table.private,
            sizes=np.array(table.sizes),
            epsilon=float(budget.epsilon),
            delta=float(budget.delta),
            rho=zcdp_within(budget),
            count=SAMPLED,
            limit=limit,
            scripts=str(tables_sets.MBI / "mechanisms"),
        )
        script = Path(__file__).with_name("tables_others.py")
        ran = subprocess.run([python, "-P", script, way, source, target], stderr=subprocess.PIPE, text=True)
        if ran.returncode:
            raise SystemExit(f"{way} failed: {ran.stderr[-2000:]}")
        made = np.load(target)
        return made["rows"].astype(np.int64), float(made["seconds"])


def apart(rows: NDArray[np.int64], private: NDArray[np.int64], sizes: tuple[int, ...]) -> dict[str, float]:
    """Mean and largest total variation between two tables, over sets of one, two and three columns."""
    sizes = tuple(size + 1 for size in sizes)  # a cell of missing values, which some have
    found = {}
    for ways in (1, 2, 3):
        variations = []
        for chosen in combinations(range(len(sizes)), ways):
            shape = [sizes[each] for each in chosen]
            if ways == 3 and np.prod(shape) > MOST_CELLS:
                continue
            shares = [
                np.bincount(np.ravel_multi_index([part[:, each] for each in chosen], shape), minlength=np.prod(shape))
                / len(part)
                for part in (rows, private)
            ]
            variations.append(np.abs(shares[0] - shares[1]).sum() / 2)
        found |= {f"{ways}-way": float(np.mean(variations)), f"{ways}-way max": float(np.max(variations))}
    return found


def show(found: list[dict[str, float]], out: Path | None, **what: Any) -> None:
    """A line of means over runs, with the standard deviation of the pairs' mean."""
    mean = {key: round(float(np.mean([row[key] for row in found])), 4) for key in found[0]}
    line = {**what, "runs": len(found), **mean}
    if "2-way" in found[0]:
        line["2-way std"] = round(float(np.std([row["2-way"] for row in found])), 4)
    print(json.dumps(line), flush=True)
    if out:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def marginals(given: argparse.Namespace) -> None:
    if given.steps:
        fitting._STEPS = given.steps
    for name in given.table:
        table = tables_sets.load(name)
        for way in given.ways:
            if way == "fresh":
                show([apart(table.fresh, table.private, table.sizes)], given.out, table=name, way=way)
                continue
            for epsilon in given.epsilon:
                found = []
                for _ in range(given.runs):
                    rows, seconds = sampled(table, epsilon, way, given.python, given.limit)
                    found.append({**apart(rows, table.private, table.sizes), "seconds": seconds})
                limit = {"limit": given.limit} if way.endswith("aim") else {}
                steps = {"steps": given.steps} if given.steps else {}
                show(found, given.out, table=name, way=way, epsilon=epsilon, **limit, **steps)


def splits(given: argparse.Namespace) -> None:
    for name in given.table:
        table = tables_sets.load(name)
        for epsilon in given.epsilon:
            for split in given.split or SPLITS:
                with mock.patch.object(
                    tables_plan, "_SELECTED", dict(zip((COLUMNS, SCORES, PAIRS), split, strict=True))
                ):
                    found = [
                        apart(sampled(table, epsilon, SELECTED, "", 0)[0], table.private, table.sizes)
                        for _ in range(given.runs)
                    ]
                show(found, given.out, table=name, split=split, epsilon=epsilon)


def learned(
    columns: Sequence[Column], texts: list[str], rows: NDArray[np.int64], held: pa.Table, truth: NDArray[np.int64]
) -> dict[str, float]:
    """Accuracy on held-out tickets of a TF-IDF classifier of each column, which texts and columns of others teach."""
    found = {}
    for place, column in enumerate(columns):
        train, test = (
            Sample(tuple(some), tuple(column.title(cell) for cell in cells[:, place].tolist()))
            for some, cells in ((texts, rows), (held["text"].to_pylist(), truth))
        )
        values = measure_classifiers(None, test, {"synthetic": train}, kinds=("tf-idf",), seeds=1)
        found |= {
            f"{column.name}{' F1' if value.metric.name == 'macro_f1' else ''}": value.value or 0.0
            for value in values
            if value.metric.name in ("accuracy", "macro_f1")
        }
    return found


def declared(label: str) -> dict[str, Any]:
    """The label set and the columns; of a label that is made of columns, these alone."""
    if label == LABEL:
        return {"labels": tables_sets.services(), "columns": tables_sets.COLUMNS}
    return {"columns": {LABEL: list(tables_sets.services()), **tables_sets.COLUMNS}}


def tickets(given: argparse.Namespace) -> None:
    private, held = tables_sets.tickets()
    if given.guide:
        embedder = KeptEmbedder(CACHE / "tickets.npz")
        catalog.load_embedder = lambda *_args, **_options: embedder  # type: ignore[assignment]
    columns = tables_sets.ticket_columns()
    source, truth = tables_sets.cells(private, columns), tables_sets.cells(held, columns)
    sizes = tuple(column.size for column in columns)
    records = given.records or len(truth)
    if given.real:
        most = {
            column.name: float((truth[:, place] == np.bincount(source[:, place]).argmax()).mean())
            for place, column in enumerate(columns)
        }
        show([most], given.out, rows="the most frequent value")
        found = learned(columns, private["text"].to_pylist()[:records], source[:records], held, truth)
        few = np.random.default_rng(0).permutation(truth)[:records]
        show([{**apart(few, source, sizes), **found}], given.out, rows="real", records=records)
    for epsilon in given.epsilon:
        found = []
        for run in range(given.runs):
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                made = us.run(
                    us.read_corpus(private, text="text", label=given.label, **declared(given.label)),
                    us.DPKPS(**given.parameters),
                    us.Budget(epsilon, DELTA),
                    llm=given.llm,
                    records=records,
                    document_type="customer service dialogue",
                    ledger=Ledger.create(Path(folder) / "ledger.sqlite").location,
                    dataset="tickets",
                    seed=run,
                    **({"guide": True} if given.guide else {}),
                    **({"max_tokens": given.max_tokens} if given.max_tokens else {}),
                )
            seconds = time.perf_counter() - start
            if given.guide:
                embedder.save()
            table = made.to_arrow()
            table = table.filter(pc.not_equal(table["text"], ""))
            rows = tables_sets.cells(table, columns)
            scores = learned(columns, table["text"].to_pylist(), rows, held, truth)
            found.append({**apart(rows, source, sizes), **scores, "written": len(rows), "seconds": seconds})
        what = {"label": given.label, "guide": given.guide, "llm": given.llm, "records": records, **given.parameters}
        show(found, given.out, rows="synthetic", epsilon=epsilon, **what)
        if given.texts:
            pq.write_table(table, given.texts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parsers = parser.add_subparsers(required=True)
    for run in (marginals, splits):
        mine = parsers.add_parser(run.__name__)
        mine.set_defaults(run=run)
        mine.add_argument("--table", nargs="+", required=True, help="network:SEED:RECORDS, adult, tickets")
        mine.add_argument("--epsilon", nargs="+", default=["6", "1"])
        mine.add_argument("--runs", type=int, default=3)
        mine.add_argument("--out", type=Path)
        if run is marginals:
            mine.add_argument(
                "--ways", nargs="+", default=["selected", "tree", "none", "fresh"], choices=[*OURS, *OTHERS, "fresh"]
            )
            mine.add_argument("--python", default="python", help="with what tables_others.py needs")
            mine.add_argument("--steps", type=int, help="of our fit, if not the library's")
            mine.add_argument("--limit", type=float, default=80.0, help="MB that AIM's model may take")
        else:
            mine.add_argument("--split", nargs="+", type=lambda text: tuple(map(float, text.split(","))))
    mine = parsers.add_parser("tickets")
    mine.set_defaults(run=tickets)
    mine.add_argument("--epsilon", nargs="+", default=["6", "1"])
    mine.add_argument("--runs", type=int, default=1)
    mine.add_argument("--out", type=Path)
    mine.add_argument("--guide", action="store_true")
    mine.add_argument("--real", action="store_true", help="real rows first")
    mine.add_argument("--label", default=LABEL, help="or of columns, such as service*priority")
    mine.add_argument("--llm", default="none")
    mine.add_argument("--records", type=int, help="synthetic tickets, if not as many as are held out")
    mine.add_argument("--max-tokens", type=int)
    mine.add_argument("--parameters", type=json.loads, default={}, help="of dp-kps, as JSON")
    mine.add_argument("--texts", type=Path, help="where the last run's table is kept")
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
