"""Cheap gauges of short texts: do they look like language, like the set, like their label?

``words`` and ``pairs``: the share of words that stand in a public word list, and of neighbouring words that stand side
by side somewhere in the training splits of several sets. ``near``: mean cosine of a text's embedding to the nearest of
4,000 real training texts. ``right label``: how often a classifier trained on real texts tells the label asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.sets import DATA, VOCABULARIES, embed, embedder

_WORD = re.compile(r"[^\W_]+")
_PAIR_SETS = ("ag_news", "dbpedia14", "wikimovies", "yelp_augpe", "mit_movies")
_NEAR = 4000


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


@cache
def _vocabulary() -> frozenset[str]:
    terms = pq.read_table(VOCABULARIES / "wordfreq_en_large.parquet", columns=["term"]).column("term").to_pylist()
    return frozenset(term.casefold() for term in terms)


@cache
def _pairs() -> frozenset[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for name in _PAIR_SETS:
        for text in pq.read_table(DATA / name / "train.parquet", columns=["text"]).column("text").to_pylist():
            words = _words(text)
            found.update(pairwise(words))
    return frozenset(found)


def known_words(texts: Sequence[str]) -> float:
    """Share of words (not numbers) in the public list."""
    words = [word for text in texts for word in _words(text) if not word.isdigit()]
    return float(np.mean([word in _vocabulary() for word in words])) if words else float("nan")


def known_pairs(texts: Sequence[str]) -> float:
    """Share of neighbouring words that some training text has too."""
    pairs = [pair for text in texts for pair in pairwise(_words(text))]
    return float(np.mean([pair in _pairs() for pair in pairs])) if pairs else float("nan")


def nearness(texts: Sequence[str], real: Sequence[str]) -> float:
    """Mean cosine to the nearest of the first 4,000 real texts."""
    if not texts:
        return float("nan")
    near = embedder().embed(list(texts)) @ embed(list(real[:_NEAR])).T
    return float(near.max(axis=1).mean())


@cache
def _classifier(texts: tuple[str, ...], labels: tuple[str, ...]) -> Pipeline:
    return make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2)), LogisticRegression(max_iter=1000, C=10.0)
    ).fit(texts, labels)


def right_label(texts: Sequence[str], labels: Sequence[str], real: Sequence[str], real_labels: Sequence[str]) -> float:
    """Accuracy on ``texts`` of a classifier (TF-IDF, logistic regression) of the real ones."""
    return float(_classifier(tuple(real), tuple(real_labels)).score(texts, labels)) if texts else float("nan")
