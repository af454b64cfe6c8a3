"""Metrics of words, lengths, labels, JSON and typed columns.

Comparisons take a table of real texts and another one; with ``sampling``, the ``seed`` and ``resamples`` of
:func:`~understudy.evaluate.metrics.intervals.over_subsamples`, they give intervals from subsamples of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics.intervals import (
    between_subsamples,
    bootstrap,
    over_subsamples,
    share,
    value_of_subsamples,
    whole_and_subsamples,
)
from understudy.evaluate.metrics.sample import Sample, number_pairs
from understudy.evaluate.metrics.value import SYNTHETIC, Metric, MetricValue, Setting, metric_named
from understudy.methods.shared.decoding.structured import Fault, JSONSchema, read_json

LENGTH_BINS = 20
ORDERS = (1, 2, 3)
SELF_BLEU_TEXTS = 200

LENGTH_JS = metric_named("length_divergence", length_bins=LENGTH_BINS)
LENGTH_KS = metric_named("length_ks")
VOCABULARY = metric_named("vocabulary_divergence")
LABEL_DISTANCE = metric_named("label_distance")
LABEL_SHARE = metric_named("label_share")
DISTINCT = metric_named("distinct_n")
SELF_BLEU = metric_named("self_bleu", self_bleu_texts=SELF_BLEU_TEXTS)
JSON_PARSED = metric_named("json_parsed")
JSON_VALID = metric_named("json_valid")

Words = Sequence[Sequence[str]]
"""Return the words of each text."""
Ints = NDArray[np.int64]


def jensen_shannon(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the Jensen-Shannon divergence in bits, in [0, 1], of counts, each with a sum above 0.

    Source: Lin 1991, equation 4.1 with equal weights.
    """
    from scipy.spatial.distance import jensenshannon

    return float(np.clip(jensenshannon(np.asarray(a, np.float64), np.asarray(b, np.float64), base=2) ** 2, 0.0, 1.0))


def length_divergence(a: Ints, b: Ints) -> float:
    """Return the Jensen-Shannon divergence (bits) of two sets of lengths, in shared bins. Neither set may be empty."""
    pooled = np.concatenate([a, b])
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, LENGTH_BINS + 1)[1:-1], method="inverted_cdf"))
    counts = [np.bincount(np.searchsorted(edges, each), minlength=len(edges) + 1) for each in (a, b)]
    return jensen_shannon(*counts)


def length_ks(a: Ints, b: Ints) -> float:
    """Return the two-sample Kolmogorov-Smirnov statistic. Neither set may be empty."""
    values = np.unique(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(each), values, side="right") / len(each) for each in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def length_values(real: Ints, other: Ints, *, of: str, **sampling: int) -> list[MetricValue]:
    """Return both distances between the lengths ``Int64[n]`` of real texts and ``Int64[m]`` of others."""
    both = ((LENGTH_JS, length_divergence), (LENGTH_KS, length_ks))
    return [between_subsamples(metric, found, real, other, of, high=1.0, **sampling) for metric, found in both]


def vocabulary_values(real: Words, other: Words, *, of: str, seed: int, resamples: int) -> list[MetricValue]:
    """Return the Jensen-Shannon divergence of how often two tables use each word."""
    from sklearn.feature_extraction.text import CountVectorizer

    if not (any(real) and any(other)):
        return [MetricValue(VOCABULARY, None, of, note="A table has no words.")]
    counts = CountVectorizer(analyzer=list).fit_transform([*real, *other])
    ours, theirs = counts[: len(real)], counts[len(real) :]
    sizes = len(real), len(other)

    def between(one: NDArray[np.bool_], two: NDArray[np.bool_]) -> float:
        return jensen_shannon(one @ ours, two @ theirs)

    return [over_subsamples(VOCABULARY, between, sizes, of, seed=seed, resamples=resamples, high=1.0)]


def total_variation(a: Ints, b: Ints, labels: int) -> float:
    """Return half the sum of the absolute differences between two tables' label shares. Neither table may be empty."""
    shares = [np.bincount(each, minlength=labels) / len(each) for each in (a, b)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def label_distance_values(real: Sequence[str], other: Sequence[str], *, of: str, **sampling: int) -> list[MetricValue]:
    """Return the total variation distance between two tables' label shares."""
    names, numbers = np.unique([*real, *other], return_inverse=True)
    ours, theirs = numbers[: len(real)], numbers[len(real) :]
    statistic = partial(total_variation, labels=len(names))
    return [between_subsamples(LABEL_DISTANCE, statistic, ours, theirs, of, high=1.0, **sampling)]


def label_share_values(labels: Sequence[str], of: str, *, names: Sequence[str]) -> list[MetricValue]:
    """Return the share of each of ``names`` in one table.

    Synthetic shares are private only if the synthetic table does not have the label: its name then comes from another
    table.
    """
    counts = Counter(labels)
    return [
        share(LABEL_SHARE, counts[name], len(labels), of, {"label": name}, private=of != SYNTHETIC or not counts[name])
        for name in names
    ]


def first_words(words: Words, total: int, *, seed: int) -> list[Sequence[str]]:
    """Return random texts that have ``total`` words together; the last one is cut."""
    kept: list[Sequence[str]] = []
    for row in np.random.default_rng(seed).permutation(len(words)):
        if total <= 0:
            break
        kept.append(words[row][:total])
        total -= len(kept[-1])
    return kept


def distinct(numbers: NDArray[np.int32]) -> float:
    """Return the share of distinct numbers among ``numbers``; 0 if empty."""
    return float(np.count_nonzero(np.bincount(numbers)) / len(numbers)) if len(numbers) else 0.0


def ngrams(words: Words, n: int) -> tuple[NDArray[np.int32], Ints]:
    """Number the n-grams of all texts, in order: equal n-grams have the same number. Returns the numbers and, for each
    n-gram, the index of its text."""
    known: dict[str, int] = {}
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    single = np.fromiter((known.setdefault(word, len(known)) for text in words for word in text), np.int32, sizes.sum())
    begins = np.flatnonzero(np.repeat(np.cumsum(sizes), sizes) - np.arange(len(single)) >= n)  # n words are left
    numbers = single[begins]
    for step in range(1, n):  # by pairs of the preceding n-gram and the next word
        numbers = number_pairs(numbers, single[begins + step])
    return numbers, np.repeat(np.arange(len(words)), np.maximum(sizes - n + 1, 0))


def distinct_values(words: Words, of: str, *, total: int, seed: int, resamples: int) -> list[MetricValue]:
    """Return the shares of distinct n-grams, n = 1, 2, 3, among ``total`` words of a table."""
    kept = first_words(words, total, seed=seed)

    def of_order(n: int) -> MetricValue:
        (numbers, texts), settings = ngrams(kept, n), {"n": n}
        if not len(numbers):
            return MetricValue(DISTINCT, None, of, settings=settings, note=f"No text has {n} consecutive words.")

        def statistic(chosen: NDArray[np.bool_]) -> float:
            return distinct(numbers[chosen[texts]])

        sizes = [len(kept)]
        return over_subsamples(
            DISTINCT, statistic, sizes, of, seed=seed, resamples=resamples, high=1.0, settings=settings
        )

    return [of_order(n) for n in ORDERS]


def self_bleu(texts: Sequence[str]) -> list[float]:
    """Return each text's BLEU-4 against all others, in [0, 1]; at least two texts.

    As sacrebleu's sentence score, which would count the n-grams of all others again for every text.
    """
    from sacrebleu.metrics import BLEU
    from sacrebleu.metrics.helpers import extract_all_word_ngrams

    bleu = BLEU(effective_order=True)
    counted = [extract_all_word_ngrams(bleu.tokenizer(text.rstrip()), 1, bleu.max_ngram_order) for text in texts]
    highest: dict[tuple[str, ...], tuple[int, int]] = {}  # its counts in the two texts that contain it most often
    for ngrams, _ in counted:
        for ngram, count in ngrams.items():
            first, second = highest.get(ngram, (0, 0))
            highest[ngram] = (max(first, count), max(second, min(first, count)))

    def score(place: int) -> float:
        ngrams, length = counted[place]
        correct, total = [0] * bleu.max_ngram_order, [0] * bleu.max_ngram_order
        for ngram, count in ngrams.items():
            first, second = highest[ngram]
            correct[len(ngram) - 1] += min(count, second if count == first else first)
            total[len(ngram) - 1] += count
        others = (other for at, (_, other) in enumerate(counted) if at != place)
        nearest = min(others, key=lambda other: (abs(length - other), other))
        made = bleu.compute_bleu(correct, total, length, nearest, bleu.smooth_method, effective_order=True)
        return float(made.score / 100)

    return [score(place) for place in range(len(texts))]


def self_bleu_values(texts: Sequence[str], of: str, *, seed: int, resamples: int) -> list[MetricValue]:
    """Return the mean self-BLEU of a sample of a table's texts, with a bootstrap interval."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(texts))[:SELF_BLEU_TEXTS])
    scores = np.asarray(self_bleu([texts[row] for row in rows]))
    over = f"{len(scores)} texts"
    interval = bootstrap(
        lambda chosen: float(scores[chosen].mean()), len(scores), seed=seed, resamples=resamples, over=over
    )
    return [MetricValue(SELF_BLEU, float(scores.mean()), of, interval, reads_private=of != SYNTHETIC)]


def validity_values(texts: Sequence[str], of: str, *, schema: JSONSchema) -> list[MetricValue]:
    """Return how many of a table's texts are JSON, and how many fit the schema."""
    parsed = [value for value in map(read_json, texts) if not isinstance(value, Fault)]
    found = ((JSON_PARSED, len(parsed)), (JSON_VALID, sum(map(schema.fits, parsed))))
    return [share(metric, count, len(texts), of, {}, private=of != SYNTHETIC) for metric, count in found]


COLUMN_DISTANCE = metric_named("column_distance")
PAIR_DISTANCE = metric_named("column_pair_distance")
PAIRS_MEAN = metric_named("column_pairs_mean")
PAIRS_LARGEST = metric_named("column_pairs_largest")
COLUMN_METRICS = (COLUMN_DISTANCE, PAIRS_MEAN, PAIRS_LARGEST, PAIR_DISTANCE)
LABEL = "label"
"""The label's name among the columns; no typed column has it."""


def column_values(real: Sample, other: Sample, *, of: str, seed: int, resamples: int) -> list[MetricValue]:
    """Return the distances between two tables' typed columns and pairs of columns. Each table has two rows or more."""
    numbers = _numbered(real, other)
    pairs = list(combinations(numbers, 2))
    tables = [*numbers.values(), *(_together(numbers[a], numbers[b]) for a, b in pairs)]
    chosen = whole_and_subsamples([len(real), len(other)], seed=seed, resamples=resamples)
    found = np.array([_distances(table, *chosen) for table in tables]).T

    def measured(metric: Metric, values: NDArray[np.float64], settings: dict[str, Setting]) -> MetricValue:
        return value_of_subsamples(metric, values, chosen, of, low=0.0, high=1.0, settings=settings)

    single, joint = found[:, : len(numbers)], found[:, len(numbers) :]
    values = [measured(COLUMN_DISTANCE, single[:, place], {"column": name}) for place, name in enumerate(numbers)]
    if pairs:
        values.append(measured(PAIRS_MEAN, joint.mean(axis=1), {}))
        values.append(measured(PAIRS_LARGEST, joint.max(axis=1), {}))
    return values + [
        measured(PAIR_DISTANCE, joint[:, place], {"column": a, "other": b}) for place, (a, b) in enumerate(pairs)
    ]


def _numbered(real: Sample, other: Sample) -> dict[str, Ints]:
    """Return each column of both tables by name, the real one first, with values numbered without gaps."""
    assert real.cells is not None
    assert other.cells is not None
    found: dict[str, Ints] = {}
    if real.labels is not None and other.labels is not None:
        found[LABEL] = _without_gaps(np.array([*real.labels, *other.labels]))
    for place, column in enumerate(real.columns):
        found[column.name] = _without_gaps(np.concatenate([real.cells[:, place], other.cells[:, place]]))
    return found


def _together(a: Ints, b: Ints) -> Ints:
    return _without_gaps(a * (int(b.max(initial=0)) + 1) + b)


def _without_gaps(values: NDArray[Any]) -> Ints:
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)


def _distances(numbers: Ints, ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> list[float]:
    real, other = np.split(numbers, [ours.shape[1]])
    cells = int(numbers.max(initial=0)) + 1
    return [total_variation(real[one], other[two], cells) for one, two in zip(ours, theirs, strict=True)]
