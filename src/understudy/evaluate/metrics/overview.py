"""An overview of tables of texts: lengths, labels, topics and a map. Data for the report, not metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from string import ascii_lowercase, digits
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import Count, Number
from understudy.schema.transcript import TURNS
from understudy.text.vocabulary.terms import load_stop_words

_BINS = 24
_TERMS = 8
_TEXTS_PER_TOPIC = 10
_DIMENSIONS = 50
_FEWEST = 30  # least number of texts for t-SNE
_PERPLEXITY = 30
_LONGEST = 280


@dataclass(frozen=True)
class Histogram:
    """Counts between rising edges; ``len(edges) == len(counts) + 1``."""

    edges: Annotated[tuple[Number, ...], Field(max_length=1000)]
    counts: tuple[Count, ...]

    def __post_init__(self) -> None:
        if not self.counts or len(self.edges) != len(self.counts) + 1:
            raise ValueError("a histogram has one more edge than counts")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("the edges of a histogram do not rise")


@dataclass(frozen=True)
class Profile:
    """The sizes of one table: number of texts, histogram of their lengths in words, and counts by label and by cell of
    each typed column."""

    texts: Count
    words: Histogram
    labels: Mapping[str, Count]
    columns: Mapping[str, Mapping[str, Count]] = field(default_factory=dict)


@dataclass(frozen=True)
class Topic:
    """A cluster of texts: the terms that distinguish it from the others, and the share of each table's texts in it."""

    terms: tuple[str, ...]
    shares: Mapping[str, Number]


@dataclass(frozen=True)
class Point:
    """A text on the map. ``x`` and ``y`` are in [0, 1]."""

    x: Number
    y: Number
    of: str
    label: str
    text: str


@dataclass(frozen=True)
class Overview:
    """Charts that compare several tables, by name (``real``, ``synthetic``). Private if any of the tables is
    private."""

    profiles: Annotated[Mapping[str, Profile], Field(max_length=50)]
    topics: Annotated[tuple[Topic, ...], Field(max_length=1000)]
    points: Annotated[tuple[Point, ...], Field(max_length=20_000)]


def make_overview(tables: Mapping[str, Sample], *, points: int = 1500, topics: int = 12, seed: int) -> Overview:
    """Return an overview of the tables, side by side. It depends on these tables only: for a public table it is public.

    Topics and map come from the tables' embeddings or, if a table has none, from the words of all. scikit-learn
    computes in one thread, so that its sums do not depend on the number of cores (on busy cores that is also faster:
    threads that waited for each other took ten times as long).

    Args:
        points: largest number of texts on the map; each table has the same share of it, sampled at random.
        topics: largest number of topics; with few texts there is one for every ten.
        seed: of the points, of k-means and of the map. The same seed gives the same overview on the same machine.
    """
    require_evaluate()
    import sklearn.cluster
    import sklearn.manifold  # noqa: F401  only libraries that are loaded can be limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        vectors = vectors_of(tables, seed=seed)
        found = find_topics(tables, vectors, topics, seed=seed)
        return Overview(profiles(tables), found, place_texts(tables, vectors, points, seed=seed))


def profiles(tables: Mapping[str, Sample]) -> dict[str, Profile]:
    """Return each table's profile. All tables share bins of a whole number of words.

    The bins reach just beyond the 99th percentile of all tables together: the few longer texts are not counted.
    """
    lengths = {name: np.array([len(text) for text in table.words], dtype=np.int64) for name, table in tables.items()}
    pooled = np.concatenate([*lengths.values(), np.zeros(1, dtype=np.int64)])
    far = math.ceil(np.quantile(pooled, 0.99)) + 1
    width = math.ceil(far / _BINS)
    edges = np.arange(0, far + width, width)
    return {
        name: Profile(
            len(table),
            Histogram(
                tuple(map(float, edges)),
                tuple(int(count) for count in np.histogram(lengths[name][lengths[name] < edges[-1]], edges)[0]),
            ),
            dict(sorted(Counter(table.labels or ()).items())),
            {**_shape_counts(table), **_cell_counts(table)},
        )
        for name, table in tables.items()
    }


_TURNS, _WORDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), (0, 1, 5, 10, 20, 40, 80, 160, 320)  # first values of bins


def _shape_counts(table: Sample) -> dict[str, dict[str, int]]:
    """Count, for texts with parts, their turns, who begins, acts, calls, and the lengths of parts, in public bins."""
    if table.parts is None:
        return {}
    return {
        title: dict(zip(names, np.bincount(values, minlength=len(names)).tolist(), strict=True))
        if names
        else _binned(values, _TURNS if title == TURNS else _WORDS)
        for title, names, values in table.shapes
    }


def _binned(values: NDArray[np.int64], edges: Sequence[int]) -> dict[str, int]:
    counts = np.bincount(np.searchsorted(np.array(edges), values, side="right") - 1, minlength=len(edges)).tolist()
    return dict(zip(bin_titles(edges), counts, strict=True))


def bin_titles(edges: Sequence[int]) -> list[str]:
    """Return the titles of bins of whole numbers, of which the last is open, by their first numbers.

    >>> bin_titles([0, 1, 5])
    ['0', '1 to 4', '5 or more']
    """
    pairs = ((low, after - 1) for low, after in pairwise(edges))
    return [*(f"{low}" if low == high else f"{low} to {high}" for low, high in pairs), f"{edges[-1]} or more"]


def _cell_counts(table: Sample) -> dict[str, dict[str, int]]:
    if table.cells is None:
        return {}
    counts = [np.bincount(table.cells[:, place], minlength=each.size) for place, each in enumerate(table.columns)]
    return {column.name: column.by_title(found.tolist()) for column, found in zip(table.columns, counts, strict=True)}


def vectors_of(tables: Mapping[str, Sample], *, seed: int) -> dict[str, NDArray[np.float32]]:
    """Return the embeddings of each table's texts if all have some, else vectors of latent semantic analysis.

    That is TF-IDF of the words of all tables, cut to 50 singular values.
    """
    known = {name: table.embeddings for name, table in tables.items() if table.embeddings is not None}
    if len(known) == len(tables):
        return known
    vectors = _from_words([text for table in tables.values() for text in table.words], seed)
    ends = np.cumsum([len(table) for table in tables.values()])
    return dict(zip(tables, np.split(vectors, ends[:-1]), strict=True))


def _from_words(words: Sequence[Sequence[str]], seed: int) -> NDArray[np.float32]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(words):
        return np.zeros((len(words), 1), dtype=np.float32)
    weights = TfidfVectorizer(analyzer=list, dtype=np.float32).fit_transform(words)
    if min(weights.shape) > _DIMENSIONS:
        return np.asarray(TruncatedSVD(_DIMENSIONS, random_state=seed).fit_transform(weights), dtype=np.float32)
    return np.asarray(weights.toarray(), dtype=np.float32)


def find_topics(
    tables: Mapping[str, Sample], vectors: Mapping[str, NDArray[np.float32]], most: int, *, seed: int
) -> tuple[Topic, ...]:
    """Cluster all tables' texts by k-means, with equal weight for each table. Return the topics, the largest first."""
    from sklearn.cluster import KMeans

    vectors = {name: of_table for name, of_table in vectors.items() if len(of_table)}
    if not vectors:
        return ()
    together = np.concatenate(list(vectors.values()))
    clusters = min(most, math.ceil(len(together) / _TEXTS_PER_TOPIC), len(np.unique(together, axis=0)))
    weights = np.concatenate([np.full(len(of_table), 1 / len(of_table)) for of_table in vectors.values()])
    model = KMeans(clusters, n_init=1, random_state=seed).fit(together, sample_weight=weights)
    ends = np.cumsum([len(of_table) for of_table in vectors.values()])
    by_table = dict(zip(vectors, np.split(model.labels_, ends[:-1]), strict=True))
    terms = topic_terms([text for name in vectors for text in tables[name].words], model.labels_)
    shares = {name: np.bincount(topics, minlength=clusters) / len(topics) for name, topics in by_table.items()}
    return tuple(
        Topic(terms[topic], {name: float(of_table[topic]) for name, of_table in shares.items()})
        for topic in sorted(terms, key=lambda topic: -sum(of_table[topic] for of_table in shares.values()))
    )


def topic_terms(words: Sequence[Sequence[str]], topics: NDArray[np.integer]) -> dict[int, tuple[str, ...]]:
    """Return the terms of each topic by class-based TF-IDF, ``tf(t, c) * log(1 + A / tf(t))``.

    tf(t, c) is how often term t occurs in topic c, tf(t) in all, A the mean number of terms in a topic. English stop
    words, lone letters and lone digits are not terms.

    Source: Grootendorst 2022, arXiv:2203.05794 (BERTopic), equation 2.
    """
    left_out = load_stop_words(None) | set(ascii_lowercase + digits)
    counts: dict[int, Counter[str]] = {}
    for text, topic in zip(words, topics.tolist(), strict=True):
        counts.setdefault(topic, Counter()).update(word for word in text if word not in left_out)
    everywhere: Counter[str] = sum(counts.values(), Counter())
    mean = everywhere.total() / max(len(counts), 1)
    weight = {term: math.log(1 + mean / count) for term, count in everywhere.items()}

    def heaviest(of_topic: Counter[str]) -> tuple[str, ...]:
        return tuple(sorted(of_topic, key=lambda term: (-of_topic[term] * weight[term], term))[:_TERMS])

    return {topic: heaviest(of_topic) for topic, of_topic in counts.items()}


def place_texts(
    tables: Mapping[str, Sample], vectors: Mapping[str, NDArray[np.float32]], points: int, *, seed: int
) -> tuple[Point, ...]:
    """Sample at most ``points`` texts, the same share of each table, and place them on the map."""
    shown = {
        of: replace(table, embeddings=vectors[of]).at_most(points // len(tables), seed=seed)
        for of, table in tables.items()
        if len(table)
    }
    if not shown:
        return ()
    texts = [
        (of, label, _shortened(text))
        for of, table in shown.items()
        for text, label in zip(table.texts, table.labels or [""] * len(table), strict=True)
    ]
    found = places(np.concatenate([table.embeddings for table in shown.values()]), seed=seed).tolist()
    return tuple(Point(x, y, of, label, text) for (x, y), (of, label, text) in zip(found, texts, strict=True))


def places(vectors: NDArray[np.float32], *, seed: int) -> NDArray[np.float64]:
    """Lay embeddings out in the plane for a scatter plot, as ``Float64[n, 2]`` in [0, 1]: t-SNE of their first 50
    principal components, or the first two components if there are fewer than 30 texts.

    Source: van der Maaten and Hinton 2008; starting from the principal components, as Kobak and Berens 2019 advise.
    """
    from sklearn.manifold import TSNE

    flat = principal(vectors, _DIMENSIONS)
    if len(flat) < _FEWEST or not flat.any():
        return _scaled(flat[:, :2])
    perplexity = min(_PERPLEXITY, (len(flat) - 1) / 3)
    return _scaled(TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(flat))


def principal(vectors: NDArray[np.float32], dimensions: int) -> NDArray[np.float64]:
    """Return the first principal components, ``Float64[n, dimensions]``, padded with zeros if there are fewer."""
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    known = int(np.sum(sizes[:dimensions] > 1e-6))
    found = np.zeros((len(vectors), dimensions))
    found[:, :known] = left[:, :known] * sizes[:known]
    return found


def _scaled(found: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scale both coordinates by one factor, so that everything is in the middle of the unit square."""
    low, high = found.min(axis=0), found.max(axis=0)
    widest = float((high - low).max()) or 1.0
    scaled: NDArray[np.float64] = np.clip(0.5 + (found - (low + high) / 2.0) / widest, 0.0, 1.0).astype(np.float64)
    return scaled


def _shortened(text: str) -> str:
    """Return at most 280 characters, all valid in UTF-8."""
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return short.encode("utf-8", "replace").decode("utf-8")
