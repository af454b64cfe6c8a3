"""Linear classifiers whose answer for one text never depends on the texts beside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics.sample import Sample

_GRID = 2.0**22
"""Rows and columns are at most this long in steps: a product is at most 2^44 and a little, for what rounding adds to a
length. A row that is longer than it should be is clipped: with d coordinates of at most 2^22 a product is at most
sqrt(d) 2^44. Up to d = 2^17 all are below the 2^53 that float64 holds exactly."""


@dataclass(frozen=True)
class ExactLinear:
    """``x W + b`` for rows ``x``, in sums that are exact.

    Floating-point products round differently in another block, thread or kernel, so that a record can turn the
    prediction of its neighbour, and then one record moves a count of right predictions by more than 1. Here rows and
    weights are rounded to integers of which float64 holds every partial sum, whatever the order; all else is done
    element by element.

    Args:
        weights: ``Float64[d, k]``, integers.
        bias: ``Float64[k]``.
        row_step, weight_step: powers of two by which rows are, and weights were, multiplied.
        reach: no row of results is longer (L2), if no row ``x`` is longer than what this was made for.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    row_step: float
    weight_step: float
    reach: float

    @classmethod
    def rounded(cls, weights: NDArray[Any], bias: NDArray[Any], *, reach: float) -> ExactLinear:
        """The layer of ``Float[d, k]`` and ``Float[k]``, for rows of at most ``reach`` (L2)."""
        lengths = np.sqrt((weights.astype(np.float64) ** 2).sum(0))
        row_step, weight_step = _step(reach), _step(float(lengths.max(initial=0.0)))
        return cls(
            np.rint(weights.astype(np.float64) * weight_step),
            bias.astype(np.float64),
            row_step,
            weight_step,
            float(np.linalg.norm(lengths * reach + np.abs(bias))),
        )

    def __call__(self, rows: Any) -> NDArray[np.float64]:
        """``Float64[n, k]`` of ``rows``: ``Float[n, d]``, an array, or a sparse one with rows as long as said."""
        scaled = rows.astype(np.float64) * self.row_step
        steps = np.rint(scaled).clip(-_GRID, _GRID) if isinstance(scaled, np.ndarray) else scaled.rint()
        return np.asarray(steps @ self.weights) / (self.row_step * self.weight_step) + self.bias

    def highest(self, rows: Any) -> NDArray[np.int64]:
        """The first column with the highest result of each row, ``Int64[n]``."""
        found: NDArray[np.int64] = np.argmax(self(rows), axis=1)
        return found


def _step(length: float) -> float:
    """The power of two that brings ``length`` to at most the grid."""
    return 2.0 ** math.floor(math.log2(_GRID / max(length, 1e-12)))


Predict = Callable[[Sample], NDArray[np.int64]]
"""From texts to the numbers of their classes; a text's class does not depend on the other texts."""

_C = 10.0
_MOST_WEIGHTS = 2_000_000  # terms times classes; the solver keeps about 20 copies of them


def fit_tfidf(train: Sample, targets: NDArray[np.int64]) -> Predict:
    """Logistic regression on the TF-IDF of words and pairs of words, ``(1 + ln count) idf``, scaled to length 1.

    The vocabulary is that of ``train`` alone: its most frequent terms, as many as make two million weights.

    Args:
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
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=_C, max_iter=2000).fit(rows, targets)
    weights, bias = model.coef_.T, model.intercept_
    if weights.shape[1] == 1:  # two classes: the margin of the second
        weights, bias = np.hstack([0 * weights, weights]), np.array([0.0, bias[0]])
    return ExactLinear.rounded(weights, bias, reach=1.0)
