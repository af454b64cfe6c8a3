"""Accuracy and macro F1, with their intervals over training seeds and test texts together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.intervals import bootstrap, of_share, over_seeds
from understudy.metrics.value import Interval, Metric

_HOW = (
    "A classifier is trained on the texts of one table and tested on real texts. Compare synthetic training texts with "
    "as many real ones."
)
_SOURCE = "train on synthetic, test on real: Esteban, Hyland and Rätsch 2017"

ACCURACY = Metric(
    name="accuracy",
    title="Accuracy on real texts",
    family="utility",
    definition=f"Share of the test texts whose label is predicted right, in [0, 1]. {_HOW}",
    source=_SOURCE,
    better="higher",
)
MACRO_F1 = Metric(
    name="macro_f1",
    title="Macro F1 on real texts",
    family="utility",
    definition="Mean over the labels of the test texts of the harmonic mean of precision and recall, in [0, 1]; every "
    f"label weighs the same. {_HOW}",
    source=_SOURCE,
    better="higher",
)

Classes = NDArray[np.int64]


def accuracy(truth: Classes, predicted: Classes) -> float:
    """Share of equal entries of two ``Int64[n]``."""
    return float(np.mean(truth == predicted))


def macro_f1(truth: Classes, predicted: Classes) -> float:
    """Mean F1 over the classes that occur in ``truth``: ``2 TP / (2 TP + FP + FN)`` of each.

    Args:
        truth, predicted: ``Int64[n]``, numbers of classes, n at least 1.
    """
    classes = int(max(truth.max(), predicted.max())) + 1
    true = np.bincount(truth, minlength=classes)
    given = np.bincount(predicted, minlength=classes)
    right = np.bincount(truth[truth == predicted], minlength=classes)
    there = true > 0
    return float(np.mean(2 * right[there] / (true[there] + given[there])))


def accuracy_interval(truth: Classes, predictions: Sequence[Classes]) -> Interval:
    """The interval of the mean accuracy of several trained classifiers, one ``Int64[n]`` of predictions each.

    Two things vary: the classifier (its seed, and which real texts it was given), and which texts were drawn for the
    test. The first has Student's t interval over the classifiers, the second Wilson's over the test texts: a text is
    right in a share of the classifiers, and such shares vary no more than right and wrong do. As the two are
    independent, their reaches are added as the sides of a right triangle (Zou and Donner 2008). Seeds
    alone would ignore the test's size, test texts alone the luck of a seed.

    What it leaves out: another run of the method would have made other synthetic texts.
    """
    values = [accuracy(truth, predicted) for predicted in predictions]
    mean = float(np.mean(values))
    wilson = of_share(round(mean * len(truth)), len(truth))
    return _together(mean, [wilson, over_seeds(values)])


def macro_f1_interval(truth: Classes, predictions: Sequence[Classes], *, seed: int) -> Interval:
    """That of the mean macro F1, as :func:`accuracy_interval`, with a bootstrap over the test texts."""

    def mean(rows: NDArray[np.int64]) -> float:
        return float(np.mean([macro_f1(truth[rows], predicted[rows]) for predicted in predictions]))

    texts = bootstrap(mean, len(truth), seed=seed, over="the test texts")
    values = [macro_f1(truth, predicted) for predicted in predictions]
    return _together(float(np.mean(values)), [texts, over_seeds(values)])


def _together(value: float, parts: Sequence[Interval | None]) -> Interval:
    """The interval of ``value`` in [0, 1] when independent sources of error have intervals of their own."""
    known = [part for part in parts if part is not None]
    below = math.hypot(*(max(0.0, value - part.low) for part in known))
    above = math.hypot(*(max(0.0, part.high - value) for part in known))
    method = " and ".join(part.method for part in known)
    return Interval(max(0.0, value - below), min(1.0, value + above), method)
