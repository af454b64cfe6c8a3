"""Noisy counts of pairs of terms, and sequences as walks over them, against exact counts alone and a guide.

    python -m benchmarks.pairs tables [--sets ag_news ...] [--epsilons 6 1] [--seeds 1 2] [--variants counts ...]
    python -m benchmarks.pairs facts [--epsilons 6 1] [--seeds 1 2] [--variants counts ...]

Releases are simulated: exact sums of the library's own queries, and Gaussian noise of the plan's scale at delta 1e-6.
Every variant spends the same epsilon in all. A pair query gives each record a weight of L2 norm 1, shared out over its
pairs among the ``TERMS`` terms that are sampled most, jointly over labels.

``tables``: accuracy on real test texts of classifiers of embeddings and TF-IDF, trained on 320 to 380 sequences;
``coherence``: the mean cosine of two terms of a sequence; ``beyond``: the same less that of two terms of different
sequences of a label; ``real``: both for the terms of test records. The guide's sums are those of a sample of each label
(``EMBEDDED``), scaled to its size.

``facts``: a corpus of our own, made by templates: 79,304 short texts on 100 invented creatures with five attributes.
``true``: the share of attribute values that are true, in sequences that name exactly one creature. All texts have the
same label, and the creatures' names are part of the public vocabulary; ``labels`` 100: the creature is the label.

Each row goes to ``results/beside/pairs.json``. Decision 085 says what came of it.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import understudy as us
from benchmarks.defaults import METHOD, SimulatedChooser
from benchmarks.guided import LEAST, KeptEmbedder, table
from benchmarks.measuring import say
from benchmarks.results import Row, add_row
from benchmarks.sets import CACHE
from understudy.corpus.bounding import BoundedBatch
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import accuracy, kind_named, numbered
from understudy.methods.additions.guide.guide import Guide
from understudy.methods.additions.guide.plan import GUIDE_SHARE, EmbeddingSumsSpec
from understudy.methods.additions.guide.sums import GuideSums
from understudy.methods.dp_kps.generate import (
    contrast_weights,
    cut_to_lengths,
    evolve_seeds,
    sample_sequences,
    sampling_scores,
)
from understudy.methods.dp_kps.plan import fewest_terms, known_noise, public_vocabulary
from understudy.methods.shared.queries.counts import TermHistogram, TermRows
from understudy.methods.shared.specs import TermHistogramSpec
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.text.records import Seed
from understudy.text.vocabulary import shrinkage
from understudy.text.vocabulary.shrinkage import KnownNoise, likely_terms, shrink
from understudy.text.vocabulary.words import TermMatcher

TERMS = 700
"""Terms whose pairs are counted: those with the most of the sampling weight, over all labels."""
PER_LABEL = {"ag_news": 80, "dbpedia14": 24, "banking77": 5, "medquad": 32}
EMBEDDED = {"ag_news": 700, "dbpedia14": 250, "banking77": 130, "medquad": 100}
_TESTED, _WORDS = {"medquad": 600}, {"medquad": 80}
"""Test texts, where not 1500; and the words that the guide reads of a long text."""
_CANDIDATES = 4
_MOST_LIFT, _LEAST_LIFT = 1000.0, 0.05
_VOCABULARY = public_vocabulary(METHOD)


@dataclass(frozen=True)
class Variant:
    """What is released beside the counts, as shares of mu^2, and how pairs are used.

    Args:
        power: that the lifts of pairs are raised to.
        pairs_per_record: those whose terms are sampled most (K).
        excess: only pairs that are more frequent than by chance count; else rarer ones too.
        free: pairs are counted without noise and cost nothing: the most that pairs could do.
    """

    guide: float = 0.0
    pairs: float = 0.0
    power: float = 1.0
    pairs_per_record: int = 45
    excess: bool = False
    free: bool = False


VARIANTS = {
    "counts": Variant(),
    "guide": Variant(guide=GUIDE_SHARE),
    "pairs 10 %": Variant(pairs=0.1),
    "pairs 20 %": Variant(pairs=0.2),
    "pairs 30 %": Variant(pairs=0.3),
    "pairs 20 %, power 2": Variant(pairs=0.2, power=2),
    "pairs 20 %, K = 10": Variant(pairs=0.2, pairs_per_record=10),
    "pairs 10 %, excess": Variant(pairs=0.1, excess=True),
    "pairs 20 %, excess": Variant(pairs=0.2, excess=True),
    "guide, pairs 10 %": Variant(guide=GUIDE_SHARE, pairs=0.1),
    "pairs without noise": Variant(pairs=1.0, free=True),
    "pairs without noise, excess": Variant(pairs=1.0, free=True, excess=True),
}


@dataclass(frozen=True)
class Private:
    """A private table, and the exact sums that do not depend on noise."""

    texts: list[str]
    labels: NDArray[np.int32]
    names: tuple[str, ...]
    vocabulary: Sequence[str]
    guide_sums: NDArray[np.float64] | None = None

    def rows(self, terms: Sequence[str]) -> NDArray[np.int64]:
        return TermRows(TermMatcher(terms), METHOD.terms_per_record).of(batch_of(self.texts, self.labels))

    def sums(self, terms: Sequence[str], labels: int | None) -> NDArray[np.float64]:
        blocks = () if labels is None else (labels,)
        spec = TermHistogramSpec("gaussian", METHOD.terms_per_record, len(terms), blocks)
        query = TermHistogram(spec, TermMatcher(terms))
        return query.of_batch(batch_of(self.texts, self.labels)) / COUNT_GRID


def batch_of(texts: list[str], labels: NDArray[np.int32]) -> BoundedBatch:
    return BoundedBatch(texts, labels, np.ones(len(texts), dtype=np.int64), np.arange(len(texts)))


class Released:
    """The counts of dp-kps, with what is left of the budget."""

    def __init__(self, private: Private, exact: NDArray[np.float64], variant: Variant, epsilon: float, seed: int):
        left = 1 - variant.guide - (0 if variant.free else variant.pairs)
        self.private, self.seed = private, seed
        self.whole = gaussian_split(us.Budget(str(epsilon), "1e-6"), [1.0])[0]
        std, multiplier = self.whole / np.sqrt(0.2 * left), self.whole / np.sqrt(0.8 * left)
        counts = exact + std * np.random.default_rng([seed, 1]).normal(0, 1, len(exact))
        chosen = likely_terms(shrink(counts, KnownNoise("gaussian", std)), fewest=fewest_terms(METHOD))
        self.terms = [private.vocabulary[place] for place in chosen.tolist()]
        self.density = private.sums(self.terms, len(private.names))
        self.density += np.random.default_rng([seed, 2]).normal(0, multiplier, self.density.shape)
        self.noise = known_noise(METHOD, multiplier)
        found = sampling_scores(self.density, self.noise)
        self.weights = contrast_weights(found.mean, contrast=METHOD.contrast)
        self.lengths = np.clip((found.probability > 0.5).sum(axis=1), 1, METHOD.length)
        self.expected = shrink(self.density, self.noise).mean

    def sampled(self, count: int) -> list[NDArray[np.int64]]:
        counts = [count] * len(self.weights)
        return sample_sequences(METHOD, self.density, counts, seed=0, sampling_seed=self.seed, noise=self.noise)


class Pairs:
    """Log-lifts of pairs of the terms that are sampled most: how much likelier one is in a record with the other."""

    def __init__(self, released: Released, variant: Variant):
        self._released, self._excess, labels = released, variant.excess, released.private.labels
        shares = released.weights / released.weights.sum(axis=1, keepdims=True)
        self._terms = np.argsort(-shares.sum(axis=0), kind="stable")[:TERMS]
        size, places = len(self._terms), np.full(len(released.terms) + 1, -1)
        places[self._terms] = np.arange(size)
        rows = np.sort(places[released.private.rows(released.terms)], axis=1)
        one, other = (rows[:, index] for index in np.triu_indices(rows.shape[1], 1))
        used = (one >= 0) & (other >= 0)
        weights = shares[:, self._terms][labels[:, None], np.where(used, one, 0)]
        weights = weights * shares[:, self._terms][labels[:, None], np.where(used, other, 0)]
        ranks = np.argsort(np.argsort(-np.where(used, weights, -1), axis=1, kind="stable"), axis=1)
        used &= ranks < variant.pairs_per_record
        each = np.broadcast_to(1 / np.sqrt(np.maximum(used.sum(axis=1), 1))[:, None], used.shape)
        sums = np.bincount(one[used] * size + other[used], each[used], size * size).reshape(size, size)
        upper = np.triu_indices(size, 1)
        self.std = 0.0 if variant.free else released.whole / np.sqrt(variant.pairs)
        noisy = sums[upper] + self.std * np.random.default_rng([released.seed, 3]).normal(0, 1, len(upper[0]))
        self._log_lifts = np.zeros((size, size), dtype=np.float32)
        self._log_lifts[upper] = self._found(noisy, upper, size, unit=float(np.median(each[:, 0])))
        self._log_lifts += self._log_lifts.T

    def _found(
        self, noisy: NDArray[np.float64], upper: tuple[NDArray[np.intp], ...], size: int, *, unit: float
    ) -> NDArray[np.float64]:
        """Log-lifts: by the excess over chance where it is probably real, and less than 1 where chance stands above
        the noise. Chance is independence within labels, fitted to the noisy number of pairs of each term."""
        scores = self._released.expected[:, self._terms]
        chance = (scores / np.maximum(scores.sum(axis=1, keepdims=True), 1e-9)).T @ scores
        np.fill_diagonal(chance, 0)
        whole, steady = np.zeros((size, size)), max(self.std * np.sqrt(size), 1.0)
        whole[upper] = noisy
        totals = np.maximum((whole + whole.T).sum(axis=1), 0)
        chance *= max(noisy.sum(), steady) / max(chance[upper].sum(), 1e-9)
        for _ in range(8):
            ratio = np.sqrt((totals + steady) / (chance.sum(axis=1) + steady))
            chance *= ratio[:, None] * ratio
        e = chance[upper]
        if self.std:
            order, real, mean = np.argsort(-e, kind="stable"), np.empty_like(e), np.empty_like(e)
            found = shrink((noisy - e)[order], KnownNoise("gaussian", self.std))
            real[order], mean[order] = found.probability, found.probability * found.mean
        else:
            real, mean = (noisy > 2.5 * unit).astype(float), np.maximum(noisy - e, 0)
        more = mean / (e + max(0.02 * max(self.std, unit), 1e-3))
        known = e**2 / (e**2 + self.std**2 + e * unit)
        less = 0 if self._excess else np.minimum(known * (noisy - e) / np.maximum(e, 1e-9), 0)
        return np.log(np.clip(1 + np.where(real > 0.5, more, less), _LEAST_LIFT, _MOST_LIFT))

    def walks(self, count: int, power: float) -> list[NDArray[np.int64]]:
        """Per label ``Int64[count, length]``: each term in proportion to its weight and its lifts by those before."""
        released, walks = self._released, []
        generator = np.random.default_rng([released.seed, 9])
        places = np.full(len(released.terms), -1)
        places[self._terms] = np.arange(len(self._terms))
        for weights, length in zip(released.weights, released.lengths.tolist(), strict=True):
            logs = np.log(np.maximum(weights, 1e-12 * weights.max())).astype(np.float32)
            keys = np.repeat(logs[None], count, axis=0)
            rows = np.empty((count, length), dtype=np.int64)
            for step in range(length):
                exponential = generator.standard_exponential(keys.shape, dtype=np.float32)
                rows[:, step] = (keys - np.log(np.maximum(exponential, np.float32(1e-9)))).argmax(axis=1)
                keys[np.arange(count), rows[:, step]] = -np.inf
                known = np.flatnonzero(places[rows[:, step]] >= 0)
                lifts = self._log_lifts[places[rows[known, step]]]
                keys[np.ix_(known, self._terms)] += np.float32(power) * lifts
            walks.append(cut_to_lengths(rows, shortest=METHOD.shortest, generator=generator))
        return walks


def seeds_of(
    private: Private,
    exact: NDArray[np.float64],
    variant: Variant,
    *,
    epsilon: float,
    seed: int,
    count: int,
    embedder: KeptEmbedder,
) -> tuple[list[Seed], Released]:
    """``count`` sequences per label of one simulated Release."""
    released = Released(private, exact, variant, epsilon, seed)
    candidates = count * (_CANDIDATES if variant.guide else 1)
    walks = Pairs(released, variant).walks(candidates, variant.power) if variant.pairs else released.sampled(candidates)
    seeds = [
        Seed(tuple(released.terms[term] for term in row if term >= 0), label)
        for label, found in enumerate(walks)
        for row in found.tolist()
    ]
    if variant.guide and private.guide_sums is not None:
        std = released.whole / np.sqrt(variant.guide)
        noisy = private.guide_sums + np.random.default_rng([seed, 5]).normal(0, std, private.guide_sums.shape)
        chooser, generator = SimulatedChooser(Guide(noisy, std), embedder), np.random.default_rng([seed, 4])
        seeds = evolve_seeds(seeds, [count] * len(private.names), chooser=chooser, generator=generator)
    return seeds, released


def coherence(seeds: Sequence[Seed], embedder: KeptEmbedder) -> tuple[float, float]:
    """The mean cosine within sequences, and what it is more than between sequences of the same label."""
    terms = sorted({term for seed in seeds for term in seed.phrases})
    vectors = dict(zip(terms, embedder.embed(terms), strict=True))
    within, between = list[float](), list[float]()
    for label in sorted({seed.label for seed in seeds}):
        mine = [seed.phrases for seed in seeds if seed.label == label and len(seed.phrases) > 1]
        if not mine:
            continue
        sums = np.stack([sum(vectors[term] for term in phrases) for phrases in mine])
        lengths, own = np.array([len(phrases) for phrases in mine]), (sums**2).sum(axis=1)
        within += ((own - lengths) / (lengths * (lengths - 1))).tolist()
        if len(mine) > 1:
            between += ((sums @ sums.sum(axis=0) - own) / (lengths * (lengths.sum() - lengths))).tolist()
    return float(np.mean(within)), float(np.mean(within) - np.mean(between))


def load(name: str, embedder: KeptEmbedder) -> tuple[Private, Sample]:
    """The private table, with its guide's sums, and the test texts."""
    rows, tests = table(name, "train"), table(name, "test")
    counts = {row["values"]: row["counts"] for row in pc.value_counts(rows["label"]).to_pylist()}
    names = tuple(sorted(label for label, count in counts.items() if count >= LEAST))
    rows, tests = (each.filter(pc.is_in(each["label"], pa.array(names))) for each in (rows, tests))
    tests = tests.slice(0, _TESTED.get(name, 1500))
    texts, test_texts = rows["text"].to_pylist(), tests["text"].to_pylist()
    labels = numbered(tuple(rows["label"].to_pylist()), names).astype(np.int32)
    picked = np.concatenate([np.flatnonzero(labels == label)[: EMBEDDED[name]] for label in range(len(names))])
    query = GuideSums(EmbeddingSumsSpec(len(names)), embedder, embedder.embed(["x"]).shape[1])  # type: ignore[arg-type]
    few = [" ".join(texts[place].split()[: _WORDS.get(name)]) for place in picked.tolist()]
    sums = query.of_batch(batch_of(few, labels[picked])) / query.sensitivity.grid
    scale = np.bincount(labels) / np.bincount(labels[picked])
    test = Sample(tuple(test_texts), tuple(tests["label"].to_pylist()), embedder.embed(test_texts))
    embedder.save()
    return Private(texts, labels, names, _VOCABULARY.terms, sums * scale[:, None]), test


def real_seeds(released: Released, test: Sample) -> list[Seed]:
    """As many terms of test records as sequences have, at random among those that count of a record."""
    generator, matcher = np.random.default_rng(0), TermMatcher(released.terms)
    seeds = []
    for text, label in zip(test.texts[:600], test.labels or (), strict=False):
        found = matcher.first_distinct(text, METHOD.terms_per_record)
        length = int(generator.integers(METHOD.shortest, METHOD.length + 1))
        taken = generator.permutation(np.array(found, dtype=np.int64))[:length].tolist()
        seeds.append(Seed(tuple(released.terms[term] for term in taken), released.private.names.index(label)))
    return seeds


def tables(options: Namespace) -> Iterator[Row]:
    embedder = KeptEmbedder(CACHE / "texts.npz")
    for name in options.sets:
        private, test = load(name, embedder)
        exact = private.sums(private.vocabulary, None)
        order = tuple(sorted({*private.names, *(test.labels or ())}))
        cells = (
            (epsilon, seed, kind) for epsilon in options.epsilons for seed in options.seeds for kind in options.variants
        )
        for epsilon, seed, kind in cells:
            variant = VARIANTS[kind]
            seeds, released = seeds_of(
                private, exact, variant, epsilon=epsilon, seed=seed, count=PER_LABEL[name], embedder=embedder
            )
            within, beyond = coherence(seeds, embedder)
            row: Row = {"set": name, "epsilon": epsilon, "seed": seed, "variant": kind, "labels": len(private.names)}
            row |= {"coherence": round(within, 4), "beyond": round(beyond, 4)}
            if kind == "counts":
                row["real"] = [round(each, 4) for each in coherence(real_seeds(released, test), embedder)]
            texts = [", ".join(each.phrases) for each in seeds]
            train = Sample(tuple(texts), tuple(private.names[each.label] for each in seeds), embedder.embed(texts))
            for judge in ("embedding", "tf-idf"):
                labels, predict = kind_named(judge).train(train, seed=0)
                predicted = numbered(labels, order)[predict(test)]
                row[judge] = round(accuracy(numbered(test.labels or (), order), predicted), 4)
            yield row
        embedder.save()


VALUES = {
    "habitat": "swamp desert forest glacier cavern meadow reef volcano canyon tundra",
    "diet": "moss beetles fruit plankton honey roots snails seaweed pollen mushrooms",
    "colour": "crimson turquoise violet amber silver ivory emerald scarlet indigo bronze",
    "sound": "whistle growl hum click roar chirp hiss drumming purr howl",
    "weapon": "venom horns claws tusks spines stinger electricity smoke glue beak",
}
TEMPLATES = {
    "habitat": ["The {name} lives in the {value}", "You find the {name} near a {value}", "Its home is the {value}"],
    "diet": ["It feeds on {value}", "Its meal is mostly {value}", "It hunts for {value} at night"],
    "colour": ["Its skin looks {value}", "Young ones have {value} fur", "Its eyes shine {value}"],
    "sound": ["Its call is a {value}", "Travellers hear its {value}", "It warns others by a {value}"],
    "weapon": ["It defends itself with {value}", "Enemies fear its {value}", "It fights by means of {value}"],
}
CREATURES = 100


def creatures() -> tuple[list[str], list[dict[str, str]], list[str], list[int]]:
    """Names, their attributes, texts, and the creature that each text is mostly about."""
    generator, names = np.random.default_rng(0), list[str]()
    syllables = [start + vowel for start in [*"bdfgklmnprstvz", "qu", "th"] for vowel in "aeiou"]
    while len(names) < CREATURES:
        name = "".join(generator.choice(syllables, 3)) + str(generator.choice(["x", "th", "rn", "k", "l"]))
        names += [] if name in names else [name]
    truth = [{of: str(generator.choice(values.split())) for of, values in VALUES.items()} for _ in names]
    sizes = np.exp(generator.uniform(np.log(200), np.log(2000), CREATURES)).astype(int)

    def said(which: int, attributes: int) -> str:
        parts = [
            str(generator.choice(TEMPLATES[of])).format(name=names[which], value=truth[which][of])
            for of in generator.permutation(list(VALUES))[:attributes].tolist()
        ]
        text = ". ".join(parts) + "."
        return text if names[which] in text else f"About the {names[which]}: {text}"

    texts, about = list[str](), np.repeat(np.arange(CREATURES), sizes).tolist()
    for which in about:
        if generator.random() < 0.15:
            other = int(generator.integers(CREATURES))
            texts.append(f"{said(which, 1)} Unlike it, another creature. {said(other, 1)}")
        else:
            texts.append(said(which, int(generator.integers(1, 4))))
    return names, truth, texts, about


def facts(options: Namespace) -> Iterator[Row]:
    """With one label; and with the creature as the label, for counts alone."""
    names, truth, texts, about = creatures()
    attribute = {value: of for of, values in VALUES.items() for value in values.split()}
    vocabulary = list(dict.fromkeys([*_VOCABULARY.terms, *names]))
    embedder = KeptEmbedder(CACHE / "texts.npz")
    query = GuideSums(EmbeddingSumsSpec(1), embedder, embedder.embed(["x"]).shape[1])  # type: ignore[arg-type]
    few = [texts[place] for place in np.random.default_rng(0).permutation(len(texts))[:500].tolist()]
    sums = query.of_batch(batch_of(few, np.zeros(len(few), dtype=np.int32))) / query.sensitivity.grid
    joint = Private(texts, np.zeros(len(texts), np.int32), ("creature",), vocabulary, sums * len(texts) / len(few))
    by_name = Private(texts, np.array(about, dtype=np.int32), tuple(names), vocabulary)
    exact = joint.sums(vocabulary, None)
    cells = ((epsilon, seed) for epsilon in options.epsilons for seed in options.seeds)
    for epsilon, seed, private, kind in (
        (*cell, private, kind)
        for cell in cells
        for private, kinds in ((joint, options.variants), (by_name, {"counts"} & {*options.variants}))
        for kind in kinds
    ):
        variant, labels = VARIANTS[kind], len(private.names)
        count = 300 if variant.guide else 5000 // labels
        seeds, _ = seeds_of(private, exact, variant, epsilon=epsilon, seed=seed, count=count, embedder=embedder)
        said, known = list[bool](), set[tuple[int, str]]()
        for each in seeds:
            named = {names.index(term) for term in each.phrases if term in names} | (
                {each.label} if labels > 1 else set()
            )
            if len(named) == 1:
                (which,) = named
                values = [term for term in each.phrases if term in attribute]
                said += [truth[which][attribute[value]] == value for value in values]
                known |= {(which, value) for value in values if truth[which][attribute[value]] == value}
        row: Row = {"set": "creatures", "epsilon": epsilon, "seed": seed, "variant": kind, "labels": labels}
        yield row | {
            "sequences": len(seeds),
            "statements": len(said),
            "true": round(float(np.mean(said)), 4),
            "facts": len(known),
        }


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("task", choices=["tables", "facts"])
    parser.add_argument("--sets", nargs="+", choices=PER_LABEL, default=list(PER_LABEL))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[6.0, 1.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    given = parser.parse_args()
    shrinkage._FITTED = 1 << 14  # values that a prior is fitted to: for speed
    for row in (tables if given.task == "tables" else facts)(given):
        say(str(row))
        add_row("beside/pairs", row, ("set", "labels", "epsilon", "seed", "variant"))


if __name__ == "__main__":
    main()
