"""What dp-kps's defaults lose against the best fixed size of the vocabulary, on tables of many sizes.

    python -m benchmarks.defaults rows.jsonl --sets trec ag_news --records 1000 3000 --epsilons 1 6 --seeds 1 2

Simulated releases: the exact sums of the library's own queries with Gaussian noise of the plan's scale, one for all
sizes of a vocabulary; phrases sampled by the library and taken for texts (``--llm none``); classifiers trained on them,
tested on real texts. ``default`` has the size of the vocabulary from the noise, without a guide;
``guide`` the same with one, whether or not it would be on by itself (``guided`` says that).
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import understudy as us
from benchmarks.guided import LABELS, KeptEmbedder, table
from benchmarks.measuring import say
from benchmarks.results import Row
from benchmarks.sets import CACHE
from understudy.corpus.bounding import BoundedBatch
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.methods.additions.guide.guide import Guide, choose
from understudy.methods.additions.guide.plan import GUIDE_SHARE, EmbeddingSumsSpec, plan_with_guide, why_no_guide
from understudy.methods.additions.guide.sums import GuideSums
from understudy.methods.dp_kps.generate import evolve_seeds, sample_sequences
from understudy.methods.dp_kps.plan import fewest_terms, known_noise, public_vocabulary
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.queries.counts import TermHistogram
from understudy.methods.shared.specs import TermHistogramSpec
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.plan import Plan
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet
from understudy.text.records import Seed
from understudy.text.vocabulary.shrinkage import KnownNoise, likely_terms, shrink, top_terms
from understudy.text.vocabulary.words import TermMatcher

_SIZES = (100, 300, 1_000, 3_000, 10_000)
_TEXTS, _TESTED = 320, 800
"""Synthetic texts over all labels (5 to 40 of each), and real ones that classifiers are tested on."""
METHOD = us.DPKPS()
_VOCABULARY = public_vocabulary(METHOD)


@dataclass(frozen=True)
class Private:
    """A table of one size."""

    texts: list[str]
    labels: NDArray[np.int32]
    names: tuple[str, ...]
    embedder: KeptEmbedder
    seed: int

    def sums(self, terms: Sequence[str], *, by_label: bool) -> NDArray[np.float64]:
        """Exact weighted counts of terms."""
        blocks = (len(self.names),) if by_label else ()
        spec = TermHistogramSpec("gaussian", METHOD.terms_per_record, len(terms), blocks)
        return TermHistogram(spec, TermMatcher(terms)).of_batch(self._batch) / COUNT_GRID

    @cached_property
    def guide_sums(self) -> NDArray[np.float64]:
        query = GuideSums(EmbeddingSumsSpec(len(self.names)), self.embedder, self.embedder.embed(["x"]).shape[1])
        return query.of_batch(self._batch) / query.sensitivity.grid

    @property
    def _batch(self) -> BoundedBatch:
        count = len(self.texts)
        return BoundedBatch(self.texts, self.labels, np.ones(count, dtype=np.int64), np.arange(count))


@dataclass(frozen=True)
class SimulatedChooser:
    """The guide of a simulated Release, as a chooser."""

    guide: Guide
    embedder: KeptEmbedder

    def choose(self, texts: Sequence[str], labels: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
        found = choose(self.guide, self.embedder.embed(list(texts)), np.asarray(labels, dtype=np.int64), counts)
        return [chosen.tolist() for chosen in found.chosen]

    def agreement(self, texts: Sequence[str], labels: Sequence[int]) -> float:
        margins = self.guide.margins(self.embedder.embed(list(texts)), np.asarray(labels, dtype=np.int64))
        return float(np.mean(margins > 0))


def texts_of(
    private: Private, counts: NDArray[np.float64], plan: Plan, *, size: int | None, per_label: int
) -> tuple[list[str], list[int]]:
    """Phrases of one Release, with the noisy counts of all terms given."""
    generator = np.random.default_rng([private.seed, 2])
    mechanism = plan.mechanism("vocabulary")
    if size is None:
        noise = KnownNoise("gaussian", mechanism.noise_std)
        chosen = likely_terms(shrink(counts, noise), fewest=fewest_terms(METHOD))
    else:
        chosen = top_terms(counts, size)
    terms = [_VOCABULARY.terms[place] for place in chosen.tolist()]
    multiplier, labels = plan.mechanism("density").noise_multiplier, len(private.names)
    density = private.sums(terms, by_label=True) + generator.normal(0, multiplier, (labels, len(terms)))
    guide = next((charge.mechanism for charge in plan.charges if charge.name == "guide"), None)
    times = 1 if guide is None else 4
    sequences = sample_sequences(
        METHOD,
        density,
        [per_label * times] * labels,
        seed=0,
        sampling_seed=private.seed,
        noise=known_noise(METHOD, multiplier),
    )
    seeds = [
        Seed(tuple(terms[term] for term in row if term >= 0), label)
        for label, found in enumerate(sequences)
        for row in found.tolist()
    ]
    if guide is not None:
        std = guide.noise_multiplier  # type: ignore[attr-defined]
        noisy = private.guide_sums + generator.normal(0, std, private.guide_sums.shape)
        chooser = SimulatedChooser(Guide(noisy, std), private.embedder)
        seeds = evolve_seeds(seeds, [per_label] * labels, chooser=chooser, generator=generator)
    return [", ".join(seed.phrases) for seed in seeds], [seed.label for seed in seeds]


def variants(private: Private, epsilon: float, delta: float, per_label: int) -> Iterator[tuple[str, Any]]:
    """Texts of each variant; one Release for all sizes of the vocabulary."""
    budget, labels = us.Budget(str(epsilon), str(delta)), len(private.names)
    facts = PublicFacts(Unit("record"), LabelSet(private.names), len(private.texts))
    exact = private.sums(_VOCABULARY.terms, by_label=False)
    plain = METHOD.plan(budget, facts)
    guided = plan_with_guide(
        lambda rest: METHOD.plan(rest, facts),
        budget,
        share=GUIDE_SHARE,
        labels=labels,
        expected_records=len(private.texts),
        unit=facts.unit,
    )
    for name, plan, size in (
        ("default", plain, None),
        ("guide", guided, None),
        *((str(size), plain, size) for size in _SIZES),
    ):
        noise = np.random.default_rng([private.seed, plan is guided]).normal(0, 1, len(exact))
        counts = exact + plan.mechanism("vocabulary").noise_std * noise
        yield name, texts_of(private, counts, plan, size=size, per_label=per_label)


def scores(train: Sample, test: Sample) -> Row:
    """Accuracy and macro F1 by both judges."""
    found: Row = {}
    for value in measure_classifiers(None, test, {"synthetic": train}, kinds=("embedding", "tf-idf"), seeds=1):
        if value.metric.name in ("accuracy", "macro_f1"):
            judge = value.settings["classifier"]
            found[str(judge) if value.metric.name == "accuracy" else f"{judge} F1"] = round(value.value or 0.0, 4)
    return found


def run(options: Namespace) -> Iterator[Row]:
    embedder = KeptEmbedder(CACHE / "texts.npz")
    for name in options.sets:
        rows, test_rows = table(name, "train"), table(name, "test", _TESTED)
        names = tuple(sorted(set(rows["label"].to_pylist())))
        number = {label: place for place, label in enumerate(names)}
        per_label = max(5, min(40, _TEXTS // len(names)))
        test_texts, test_labels = test_rows["text"].to_pylist(), test_rows["label"].to_pylist()
        test = Sample(tuple(test_texts), tuple(test_labels), embedder.embed(test_texts))
        for seed, records in ((seed, records) for seed in options.seeds for records in options.records):
            taken = rows.take(np.random.default_rng([seed, records]).permutation(rows.num_rows)[:records])
            labels = np.array([number[label] for label in taken["label"].to_pylist()], dtype=np.int32)
            private = Private(taken["text"].to_pylist(), labels, names, embedder, seed)
            order = np.concatenate([np.flatnonzero(labels == label)[:per_label] for label in range(len(names))])
            real_texts = [private.texts[place] for place in order.tolist()]
            real = Sample(tuple(real_texts), tuple(names[labels[place]] for place in order), embedder.embed(real_texts))
            of = {"set": name, "records": len(private.texts), "labels": len(names), "seed": seed}
            yield {**of, "epsilon": None, "variant": "real", **scores(real, test)}
            for epsilon in options.epsilons:
                reason = why_no_guide(
                    us.Budget(str(epsilon), str(options.delta)),
                    labels=len(names),
                    expected_records=len(labels),
                    unit=Unit("record"),
                )
                for variant, (texts, made) in variants(private, epsilon, options.delta, per_label):
                    train = Sample(tuple(texts), tuple(names[label] for label in made), embedder.embed(texts))
                    found = {**of, "epsilon": epsilon, "variant": variant, "guided": not reason, **scores(train, test)}
                    say(str(found))
                    yield found
            embedder.save()


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """A row per table, size and epsilon: accuracy by embeddings / TF-IDF, of seeds the mean, and the regret."""
    cells: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in rows:
        cells.setdefault((row["set"], row["records"], row["epsilon"]), {}).setdefault(row["variant"], []).append(row)
    judges, sizes = ("embedding", "tf-idf"), [str(size) for size in _SIZES]
    yield "| table, records | epsilon | as many real | defaults | guide | without | best fixed N | regret |"
    yield "|---|---|---|---|---|---|---|---|"
    regrets = []
    for (name, records, epsilon), found in sorted(cells.items(), key=lambda each: (each[0][2] is None, each[0])):
        if epsilon is None or any(size not in found for size in sizes):
            continue
        real, guided = cells[name, records, None]["real"], found["default"][0]["guided"]
        auto = _auto(found)
        best = [max(_mean(found[size], judge) for size in sizes) for judge in judges]
        regret = [most - _mean(auto, judge) for most, judge in zip(best, judges, strict=True)]
        regrets.append(regret)
        shown = [_pair([_mean(each, judge) for judge in judges]) for each in (real, auto, found["default"])]
        yield (
            f"| {name}, {records:,} | {epsilon:g} | {shown[0]} | {shown[1]} | {'on' if guided else 'off'} | {shown[2]} "
            f"| {_pair(best)} | {_pair(regret)} |"
        )
    worst = np.max(regrets, axis=0)
    yield ""
    yield f"Mean regret {_pair(np.mean(regrets, axis=0))}, worst {_pair(worst)}. Means over all of these rows:"
    yield ""
    yield f"| | defaults | without a guide | {' | '.join(f'N = {size}' for size in sizes)} |"
    yield "|---|---|---|" + "---|" * len(sizes)
    whole = [found for key, found in cells.items() if key[2] is not None and all(size in found for size in sizes)]
    for title, measure in (("accuracy", ""), ("macro F1", " F1")):
        means = [[_mean(_auto(found), judge + measure) for judge in judges] for found in whole]
        columns = [np.mean(means, axis=0)]
        for variant in ("default", *sizes):
            columns.append(
                np.mean([[_mean(found[variant], judge + measure) for judge in judges] for found in whole], axis=0)
            )
        yield f"| {title} | {' | '.join(map(_pair, columns))} |"


def _auto(found: dict[str, list[Row]]) -> list[Row]:
    return found["guide" if found["default"][0]["guided"] else "default"]


def _mean(rows: Sequence[Row], measure: str) -> float:
    return float(np.mean([row[measure] for row in rows]))


def _pair(values: Any) -> str:
    return " / ".join(f"{value:.3f}".replace("0.", ".", 1) for value in values)


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("file", type=Path, help="of JSON lines, to which rows are added and of which the table is made")
    parser.add_argument("--sets", nargs="+", choices=LABELS, default=["trec", "banking77", "ag_news", "dbpedia14"])
    parser.add_argument("--records", nargs="+", type=int, default=[1_000, 3_000, 10_000])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1, 3, 6])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2], help="none: the table of what is there alone")
    given = parser.parse_args()
    with given.file.open("a", encoding="utf-8") as file:
        for row in run(given) if given.seeds else ():
            print(json.dumps(row), file=file, flush=True)
    print("\n".join(markdown([json.loads(line) for line in given.file.read_text("utf-8").splitlines()])))


if __name__ == "__main__":
    main()
