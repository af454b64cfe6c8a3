"""What the texts tell about their rows: each typed column predicted from the text, trained on one table and tested on
real rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import (
    ACCURACY,
    MACRO_F1,
    accuracy,
    accuracy_interval,
    macro_f1,
    macro_f1_interval,
    measure_classifiers,
    numbered,
)
from understudy.evaluate.metrics.value import MAJORITY, REAL, REAL_ALL, Metric, MetricValue

KIND = "tf-idf"
_HOW = (
    "Logistic regression on TF-IDF is trained on the texts of one table and their cells in this column, and tested on "
    "real rows; a number or a date is right in its bin. Where texts say nothing of a column, as many real texts do no "
    "better than the most frequent value."
)

COLUMN_ACCURACY = Metric(
    "column_accuracy",
    "Columns told from the text: accuracy",
    "utility",
    f"Share of the test rows whose cell is predicted right, in [0, 1]. {_HOW}",
    ACCURACY.source,
    "higher",
)
COLUMN_MACRO_F1 = Metric(
    "column_macro_f1",
    "Columns told from the text: macro F1",
    "utility",
    f"Mean over the cells of the test rows of the harmonic mean of precision and recall, in [0, 1]. {_HOW}",
    MACRO_F1.source,
    "higher",
)
_OF = {ACCURACY.name: COLUMN_ACCURACY, MACRO_F1.name: COLUMN_MACRO_F1}


def measure_columns(
    train_real: Sample, test_real: Sample, synthetic: Mapping[str, Sample], *, seed: int
) -> Iterator[MetricValue]:
    """Accuracy and macro F1 for every typed column, as
    :func:`~understudy.evaluate.metrics.utility.classifiers.measure_classifiers` has them for the label.

    Each is trained once on every table of ``synthetic``, on as many real rows as the largest of them has, at random
    (``real``, where there are more), and on all of them (``real (all)``). ``most frequent`` reads no text: it always
    gives the value that is most frequent among the real training rows.

    Args:
        train_real, test_real: real rows, with the same typed columns.
        synthetic: tables by name; those without typed columns are left out.
        seed: of which real rows are as many as the synthetic ones.
    """
    tables = {name: table for name, table in synthetic.items() if table.cells is not None}
    for place, column in enumerate(test_real.columns):
        train, test = _labelled(train_real, place), _labelled(test_real, place)
        values = _measure(train, test, {name: _labelled(table, place) for name, table in tables.items()}, seed)
        yield from (replace(each, settings={"column": column.name}) for each in values)


def _measure(train: Sample, test: Sample, synthetic: Mapping[str, Sample], seed: int) -> Iterator[MetricValue]:
    assert train.labels is not None
    assert test.labels is not None
    if len({*train.labels, *test.labels}) < 2:
        yield from (MetricValue(metric, None, note="All real rows have one value.") for metric in _OF.values())
        return
    as_many = train.at_most(max(map(len, synthetic.values()), default=0), seed=seed)
    fewer = {} if len(as_many) == len(train) else {REAL: as_many}
    tables = {**synthetic, **fewer, REAL_ALL: train}
    for each in measure_classifiers(None, test, tables, kinds=[KIND], seeds=1, seed=seed):
        yield replace(each, metric=_OF[each.metric.name])
    order = tuple(sorted({*train.labels, *test.labels}))
    truth = numbered(test.labels, order)
    frequent = np.bincount(numbered(train.labels, order)).argmax()
    guess = np.full_like(truth, frequent)
    yield MetricValue(COLUMN_ACCURACY, accuracy(truth, guess), MAJORITY, accuracy_interval(truth, [guess]))
    yield MetricValue(COLUMN_MACRO_F1, macro_f1(truth, guess), MAJORITY, macro_f1_interval(truth, [guess], seed=seed))


def _labelled(table: Sample, place: int) -> Sample:
    """The texts with the cells of one column for labels."""
    assert table.cells is not None
    return replace(table, labels=tuple(map(str, table.cells[:, place].tolist())))
