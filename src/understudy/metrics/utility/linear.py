"""Logistic regression, on TF-IDF or on embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.sample import Sample
from understudy.metrics.utility.exact import ExactLinear

Predict = Callable[[Sample], NDArray[np.int64]]
"""From texts to the numbers of their classes; a text's class does not depend on the other texts."""

_C = 10.0
_MOST_WEIGHTS = 2_000_000  # terms times classes; the solver keeps about 20 copies of them


def fit_tfidf(train: Sample, targets: NDArray[np.int64]) -> Predict:
    """Logistic regression on the TF-IDF of words and pairs of words, ``(1 + ln count) idf``, scaled to length 1.

    The vocabulary is that of ``train`` alone: its most frequent terms, as many as make two million weights.

    Args:
        train: the texts.
        targets: ``Int64[len(train)]``, classes numbered 0, 1, ..., k - 1, each of which occurs, k at least 2.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    classes = int(targets.max()) + 1
    vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), max_features=max(1, _MOST_WEIGHTS // classes))
    analyze = vectorizer.build_analyzer()
    if not any(analyze(text) for text in train.texts):
        commonest = int(np.bincount(targets).argmax())
        return lambda sample: np.full(len(sample), commonest, dtype=np.int64)
    scores = _regression(vectorizer.fit_transform(train.texts), targets)

    def predict(sample: Sample) -> NDArray[np.int64]:
        return scores.highest(vectorizer.transform(sample.texts))

    return predict


def fit_embedding(train: Sample, targets: NDArray[np.int64]) -> Predict:
    """Logistic regression on embeddings; the arguments are those of :func:`fit_tfidf`."""
    scores = _regression(train.embeddings, targets)

    def predict(sample: Sample) -> NDArray[np.int64]:
        return scores.highest(sample.embeddings)

    return predict


def _regression(rows: Any, targets: NDArray[np.int64]) -> ExactLinear:
    """Multinomial logistic regression, C = 10, on rows of at most length 1."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=_C, max_iter=2000).fit(rows, targets)
    weights, bias = model.coef_.T, model.intercept_
    if weights.shape[1] == 1:  # two classes: the margin of the second
        weights, bias = np.hstack([0 * weights, weights]), np.array([0.0, bias[0]])
    return ExactLinear.rounded(weights, bias, reach=1.0)
