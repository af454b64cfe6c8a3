"""The tables of DP-KPS (Nagesh et al. 2025) beside ours, on DBpedia-14 and without a language model: ``papers.md``.

    python -m benchmarks.papers rows method=dp-kde mode=iterative contrast=0,1 [--corpus simulated] --budgets 1,5 5,10
    python -m benchmarks.papers page

``rows`` runs the method's own plan, release and sampling, with the system's noise and without a ledger, and adds a row
to ``results/beside/dp-kde.json`` for each contrast, of one Release. dp-kps has no guide here.

Judges, all trained on sampled sequences: ``sequences``, logistic regression on the mean embedding of the terms and
which terms there are, and ``network``, three layers on the embedding of the sequence as a text, both tested on test
records turned into sequences of their first ten terms of V~ (table 5); ``texts`` and ``coral``, the network tested on
real test texts, without and with Deep CORAL on the other half of them, unlabelled (as in tables 2 and 4).

``--corpus simulated``: 560,000 records, the size of the paper's, each one of the 14,612 with every fifth word left out
by chance. It says what so many records do to the noise, and nothing of new texts: each is there 38 times.
"""

from __future__ import annotations

import json
import random
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import understudy as us
from benchmarks.measuring import say, versions
from benchmarks.results import Row, add_row
from benchmarks.sets import VOCABULARIES, TextSet, embed, embedder, load_set
from benchmarks.utility import sequence_features
from understudy.corpus.bounding import BoundedBatch
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.methods.base import ReleaseTools
from understudy.methods.dp_kde import generate as dp_kde
from understudy.methods.dp_kps import generate as dp_kps
from understudy.methods.dp_kps.plan import known_noise
from understudy.methods.facts import PublicFacts
from understudy.methods.registry import make_method
from understudy.privacy.measurement import measure
from understudy.privacy.noise import SystemNoise
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Seal, SealedValue
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet
from understudy.text.vocabulary.words import TermMatcher

RESULTS = "beside/dp-kde"
SIZES = {"dbpedia14": 14_612, "simulated": 560_000}
_DROPPED = 0.2
_TERMS = 10  # of a test record
_SEEDS = 2  # of a network
_AT_ONCE = 10_000
JUDGES = ("sequences", "network", "texts", "coral")
_KEY = ("corpus", "method", "voc", "kde", "delta", "contrast", "mode", "ensemble", "bandwidth", "features", "seed")


@dataclass(frozen=True)
class Records:
    """The private records, as they are or resampled with word dropout: the same in each pass."""

    texts: TextSet
    count: int

    @cached_property
    def _rows(self) -> list[tuple[str, int]]:
        rows = pq.read_table(self.texts.train).select(["text", "label"]).to_pylist()
        return [(row["text"], self.texts.labels.index(row["label"])) for row in rows]

    def batches(self) -> Iterator[BoundedBatch]:
        whole = self.count == len(self._rows)
        for start in range(0, self.count, _AT_ONCE):
            numbers = np.arange(start, min(start + _AT_ONCE, self.count))
            chosen = [self._rows[number % len(self._rows)] for number in numbers]
            said = [text if whole else _dropped(text, random.Random(start + n)) for n, (text, _) in enumerate(chosen)]
            labels = np.array([label for _, label in chosen], dtype=np.int32)
            yield BoundedBatch(said, labels, np.ones(len(said), dtype=np.int64), numbers)


def _dropped(text: str, chance: random.Random) -> str:
    return " ".join(word for word in text.split() if chance.random() >= _DROPPED)


@dataclass(frozen=True)
class Door:
    """What a release measures with, where no ledger pays."""

    plan: Plan

    def measure(self, name: str, query: Any, data: Any, *, rates: Any = None) -> SealedValue:
        mechanism: Any = self.plan.mechanism(name)
        value = measure(mechanism, query, data, source=SystemNoise())
        return SealedValue({"value": value}, Seal(name, mechanism.event, self.plan.unit, "system", "benchmark"))

    def keep(self, _name: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        return make()


def sampled(method: Any, arrays: Mapping[str, Any], plan: Plan, options: Namespace) -> list[NDArray[np.int64]]:
    """Per label the sequences of a Release, without padding."""
    counts = [options.per_label] * len(load_set("dbpedia14").labels)
    if method.name == "dp-kde":
        return dp_kde.sample_sequences(method, arrays, counts, seed=options.seed, sampling_seed=options.seed)
    noise = known_noise(method, plan.mechanism("density").noise_multiplier)
    seeds = {"seed": options.seed, "sampling_seed": options.seed}
    return dp_kps.sample_sequences(method, arrays["density"], counts, noise=noise, **seeds)


def judged(sequences: Sequence[NDArray[np.int64]], terms: Sequence[str], texts: TextSet, judges: Sequence[str]) -> Row:
    """Accuracy of each judge."""
    from sklearn.linear_model import LogisticRegression

    rows = [[term for term in row if term >= 0] for found in sequences for row in found.tolist()]
    labels = [str(texts.labels[label]) for label, found in enumerate(sequences) for _ in found]
    truth = [str(texts.labels[place]) for place in texts.test_labels.tolist()]
    matcher = TermMatcher(terms)
    own = [matcher.first_distinct(text, _TERMS) for text in texts.test_texts]

    def joined(some: Sequence[Sequence[int]]) -> list[str]:
        return [", ".join(terms[term] for term in row) for row in some]

    def sample(said: Sequence[str], names: Sequence[str] | None) -> Sample:
        return Sample(tuple(said), None if names is None else tuple(names), embed(list(said)))

    def accuracy(kind: str, test: Sample, recipient: Sample | None = None) -> float:
        found = measure_classifiers(None, test, {"made": made}, kinds=(kind,), seeds=_SEEDS, recipient=recipient)
        return round(next(each.value for each in found if each.metric.name == "accuracy") or 0.0, 3)

    scores: Row = {}
    if "sequences" in judges:
        embeddings = embedder().embed(list(terms))
        model = LogisticRegression(max_iter=200, C=1.0).fit(sequence_features(rows, embeddings), labels)
        scores["sequences"] = round(float(model.score(sequence_features(own, embeddings), truth)), 3)
    if len(scores) == len(judges):
        return scores
    made = sample(joined(rows), labels)
    if "network" in judges:
        scores["network"] = accuracy("network", sample(joined(own[1::2]), truth[1::2]))
    if {"texts", "coral"} & {*judges}:
        test = sample(texts.test_texts[1::2], truth[1::2])
        scores["texts"] = accuracy("network", test)
        scores["coral"] = accuracy("coral", test, sample(texts.test_texts[::2], None))
    return scores


def rows(options: Namespace, voc: float, kde: float) -> Iterator[Row]:
    """A row for each contrast, of one Release."""
    texts, chosen = load_set("dbpedia14"), dict(pair.split("=", 1) for pair in options.parameters)
    name, contrasts = chosen.pop("method", "dp-kde"), chosen.pop("contrast", "0").split(",")
    values = {key: json.loads(value) if value[:1] in "0123456789." else value for key, value in chosen.items()}
    of_terms = {"vocabulary": str(VOCABULARIES / "glove6b_400k.parquet"), "vocabulary_is_public": True}
    apart = {"vocabulary_epsilon": voc} if name == "dp-kde" else {}
    method: Any = make_method(name, {**of_terms, **apart, **values})
    started, labels = time.process_time(), LabelSet(tuple(map(str, texts.labels)))
    delta = "0" if values.get("noise") == "laplace" else "1e-6"
    records = SIZES[options.corpus]
    plan = method.plan(us.Budget(voc + kde, delta), PublicFacts(Unit(), labels, records))
    tools = ReleaseTools(labels=labels, seed=options.seed, embedder=embedder(), door=Door(plan))
    released = method.release(Records(texts, records), plan, tools)
    for contrast in map(float, contrasts):
        sequences = sampled(method.model_copy(update={"contrast": contrast}), released.arrays, plan, options)
        yield {
            "corpus": options.corpus,
            "records": records,
            "method": name,
            "voc": voc,
            "kde": kde,
            "delta": delta,
            "contrast": contrast,
            **{"mode": "independent", "noise": "gaussian", **values},
            "per_label": options.per_label,
            "seed": options.seed,
            **judged(sequences, list(released.terms), texts, options.judges),
            "core_s": round(time.process_time() - started),
            "commit": versions()["understudy"],
        }


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["rows", "page"])
    parser.add_argument("--corpus", choices=SIZES, default="dbpedia14")
    parser.add_argument("--budgets", nargs="+", default=["1,5"], help="epsilons of vocabulary and densities")
    parser.add_argument("--judges", nargs="+", choices=JUDGES, default=JUDGES)
    parser.add_argument("--per-label", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("parameters", nargs="*", help="method=NAME, contrast=0,1 and other parameters")
    options = parser.parse_intermixed_args()
    if options.task == "page":
        from benchmarks.papers_page import write

        write()
        return
    for voc, kde in (map(float, budget.split(",")) for budget in options.budgets):
        for row in rows(options, voc, kde):
            say(json.dumps(row))
            add_row(RESULTS, row, _KEY)


if __name__ == "__main__":
    main()
