"""The tables of DP-KPS (Nagesh et al. 2025) beside ours, on DBpedia-14: ``papers.md``.

    python -m benchmarks.papers rows method=dp-kde mode=iterative contrast=0,1 [--corpus simulated] --budgets 1,5 5,10
    python -m benchmarks.papers rows method=dp-kde --llm builtin --per-label 10 --budgets 1,5 [--examples 6]
    python -m benchmarks.papers rows method=aug-pe rounds=3 variations=2 --llm builtin --per-label 10 --budgets 1,5
    python -m benchmarks.papers rows method=real --per-label 10
    python -m benchmarks.papers page

``rows`` runs the method's own plan, release and sampling, with the system's noise and without a ledger, and adds a row
to ``results/beside/dp-kde.json`` for each contrast, of one Release. A row that is there already, with every judge asked
for, is skipped: repeat a command that was stopped. dp-kps has no guide here; aug-pe takes its keywords from V~
(``private_keywords``, N = 1000), and ``real`` trains on as many private records, without privacy.

Judges, all trained on sampled sequences: ``sequences``, logistic regression on the mean embedding of the terms and
which terms there are, and ``network``, three layers on the embedding of the sequence as a text, both tested on test
records turned into sequences of their first ten terms of V~ (table 5); ``texts`` and ``coral``, the network tested on
real test texts, without and with Deep CORAL on the other half of them, unlabelled (as in tables 2 and 4).

``--llm``: a language model writes a text around each sequence, and ``written`` and ``written coral`` are ``texts`` and
``coral`` trained on these. No prompt names a label. The built-in model is its writer, unless ``--examples N`` asks it
by a prompt with N texts of the client (of the half that CORAL reads, so no judge tests on them).

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
from benchmarks.papers_page import RESULTS, SIZES, write
from benchmarks.results import FOLDER, Row, add_row
from benchmarks.sets import CACHE, VOCABULARIES, TextSet, embed, embedder, load_set
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
from understudy.models.catalog import load_chat
from understudy.privacy.measurement import measure
from understudy.privacy.noise import SystemNoise
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Seal, SealedValue
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet
from understudy.text.prompts.template import (
    Example,
    PromptSettings,
    PromptTemplate,
    WritingParameters,
    load_template,
    with_phrases,
)
from understudy.text.records import Seed
from understudy.text.vocabulary.words import TermMatcher
from understudy.text.writing import Writer

_DROPPED = 0.2
_TERMS = 10  # of a test record
_SEEDS = 2  # of a network
_AT_ONCE = 10_000
JUDGES = ("sequences", "network", "texts", "coral")
WRITTEN = ("written", "written coral")
_MAX_TOKENS = 80  # of a text; the real ones have 46 words on average
_KEY = (
    *("corpus", "method", "voc", "kde", "delta", "contrast", "mode", "ensemble", "bandwidth", "features", "seed"),
    *("records", "per_label", "llm", "examples", "rounds", "variations"),
)


@dataclass(frozen=True)
class Records:
    """The private records, as they are or resampled with word dropout: the same in each pass."""

    texts: TextSet
    count: int
    unit = Unit()

    @cached_property
    def _rows(self) -> list[tuple[str, int]]:
        rows = pq.read_table(self.texts.train).select(["text", "label"]).to_pylist()
        return [(row["text"], self.texts.labels.index(row["label"])) for row in rows]

    def batches(self) -> Iterator[BoundedBatch]:
        whole = self.count <= len(self._rows)
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


@dataclass(frozen=True)
class Judge:
    """Accuracy by what a classifier is trained on; half of the test texts, unlabelled, are the client's for CORAL."""

    texts: TextSet

    @cached_property
    def truth(self) -> list[str]:
        return [str(self.texts.labels[place]) for place in self.texts.test_labels.tolist()]

    def network(self, kind: str, made: Sample, said: Sequence[str]) -> float:
        """Trained on ``made``, tested on the second half of the test records, which ``said`` has as texts."""
        test = _sample(said[1::2], self.truth[1::2])
        recipient = _sample(self.texts.test_texts[::2], None)
        kinds: Any = {"kinds": (kind,), "seeds": _SEEDS, "recipient": recipient if kind == "coral" else None}
        found = measure_classifiers(None, test, {"made": made}, **kinds)
        return round(next(each.value for each in found if each.metric.name == "accuracy") or 0.0, 3)

    def texts_and_coral(self, made: Sample, names: Sequence[str] = ("texts", "coral")) -> Row:
        kinds = zip(names, ("network", "coral"), strict=True)
        return {name: self.network(kind, made, self.texts.test_texts) for name, kind in kinds}

    def sequences(
        self, sequences: Sequence[NDArray[np.int64]], terms: Sequence[str], judges: Sequence[str]
    ) -> Iterator[tuple[str, float]]:
        from sklearn.linear_model import LogisticRegression

        rows = [[term for term in row if term >= 0] for found in sequences for row in found.tolist()]
        labels = [str(self.texts.labels[label]) for label, found in enumerate(sequences) for _ in found]
        matcher = TermMatcher(terms)
        own = [matcher.first_distinct(text, _TERMS) for text in self.texts.test_texts]
        if "sequences" in judges:
            embeddings = embedder().embed(list(terms))
            model = LogisticRegression(max_iter=200, C=1.0).fit(sequence_features(rows, embeddings), labels)
            yield "sequences", round(float(model.score(sequence_features(own, embeddings), self.truth)), 3)
        if {*judges} == {"sequences"}:
            return
        made = _sample(_joined(rows, terms), labels)
        if "network" in judges:
            yield "network", self.network("network", made, _joined(own, terms))
        if {"texts", "coral"} & {*judges}:
            yield from self.texts_and_coral(made).items()


def _joined(rows: Sequence[Sequence[int]], terms: Sequence[str]) -> list[str]:
    return [", ".join(terms[term] for term in row) for row in rows]


def _sample(said: Sequence[str], names: Sequence[str] | None) -> Sample:
    return Sample(tuple(said), None if names is None else tuple(names), embed(list(said)))


def writer_of(options: Namespace, texts: TextSet, terms: Sequence[str] = (), *, trained: bool = False) -> Writer:
    """What writes the texts: no prompt names a label, and its examples are the client's, if any are asked for."""
    template = load_template("encyclopedia article")
    if options.examples is not None:
        known = [Example(text=text) for text in texts.test_texts[::2][: options.examples]]
        template = _showing(template, with_phrases(known, terms, count=_TERMS))
    chat = load_chat(options.llm, seed=options.seed, **({"writer": True} if trained else {}))
    return Writer(chat, template, WritingParameters(max_tokens=_MAX_TOKENS), seed=options.seed, trained=trained)


def _showing(template: PromptTemplate, examples: Sequence[Example]) -> PromptTemplate:
    settings = PromptSettings(examples_per_prompt=len(examples))
    return template.model_copy(update={"examples": tuple(examples), "settings": settings})


def written(
    sequences: Sequence[NDArray[np.int64]], terms: Sequence[str], texts: TextSet, options: Namespace
) -> Iterator[tuple[str, str]]:
    """(text, label) of each sequence for which the language model gave a text."""
    trained = options.llm == "builtin" and options.examples is None
    writer = writer_of(options, texts, terms, trained=trained)
    seeds = [
        Seed(tuple(terms[term] for term in row if term >= 0), label)
        for label, found in enumerate(sequences)
        for row in found.tolist()
    ]
    for record in writer.write(seeds):
        if record.text:
            yield record.text, str(texts.labels[record.label])


def rows(options: Namespace, voc: float | None, kde: float | None) -> Iterator[Row]:
    """A row for each contrast, of one Release; none where the results have them all."""
    texts, chosen = load_set("dbpedia14"), dict(pair.split("=", 1) for pair in options.parameters)
    name, contrasts = chosen.pop("method", "dp-kde"), chosen.pop("contrast", "0").split(",")
    values = {key: json.loads(value) if value[:1] in "0123456789." else value for key, value in chosen.items()}
    if name == "real":
        voc = kde = None
    delta = None if name == "real" else "0" if values.get("noise") == "laplace" else "1e-6"
    records = options.records or SIZES[options.corpus]
    judge, judges = Judge(texts), options.judges or JUDGES
    by_llm = {} if options.llm == "none" else {"llm": options.llm, "examples": options.examples}
    if by_llm or name == "real":
        judges = WRITTEN if name in ("aug-pe", "real") else ("texts", "coral", *WRITTEN)
    of_phrases = {"mode": "independent", "noise": "gaussian"} if name in ("dp-kde", "dp-kps") else {}
    same = {
        **{"corpus": options.corpus, "records": records, "method": name, "voc": voc, "kde": kde, "delta": delta},
        **{**of_phrases, **values, **by_llm, "per_label": options.per_label, "seed": options.seed},
    }
    known = [{**same, "contrast": float(contrast)} for contrast in contrasts]
    if all(_is_there(row, judges) for row in known):
        return
    started = time.process_time()

    def row(first: Row, scores: Row) -> Row:
        took = {"core_s": round(time.process_time() - started), "commit": versions()["understudy"]}
        return {**first, **scores, **took}

    if name == "real":
        yield row(known[0], judge.texts_and_coral(_some_real(texts, options), WRITTEN))
        return
    apart = {"vocabulary_epsilon": voc} if name == "dp-kde" else {}
    if name == "aug-pe":
        apart = {"private_keywords": True, "top_terms": 1000, "population": options.per_label}
    of_terms = {"vocabulary": str(VOCABULARIES / "glove6b_400k.parquet"), "vocabulary_is_public": True}
    method: Any = make_method(name, {**of_terms, **apart, **values})
    labels = LabelSet(tuple(map(str, texts.labels)))
    plan = method.plan(us.Budget(voc + kde, delta), PublicFacts(Unit(), labels, records))
    tools = ReleaseTools(
        labels=labels,
        seed=options.seed,
        embedder=embedder(),
        door=Door(plan),
        writer=writer_of(options, texts) if name == "aug-pe" else None,
        scratch=CACHE / f"embedded-{options.corpus}-{records}",
        say=say,
    )
    released = method.release(Records(texts, records), plan, tools)
    if name == "aug-pe":
        kept = list(dict.fromkeys(released.arrays["survivors"].tolist()))
        said = [released.strings["texts"][each] for each in kept]
        made = _sample(said, [str(texts.labels[each]) for each in released.arrays["label"][kept].tolist()])
        yield row(known[0], {"texts_written": len(said), **judge.texts_and_coral(made, WRITTEN)})
        return
    for first in known:
        sequences = sampled(method.model_copy(update={"contrast": first["contrast"]}), released.arrays, plan, options)
        scores = dict(judge.sequences(sequences, released.terms, judges))
        if by_llm:
            said, names = zip(*written(sequences, released.terms, texts, options), strict=True)
            scores |= {"texts_written": len(said), **judge.texts_and_coral(_sample(said, names), WRITTEN)}
        yield row(first, scores)


def _is_there(row: Row, judges: Sequence[str]) -> bool:
    path = FOLDER / f"{RESULTS}.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else []
    same = [each for each in found if all(each.get(name) == row.get(name) for name in _KEY)]
    return any(all(judge in each for judge in judges) for each in same)


def _some_real(texts: TextSet, options: Namespace) -> Sample:
    """``per_label`` private records of each label: what as many real texts teach."""
    table = pq.read_table(texts.train).select(["text", "label"]).to_pylist()
    random.Random(options.seed).shuffle(table)
    of_label = [[row for row in table if row["label"] == label][: options.per_label] for label in texts.labels]
    return _sample([row["text"] for each in of_label for row in each], [str(r["label"]) for e in of_label for r in e])


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["rows", "page"])
    parser.add_argument("--corpus", choices=SIZES, default="dbpedia14")
    parser.add_argument("--budgets", nargs="+", default=["1,5"], help="epsilons of vocabulary and densities")
    parser.add_argument("--judges", nargs="+", choices=JUDGES, help="of sequences; default: all")
    parser.add_argument("--llm", default="none", help="a chat model that writes a text around each sequence")
    parser.add_argument("--examples", type=int, help="texts of the client that a prompt shows; default: no prompt")
    parser.add_argument("--records", type=int, help="private records, the first ones; default: all")
    parser.add_argument("--per-label", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("parameters", nargs="*", help="method=NAME, contrast=0,1 and other parameters")
    options = parser.parse_intermixed_args()
    if options.task == "page":
        write()
        return
    for voc, kde in (map(float, budget.split(",")) for budget in options.budgets):
        for row in rows(options, voc, kde):
            say(json.dumps(row))
            add_row(RESULTS, row, _KEY)


if __name__ == "__main__":
    main()
