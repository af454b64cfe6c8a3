"""Topics: clusters of texts, and the words that tell them apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from string import ascii_lowercase, digits

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.picture import Topic
from understudy.metrics.sample import Sample
from understudy.vocabulary.terms import load_stop_words

_TERMS = 8
_TEXTS_A_TOPIC = 10


def find_topics(
    tables: Mapping[str, Sample], words: Mapping[str, Sequence[Sequence[str]]], most: int, *, seed: int
) -> tuple[Topic, ...]:
    """k-means of all tables' texts, in which each table weighs the same; the largest topic first.

    Args:
        tables: with embeddings.
        words: of each text, by table.
        most: the most topics; with few texts there is one for every ten.
        seed: of k-means.
    """
    from sklearn.cluster import KMeans

    vectors = {name: table.embeddings for name, table in tables.items() if table.embeddings is not None and len(table)}
    if not vectors:
        return ()
    together = np.concatenate(list(vectors.values()))
    clusters = min(most, math.ceil(len(together) / _TEXTS_A_TOPIC), len(np.unique(together, axis=0)))
    weights = np.concatenate([np.full(len(of_table), 1 / len(of_table)) for of_table in vectors.values()])
    model = KMeans(clusters, n_init=1, random_state=seed).fit(together, sample_weight=weights)
    ends = np.cumsum([len(of_table) for of_table in vectors.values()])
    by_table = dict(zip(vectors, np.split(model.labels_, ends[:-1]), strict=True))
    terms = topic_terms([text for name in vectors for text in words[name]], model.labels_)
    shares = {name: np.bincount(topics, minlength=clusters) / len(topics) for name, topics in by_table.items()}
    return tuple(
        Topic(terms[topic], {name: float(of_table[topic]) for name, of_table in shares.items()})
        for topic in sorted(terms, key=lambda topic: -sum(of_table[topic] for of_table in shares.values()))
    )


def topic_terms(words: Sequence[Sequence[str]], topics: NDArray[np.integer]) -> dict[int, tuple[str, ...]]:
    """The terms of each topic by class-based TF-IDF, ``tf(t, c) * log(1 + A / tf(t))``.

    tf(t, c) is how often term t stands in topic c, tf(t) in all, A the mean number of terms in a topic. English stop
    words, lone letters and lone digits are no terms.

    Source: Grootendorst 2022, arXiv:2203.05794 (BERTopic), equation 2.
    """
    left_out = load_stop_words(None) | set(ascii_lowercase + digits)
    counts: dict[int, Counter[str]] = {}
    for text, topic in zip(words, topics.tolist(), strict=True):
        counts.setdefault(topic, Counter()).update(word for word in text if word not in left_out)
    everywhere: Counter[str] = sum(counts.values(), Counter())
    mean = everywhere.total() / max(len(counts), 1)
    weight = {term: math.log(1 + mean / count) for term, count in everywhere.items()}
    return {topic: _heaviest(of_topic, weight) for topic, of_topic in counts.items()}


def _heaviest(counts: Counter[str], weight: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(sorted(counts, key=lambda term: (-counts[term] * weight[term], term))[:_TERMS])
