"""Leakage: parts of the real texts in the synthetic ones, with the values of texts never used for comparison.

A low value does not prove privacy: it says that one kind of search found nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.secrets import SecretFinder
from understudy.corpus.secrets.detectors import Detector
from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.disclosure import measure_disclosure
from understudy.evaluate.metrics.intervals import (
    NO_TEXTS,
    chance_of_none,
    mean_of_choices,
    quantile,
    ratio,
    share,
)
from understudy.evaluate.metrics.sample import Sample, number_pairs
from understudy.evaluate.metrics.value import HOLDOUT, SYNTHETIC, MetricValue, Setting, metric_named

COPIED = 8
"""Least number of words of a span that counts as copied; Chowdhery et al. 2022 look for 8-grams."""

NGRAMS = (5, 13)
"""A phrase of everyday length, and one hardly found twice by chance: that of Brown et al. 2020, appendix C."""


LONGEST = metric_named("longest_copied_span")
TYPICAL = metric_named("copied_span")
COVERED = metric_named("copied_words", copied=COPIED)
CONTAINED = metric_named("ngram_containment")
UNIQUE = metric_named("unique_ngram_containment")


def measure_copying(
    real: Sequence[Sequence[str]], others: Mapping[str, Sequence[Sequence[str]]], *, seed: int, resamples: int
) -> list[MetricValue]:
    """Measure how many word sequences each table of ``others`` copies from ``real``; both are given as words per
    text."""
    values: list[MetricValue] = []
    sampling = {"seed": seed, "resamples": resamples}
    smallest = min(len(texts) for texts in others.values())
    for of, texts in others.items():
        phrases = Phrases(real, texts)
        longest = phrases.longest()
        values += [_maximum(longest, size, of) for size in dict.fromkeys((len(longest), smallest))]
        values.append(quantile(TYPICAL, longest, 0.95, of, none=NO_TEXTS, **sampling))
        covered, words = phrases.covered(COPIED)
        values.append(ratio(COVERED, covered, words, of, {"n": COPIED}, none="There are no words.", **sampling))
        for n in NGRAMS:
            in_any, in_one, all_of_them = phrases.ngrams(n)
            none = f"No text has {n} words."
            for metric, found in ((CONTAINED, in_any), (UNIQUE, in_one)):
                values.append(ratio(metric, found, all_of_them, of, {"n": n}, none=none, **sampling))
    return values


def _maximum(longest: Ints, size: int, of: str) -> MetricValue:
    """Return the expected maximum of ``longest`` among ``size`` random texts, without an interval."""
    settings = {"texts": size}
    if size == 0:
        return MetricValue(LONGEST, None, of, settings=settings, note=NO_TEXTS)
    lengths = np.sort(longest)
    up_to = chance_of_none(np.arange(len(lengths))[::-1], len(lengths), size)  # P(maximum <= lengths[i])
    mean = float(lengths @ np.diff(up_to, prepend=0.0)) if size < len(lengths) else float(lengths[-1])
    return MetricValue(LONGEST, mean, of, settings=settings, note=mean_of_choices(size, len(lengths)))


COPIED_ROWS = metric_named("copied_rows")


def measure_rows(real: Sample, others: Mapping[str, Sample]) -> Iterator[MetricValue]:
    """Return the share of copied rows of each table; nothing for tables without typed columns."""
    if real.cells is None:
        return
    known = set(_rows(real))
    for of, table in others.items():
        if table.cells is not None:
            yield share(COPIED_ROWS, sum(row in known for row in _rows(table)), len(table), of, {})


def _rows(table: Sample) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    assert table.cells is not None
    labels = table.labels or [""] * len(table)
    return zip(table.texts, labels, map(tuple, table.cells.tolist()), strict=True)


COUNT = metric_named("pii_replayed")
SHARE = metric_named("pii_replayed_share")
PUBLIC = metric_named("pii_replayed_public")


def measure_replay(
    real: Sequence[str], others: Mapping[str, Sequence[str]], *, public: Sequence[str], detectors: Sequence[Detector]
) -> list[MetricValue]:
    """Measure how much of the real texts' personal data occurs in other texts, by detector."""
    return [each for detector in detectors for each in _of_detector(detector, real, others, public)]


def _of_detector(
    detector: Detector, real: Sequence[str], others: Mapping[str, Sequence[str]], public: Sequence[str]
) -> Iterable[MetricValue]:
    strings = set(_texts_with(SecretFinder(detectors=[detector]), real))
    finder = SecretFinder(listed=strings, detectors=[detector])
    known = strings & set(_texts_with(finder, public))
    own = strings - known
    smallest = min(len(texts) for texts in others.values())
    for of, texts in others.items():
        found = _texts_with(finder, texts)
        holders = np.array([found[string] for string in sorted(own & found.keys())], dtype=np.int64)
        by_detector: dict[str, Setting] = {"detector": detector.name}
        for size in dict.fromkeys((len(texts), smallest)):
            expected = float((1 - chance_of_none(holders, len(texts), size)).sum())
            settings = {**by_detector, "texts": size}
            yield MetricValue(COUNT, expected, of, settings=settings, note=mean_of_choices(size, len(texts)))
        none = "The real texts contain no such string."
        yield share(SHARE, len(holders), len(own), of, by_detector, none=none)
        if known:
            yield MetricValue(PUBLIC, float(len(known & found.keys())), of, settings=by_detector)


def _texts_with(finder: SecretFinder, texts: Sequence[str]) -> Counter[str]:
    return Counter(string for text in texts for string in finder.find(text))


def measure_leakage(
    real: Sample,
    synthetic: Sample,
    *,
    holdout: Sample | None,
    public: Sequence[str] = (),
    detectors: Sequence[Detector],
    seed: int,
    resamples: int = 200,
    promised: tuple[float, float] | None = None,
) -> tuple[MetricValue, ...]:
    """Return all values of the synthetic texts (``of="synthetic"``) and of held out ones (``of="holdout"``), in pairs.

    Held out texts were never used and yet share phrases, neighbours and names with the real ones: what they share is
    not a leak. Shares and quantiles do not depend on a table's size; maxima and counts are given for its own size and
    for that of the smaller table.

    Args:
        holdout: real texts that were not used; None if there are none.
        public: public inputs whose strings may be in the synthetic texts: example texts, vocabulary terms.
        detectors: of personal data.
        promised: epsilon and delta of the synthetic texts, if they are known.
    """
    require_evaluate()
    tables = {SYNTHETIC: synthetic} if holdout is None else {SYNTHETIC: synthetic, HOLDOUT: holdout}
    texts = {of: table.texts for of, table in tables.items()}
    replayed = measure_replay(real.texts, texts, public=public, detectors=detectors)
    words = {of: table.normal_words for of, table in tables.items()}
    return (
        *measure_copying(real.normal_words, words, seed=seed, resamples=resamples),
        *measure_rows(real, tables),
        *measure_near_duplicates(real.normal_words, words, seed=seed),
        *measure_neighbours(real, tables, seed=seed, resamples=resamples),
        *(() if holdout is None else _disclosed(real, synthetic, holdout, seed=seed, promised=promised)),
        *replayed,
    )


def _disclosed(real: Sample, synthetic: Sample, holdout: Sample, **how: Any) -> Iterator[MetricValue]:
    """Test disclosure by the longest phrase that a record shares with a synthetic text, and by embeddings."""
    records = [*real.normal_words, *holdout.normal_words]
    phrases = Phrases(synthetic.normal_words, records).longest().astype(np.float64)
    yield from measure_disclosure(phrases[: len(real)], phrases[len(real) :], by="words in a row", **how)
    near = [-_distances(table, synthetic, 1).ravel() for table in (real, holdout)]
    if all(map(len, near)):
        yield from measure_disclosure(*near, by="embeddings", **how)


Ints = NDArray[np.int64]


class Phrases:
    """The phrases of ``others`` that occur in ``real``: exactly, for all lengths at once, in O(n log n) for n words. A
    phrase never crosses the end of a text.

    Every word gets the rank, among all, of the 2^k words that start there, for k = 0, 1, 2 ... (prefix doubling: Karp,
    Miller and Rosenberg 1972; Manber and Myers 1993, section 4). Two phrases of 2^k words are equal exactly if their
    ranks are. The last ranks sort all endings of all texts, and the longest phrase that one has in common with a table
    is the one in common with its neighbours from that table.
    """

    def __init__(self, real: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> None:
        texts = [*real, *others]
        sizes = np.fromiter((len(words) + 1 for words in texts), dtype=np.int64, count=len(texts))
        numbers: dict[str, int] = {}  # 0 is the end of a text
        self._words = np.fromiter(
            chain.from_iterable(
                (*(numbers.setdefault(word, len(numbers) + 1) for word in words), 0) for words in texts
            ),
            dtype=np.int32,
            count=int(sizes.sum()),
        )
        self._starts = np.cumsum(sizes) - sizes
        self._text = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
        self._end = np.repeat(self._starts + sizes - 1, sizes)
        self._real = len(real)
        self._first = int(sizes[: len(real)].sum())

    def longest(self) -> Ints:
        """Return, for each other text, the length in words of the longest phrase that it shares with a real text:
        ``Int64[len(others)]``."""
        return self._by_text(np.maximum, self._copied)

    def covered(self, n: int) -> tuple[Ints, Ints]:
        """Return, for each other text, the number of its words in copied phrases of ``n`` words or more, and the number
        of all its words."""
        copied = self._copied
        change = np.zeros(len(copied) + 1, dtype=np.int64)
        starts = np.flatnonzero(copied >= n)
        np.add.at(change, starts, 1)
        np.add.at(change, starts + copied[starts], -1)
        inside = np.cumsum(change[:-1]) > 0
        return self._by_text(np.add, inside), self._by_text(np.add, self._left > 0)

    def ngrams(self, n: int) -> tuple[Ints, Ints, Ints]:
        """Return, for each other text, how many of its n-grams occur in any real text, in exactly one real text, and in
        total."""
        level = n.bit_length() - 1
        ranks = self._ranks[min(level, len(self._ranks) - 1)]
        at = np.flatnonzero(self._end - np.arange(len(self._end)) >= n)
        codes = number_pairs(ranks[at], ranks[at + n - 2**level])
        texts = self._text[at]
        mine = texts < self._real
        pairs = np.unique(codes[mine].astype(np.int64) * self._real + texts[mine])
        holders = np.bincount(pairs // max(self._real, 1), minlength=int(codes.max(initial=-1)) + 1)[codes[~mine]]
        counts = np.zeros((3, len(self._starts) - self._real), dtype=np.int64)
        for row, counted in zip(counts, (holders > 0, holders == 1, holders >= 0), strict=True):
            np.add.at(row, texts[~mine][counted] - self._real, 1)
        return counts[0], counts[1], counts[2]

    @property
    def _left(self) -> Ints:
        return self._end[self._first :] - np.arange(self._first, len(self._end))

    def _by_text(self, combine: np.ufunc, values: NDArray[np.generic]) -> Ints:
        starts = self._starts[self._real :] - self._first
        combined: Ints = combine.reduceat(values.astype(np.int64), starts) if len(starts) else starts
        return combined

    @cached_property
    def _ranks(self) -> list[NDArray[np.int32]]:
        """Return, for k = 0, 1, ..., the rank of the 2^k words from each position (cut at the text's end), until all
        differ."""
        ranks = [self._words]
        distinct, places = 0, np.arange(len(self._words))
        while (now := int(ranks[-1].max(initial=0))) > distinct:
            following = np.minimum(places + 2 ** (len(ranks) - 1), self._end)
            distinct = now
            ranks.append(number_pairs(ranks[-1], ranks[-1][following]))
        return ranks[:-1] or ranks

    @cached_property
    def _copied(self) -> Ints:
        """Return, for each position of the other texts, the words of the longest phrase that is in a real text."""
        order = np.argsort(self._ranks[-1], kind="stable")
        longest = np.zeros(len(self._words), dtype=np.int64)
        for places in (order, order[::-1]):
            is_real = places < self._first
            last_real = np.maximum.accumulate(np.where(is_real, np.arange(len(places)), -1))
            mine = np.flatnonzero(~is_real & (last_real >= 0))
            here, there = places[mine], places[last_real[mine]]
            longest[here] = np.maximum(longest[here], self._common(here, there))
        return longest[self._first :]

    def _common(self, here: Ints, there: Ints) -> Ints:
        last = self._ranks[-1]  # distinguishes all endings that differ
        length = np.where(last[here] == last[there], len(last), 0)
        for level in reversed(range(len(self._ranks))):
            ranks = self._ranks[level]
            left = ranks[np.minimum(here + length, self._end[here])]
            right = ranks[np.minimum(there + length, self._end[there])]
            length += np.where(left == right, 2**level, 0)
        return np.minimum(length, np.minimum(self._end[here] - here, self._end[there] - there))


SIMILAR = (0.8, 0.9)
"""Least edit similarities of near duplicates."""

_CONFIRMED = 100
"""Most candidates of a text whose similarity is computed: with much boilerplate nearly every text is one."""

_PERMUTATIONS, _BANDS, _ROWS = 128, 32, 4
"""Texts with half of their distinct words in common are found with probability 0.87, with two thirds 0.999."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_AT_ONCE = 512
"""Number of texts whose candidates are searched together."""

NEAR = metric_named("near_duplicates", confirmed=_CONFIRMED)


def measure_near_duplicates(
    real: Sequence[Sequence[str]], others: Mapping[str, Sequence[Sequence[str]]], *, seed: int
) -> list[MetricValue]:
    """Return the shares of texts with a near duplicate in ``real``. Texts without words have none."""
    index = _Index(real, others, seed)
    values: list[MetricValue] = []
    for of, texts in others.items():
        most = index.most_similar(texts)
        values += [share(NEAR, int((most >= level).sum()), len(most), of, {"similarity": level}) for level in SIMILAR]
    return values


class _Index:
    """The distinct real texts, searchable for similar ones.

    Texts are candidates of each other if a band of their sketches is the same. Bands are found by a hash, then compared
    in full: about a kilobyte per text, while a table in memory for each band takes 16.
    """

    def __init__(self, real: Sequence[Sequence[str]], others: Mapping[str, Sequence[Sequence[str]]], seed: int) -> None:
        from datasketch import MinHash, sha1_hash32

        vocabulary = set(chain.from_iterable(chain(real, *others.values())))
        self._hashes = {word: sha1_hash32(word.encode("utf-8", "surrogatepass")) for word in vocabulary}
        self._empty = MinHash(num_perm=_PERMUTATIONS, seed=seed % 2**32, hashfunc=int)
        self._texts = list(dict.fromkeys(" ".join(words) for words in real if words))
        self._known = set(self._texts)
        self._sketches = np.empty((len(self._texts), _PERMUTATIONS), dtype=np.uint32)
        for row, text in enumerate(self._texts):
            self._sketches[row] = self._sketch(text.split(" "))
        self._order = np.empty((_BANDS, len(self._texts)), dtype=np.int32)
        self._sorted = np.empty((_BANDS, len(self._texts)), dtype=np.uint64)
        for band in range(_BANDS):
            numbers = _numbers(self._sketches, band)
            self._order[band] = np.argsort(numbers, kind="stable")
            self._sorted[band] = numbers[self._order[band]]

    def most_similar(self, texts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
        """Return ``Float64[len(texts)]``: the highest similarity of any candidate, 0 if below all of ``SIMILAR``."""
        found = np.zeros(len(texts))
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            joined = [" ".join(words) for words in some]
            unknown = [row for row, text in enumerate(joined) if text not in self._known]
            found[start : start + len(some)] = 1.0
            found[[start + row for row in unknown]] = self._most_similar([joined[row] for row in unknown])
        return found

    def _most_similar(self, texts: Sequence[str]) -> list[float]:
        from rapidfuzz.fuzz import ratio
        from rapidfuzz.process import extractOne

        sketches = np.array([self._sketch(text.split(" ")) if text else self._empty.hashvalues for text in texts])
        sketches = sketches.reshape(-1, _PERMUTATIONS).astype(np.uint32, copy=False)
        asked = [_numbers(sketches, band) for band in range(_BANDS)]
        firsts = [np.searchsorted(known, each) for known, each in zip(self._sorted, asked, strict=True)]
        ends = [np.searchsorted(known, each, side="right") for known, each in zip(self._sorted, asked, strict=True)]
        found = []
        for row, text in enumerate(texts):
            bands = [self._order[band, firsts[band][row] : ends[band][row]] for band in range(_BANDS)]
            numbers = np.unique(np.concatenate(bands)) if text else np.empty(0, dtype=np.int32)
            same = self._sketches[numbers] == sketches[row]
            whole = np.any(np.all(same.reshape(-1, _BANDS, _ROWS), axis=2), axis=1)  # of whole bands
            numbers, same = numbers[whole], same[whole]
            nearest = numbers[np.argsort(-same.sum(axis=1), kind="stable")[:_CONFIRMED]]
            candidates = (self._texts[number] for number in nearest)
            best = extractOne(text, candidates, scorer=ratio, score_cutoff=100 * min(SIMILAR))
            found.append(0.0 if best is None else best[1] / 100)
        return found

    def _sketch(self, words: Sequence[str]) -> NDArray[Any]:
        sketch = self._empty.copy()
        sketch.update_batch([self._hashes[word] for word in set(words)])
        return np.asarray(sketch.hashvalues)


def _numbers(sketches: NDArray[np.uint32], band: int) -> NDArray[np.uint64]:
    """Hash each sketch's band: equal bands have the same number, and hardly any others."""
    found = np.zeros(len(sketches), dtype=np.uint64)
    for column in range(band * _ROWS, (band + 1) * _ROWS):
        found = found * _FACTOR + sketches[:, column]  # modulo 2^64
    return found


QUANTILES = (0.05, 0.5)
_BLOCK = 8192  # texts at a time that are read in float64

NO_EMBEDDINGS = "The texts have no embeddings."

DISTANCE = metric_named("distance_to_closest_record")
RATIO = metric_named("nearest_neighbour_distance_ratio")
NEARER = metric_named("nearer_to_real_than_holdout")


def measure_neighbours(real: Sample, others: Mapping[str, Sample], **sampling: int) -> list[MetricValue]:
    """Measure the distance of each table to its nearest real texts, and which texts are nearer to real than to held-out
    ones.

    Without embeddings, or with too few real texts, there is a note instead of a value.
    """
    values: list[MetricValue] = []
    for of, texts in others.items():
        distances = _distances(texts, real, 2)
        first, second = distances[:, :1].ravel(), distances[:, 1:].ravel()
        ratios = np.divide(first[: len(second)], second, out=np.ones_like(second), where=second > 0)
        for metric, found, fewest in ((DISTANCE, first, 1), (RATIO, ratios, 2)):
            none = _why(real, texts, fewest)
            values += [quantile(metric, found, level, of, none=none, **sampling) for level in QUANTILES]
    if SYNTHETIC in others and HOLDOUT in others:
        values.append(_nearer(real, others[SYNTHETIC], others[HOLDOUT], **sampling))
    return values


def _nearer(real: Sample, synthetic: Sample, holdout: Sample, *, seed: int, resamples: int) -> MetricValue:
    size = min(len(real), len(holdout))
    to_real = _distances(synthetic, real.at_most(size, seed=seed), 1).ravel()
    to_holdout = _distances(synthetic, holdout.at_most(size, seed=seed), 1).ravel()
    wins = (to_real < to_holdout) + 0.5 * (to_real == to_holdout) if len(to_real) and len(to_holdout) else np.zeros(0)
    settings, none = {"reference_texts": size}, _why(holdout, synthetic, 1)
    return ratio(NEARER, wins, np.ones(len(wins)), SYNTHETIC, settings, none=none, seed=seed, resamples=resamples)


def _distances(texts: Sample, reference: Sample, count: int) -> NDArray[np.float64]:
    """Return ``Float64[len(texts), <= count]``: from each text to its nearest reference texts; may be empty."""
    from sklearn.neighbors import NearestNeighbors

    count = min(count, len(reference))
    if texts.embeddings is None or reference.embeddings is None or not len(texts) or not count:
        return np.empty((0, 0))
    search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(reference.embeddings)
    nearest = search.kneighbors(texts.embeddings, return_distance=False)
    distances = np.empty(nearest.shape)
    for start in range(0, len(nearest), _BLOCK):
        vectors = texts.embeddings[start : start + _BLOCK].astype(np.float64)
        for column in range(count):  # again: rounding in the search makes equal vectors differ
            found = reference.embeddings[nearest[start : start + _BLOCK, column]]
            distances[start : start + _BLOCK, column] = np.linalg.norm(vectors - found, axis=1)
    return np.sort(distances, axis=1)


def _why(reference: Sample, texts: Sample, fewest: int) -> str:
    if not len(texts):
        return NO_TEXTS
    if len(reference) < fewest:
        return f"There are fewer than {fewest} texts to compare with."
    return NO_EMBEDDINGS
