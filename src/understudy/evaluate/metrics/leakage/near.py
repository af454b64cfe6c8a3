"""Real texts that a text is too like: near duplicates by their words, nearest neighbours by their embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics.intervals import NO_TEXTS, quantile, ratio, share_of_texts
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import HOLDOUT, SYNTHETIC, Metric, MetricValue

_metric = partial(Metric, "leakage")

SIMILAR = (0.8, 0.9)
"""Edit similarities from which on two texts are near duplicates."""

_CONFIRMED = 100
"""Candidates of a text whose similarity is computed: in tables with much boilerplate nearly every text is one."""

_PERMUTATIONS, _BANDS, _ROWS = 128, 32, 4
"""Texts with half of their distinct words in common are found with probability 0.87, with two thirds 0.999."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_AT_ONCE = 512
"""Texts whose candidates are looked for together."""

NEAR = _metric(
    "near_duplicates",
    "Texts with a near duplicate among the real ones",
    "The share of texts, in [0, 1], that have a real text of at least the given similarity: 1 minus the insertions "
    "and deletions of characters that turn one into the other, over both lengths. Case and punctuation do not count. "
    f"Compared are the {_CONFIRMED} real texts at most that share most words by MinHash: a text with typing errors in "
    "every other word may be missed.",
    "Broder 1997; Lee et al. 2022, arXiv:2107.06499, section 4.2",
    "lower",
)


def measure_near_duplicates(
    real: Sequence[Sequence[str]], others: Mapping[str, Sequence[Sequence[str]]], *, seed: int
) -> list[MetricValue]:
    """Shares of texts with a near duplicate in ``real``. Texts without words have none."""
    index = _Index(real, others, seed)
    values: list[MetricValue] = []
    for of, texts in others.items():
        most = index.most_similar(texts)
        values += [share_of_texts(NEAR, most >= level, of, {"similarity": level}) for level in SIMILAR]
    return values


class _Index:
    """The distinct real texts, to be asked for what is similar.

    Texts are candidates of each other where a band of their sketches is the same. Bands are found by a number that is
    made of each, and compared whole: about a kilobyte per text, where a table in memory for each band takes 16.
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
        """``Float64[len(texts)]``: the highest similarity of any candidate, 0 where it is below all of ``SIMILAR``."""
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
    """A number for each sketch's band: equal ones have the same, and hardly any others."""
    found = np.zeros(len(sketches), dtype=np.uint64)
    for column in range(band * _ROWS, (band + 1) * _ROWS):
        found = found * _FACTOR + sketches[:, column]  # modulo 2^64
    return found


QUANTILES = (0.05, 0.5)
_BLOCK = 8192  # texts at a time that are read in float64

NO_EMBEDDINGS = "The texts have no embeddings."

DISTANCE = _metric(
    "distance_to_closest_record",
    "Distance to closest record (DCR)",
    "A quantile over texts of the Euclidean distance, in [0, 2], from a text's embedding to the nearest real one.",
    "Zhao et al. 2021, arXiv:2102.08369 (CTAB-GAN)",
    "higher",
)
RATIO = _metric(
    "nearest_neighbour_distance_ratio",
    "Nearest-neighbour distance ratio (NNDR)",
    "A quantile over texts of the distance to the nearest real text over that to the second nearest, in [0, 1]. Near 0 "
    "a text belongs to one real text and to no other; 1 where both distances are 0.",
    "Zhao et al. 2021, arXiv:2102.08369 (CTAB-GAN); Lowe 2004",
    "higher",
)
NEARER = _metric(
    "nearer_to_real_than_holdout",
    "Texts nearer to the real texts than to held out ones",
    "The share of texts, in [0, 1], whose nearest text among as many real as held out ones is a real one; ties count "
    "half. About one half where the real texts left no mark of their own.",
    "Platzer and Reutterer 2021, arXiv:2104.00635",
    "lower",
)


def measure_neighbours(real: Sample, others: Mapping[str, Sample], **sampling: int) -> list[MetricValue]:
    """Distances and their ratios for each table; and, with held out texts, which the synthetic ones are nearer to.

    Where there are no embeddings, or too few real texts, there is no value but a note.
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
    """``Float64[len(texts), <= count]``: from each text to its nearest reference texts; empty where there are none."""
    from sklearn.neighbors import NearestNeighbors

    count = min(count, len(reference))
    if texts.embeddings is None or reference.embeddings is None or not len(texts) or not count:
        return np.empty((0, 0))
    search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(reference.embeddings)
    nearest = search.kneighbors(texts.embeddings, return_distance=False)
    distances = np.empty(nearest.shape)
    for start in range(0, len(nearest), _BLOCK):
        vectors = texts.embeddings[start : start + _BLOCK].astype(np.float64)
        for column in range(count):  # again: the search's own rounding makes equal vectors differ
            found = reference.embeddings[nearest[start : start + _BLOCK, column]]
            distances[start : start + _BLOCK, column] = np.linalg.norm(vectors - found, axis=1)
    return np.sort(distances, axis=1)


def _why(reference: Sample, texts: Sample, fewest: int) -> str:
    if not len(texts):
        return NO_TEXTS
    if len(reference) < fewest:
        return f"There are fewer than {fewest} texts to be near to."
    return NO_EMBEDDINGS
