"""Train on synthetic texts, test on real ones; compared with training on as many real texts, and on all of them.

The targets are the label and, for what the texts reveal about their rows, each typed column."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.evaluate.metrics.intervals import bootstrap, over_seeds, wilson_interval
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.fitting import Predict, fit_embedding, fit_encoder, fit_network, fit_tfidf
from understudy.evaluate.metrics.value import MAJORITY, REAL, REAL_ALL, Interval, MetricValue, metric_named

ACCURACY = metric_named("accuracy")
MACRO_F1 = metric_named("macro_f1")

KINDS = ("tf-idf", "embedding", "network", "coral", "encoder")
"""Logistic regression on TF-IDF, on embeddings; three layers on embeddings, without and with Deep CORAL; an encoder."""

Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """A way to train a classifier.

    Args:
        fit: from texts and their classes (``Int64[n]``, numbered without gaps, two or more); with a ``seed`` if random.
    """

    name: str
    fit: Callable[..., Predict]
    embeddings: bool
    random: bool

    def train(self, texts: Sample, *, seed: int) -> tuple[tuple[str, ...], Predict]:
        """Train a classifier. Return the labels in order, and a function that answers texts with the numbers of their
        labels.

        Guarantee
            Training reads ``texts`` and nothing else. A text's answer then depends on that text (its embedding, if this
            kind reads those) alone, bit for bit, not on other texts: so one record moves a count of right answers by at
            most 1. This does not hold for the kind ``encoder``.

        Args:
            texts: one or more, with labels. With a single label, the classifier always answers it.
        """
        assert texts.labels is not None
        labels = tuple(sorted(set(texts.labels)))
        if len(labels) == 1:
            return labels, lambda sample: np.zeros(len(sample), dtype=np.int64)
        targets = numbered(texts.labels, labels)
        predict = self.fit(texts, targets, seed=seed) if self.random else self.fit(texts, targets)
        return labels, lambda sample: predict(sample) if len(sample) else np.zeros(0, dtype=np.int64)

    def require(self, *samples: Sample) -> None:
        """Raise ConfigError if the samples lack something that this kind of classifier needs, such as embeddings."""
        if self.embeddings and any(sample.embeddings is None for sample in samples):
            raise ConfigError(
                f"The classifier {self.name!r} needs embeddings, but a table has none.",
                "Name an embedder, or choose the classifier 'tf-idf'.",
            )


def kind_named(name: str, *, recipient: Sample | None = None, encoder: str = "builtin") -> Kind:
    """Return the kind of that name; ``recipient`` is for ``coral``, ``encoder`` for ``encoder``.

    Raises ConfigError if the name is unknown, or ``coral`` has no recipient.
    """
    if name not in KINDS:
        raise ConfigError(f"There is no classifier {name!r}.", f"Known ones are: {', '.join(KINDS)}.")
    if name == "coral" and (recipient is None or not len(recipient)):
        raise ConfigError(
            "The classifier 'coral' needs unlabelled texts of the recipient.", "Give some, or choose 'network'."
        )
    fits: dict[str, Callable[..., Predict]] = {
        "tf-idf": fit_tfidf,
        "embedding": fit_embedding,
        "network": fit_network,
        "coral": partial(fit_network, recipient=recipient),
        "encoder": partial(fit_encoder, encoder=encoder),
    }
    on_words = ("tf-idf", "encoder")
    kind = Kind(name, fits[name], embeddings=name not in on_words, random=name not in ("tf-idf", "embedding"))
    if name == "coral" and recipient is not None:
        kind.require(recipient)
    return kind


def numbered(labels: tuple[str, ...], order: tuple[str, ...]) -> NDArray[np.int64]:
    """Return each label's index in ``order``, ``Int64[len(labels)]``."""
    places = {label: place for place, label in enumerate(order)}
    return np.array([places[label] for label in labels], dtype=np.int64)


@dataclass(frozen=True)
class TrainingTable:
    """Texts to train on: all of them, or ``counts`` of each label, sampled again for each seed."""

    of: str
    texts: Sample
    counts: Mapping[str, int] | None = None

    def sample(self, seed: int) -> Sample:
        """Return the texts of one training: all, or ``counts`` of each label without replacement (or all, if fewer)."""
        if self.counts is None or self.texts.labels is None:
            return self.texts
        generator = np.random.default_rng(seed)
        labels = np.array(self.texts.labels, dtype=object)
        rows: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        for label, count in sorted(self.counts.items()):
            there = np.flatnonzero(labels == label)
            rows.append(generator.permutation(there)[:count])
        return self.texts.take(np.concatenate(rows))


def training_tables(real: Sample | None, synthetic: Mapping[str, Sample]) -> list[TrainingTable]:
    """Return the tables to train on: each synthetic one; as many real texts as the first of them has per label; all
    real texts."""
    tables = [TrainingTable(name, texts) for name, texts in synthetic.items()]
    if real is None:
        return tables
    first = next(iter(synthetic.values()), None)
    if first is not None and first.labels is not None:
        tables.append(TrainingTable(REAL, real, Counter(first.labels)))
    return [*tables, TrainingTable(REAL_ALL, real)]


def accuracy(truth: Classes, predicted: Classes) -> float:
    """Return the share of equal entries of two ``Int64[n]``."""
    return float(np.mean(truth == predicted))


def macro_f1(truth: Classes, predicted: Classes) -> float:
    """Return the mean F1 over the classes that occur in ``truth``: ``2 TP / (2 TP + FP + FN)`` of each."""
    classes = int(max(truth.max(), predicted.max())) + 1
    true = np.bincount(truth, minlength=classes)
    given = np.bincount(predicted, minlength=classes)
    right = np.bincount(truth[truth == predicted], minlength=classes)
    there = true > 0
    return float(np.mean(2 * right[there] / (true[there] + given[there])))


def accuracy_interval(truth: Classes, predictions: Sequence[Classes]) -> Interval:
    """Return the interval of the mean accuracy of several classifiers, given the predictions ``Int64[n]`` of each.

    Two things vary: the classifier (its seed, and its real texts), and the test texts. The first has Student's t
    interval over the classifiers, the second Wilson's over the test texts: a text is right in a share of the
    classifiers, and such shares vary no more than right and wrong do. As the two are independent, their half-widths are
    added in quadrature (Zou and Donner 2008). Seeds alone would ignore the test's size, test texts alone the seed's
    randomness.

    Not included: another run of the method would have made other synthetic texts.
    """
    values = [accuracy(truth, predicted) for predicted in predictions]
    mean = float(np.mean(values))
    wilson = wilson_interval(round(mean * len(truth)), len(truth))
    return _together(mean, [wilson, over_seeds(values)])


def macro_f1_interval(truth: Classes, predictions: Sequence[Classes], *, seed: int) -> Interval:
    """Return the interval of the mean macro F1, as :func:`accuracy_interval`, with a bootstrap over the test texts."""

    def mean(rows: NDArray[np.int64]) -> float:
        return float(np.mean([macro_f1(truth[rows], predicted[rows]) for predicted in predictions]))

    texts = bootstrap(mean, len(truth), seed=seed, over="the test texts")
    values = [macro_f1(truth, predicted) for predicted in predictions]
    return _together(float(np.mean(values)), [texts, over_seeds(values)])


def _together(value: float, parts: Sequence[Interval | None]) -> Interval:
    """Return the interval of ``value`` in [0, 1] from the intervals of independent sources of error."""
    known = [part for part in parts if part is not None]
    below = math.hypot(*(max(0.0, value - part.low) for part in known))
    above = math.hypot(*(max(0.0, part.high - value) for part in known))
    method = " and ".join(part.method for part in known)
    return Interval(max(0.0, value - below), min(1.0, value + above), method)


def measure_classifiers(
    train_real: Sample | None,
    test_real: Sample,
    synthetic: Mapping[str, Sample],
    *,
    kinds: Sequence[str] = ("tf-idf", "embedding"),
    seeds: int = 5,
    seed: int = 0,
    recipient: Sample | None = None,
    encoder: str = "builtin",
) -> tuple[MetricValue, ...]:
    """Return accuracy and macro F1 on real texts of classifiers trained on synthetic ones, and on real ones.

    Each kind is trained on every table of ``synthetic``; on as many real texts as the first of them has, label by
    label, sampled for each seed (``real``: the result of equally many real texts); and on all real texts (``real
    (all)``: the ceiling). No training reads a test text. Deterministic kinds are trained once.

    Args:
        kinds: of :data:`understudy.evaluate.metrics.utility.classifiers.KINDS`. ``embedding``, ``network`` and
            ``coral`` need embeddings in every table; ``encoder`` is slow.
        recipient: unlabelled texts of the classifier's future users, for ``coral``.
        encoder: the model that is tuned for ``encoder``: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER``.

    Returns:
        For each table and kind, the means over the seeds, with settings ``classifier`` and ``training texts``;
        intervals as :func:`understudy.evaluate.metrics.utility.classifiers.accuracy_interval` has them. A table that
        cannot be trained on has None and a note.
    """
    if test_real.labels is None or not len(test_real):
        raise ConfigError("There are no labelled real texts to test on.", "Give some, with the column of their labels.")
    chosen = [kind_named(name, recipient=recipient, encoder=encoder) for name in kinds]
    tables = training_tables(train_real, synthetic)
    for kind in chosen:
        kind.require(test_real, *(table.texts for table in tables))
    numbers = [int(each) for each in np.random.SeedSequence(seed).generate_state(seeds)]
    return tuple(each for table in tables for kind in chosen for each in _measure(table, test_real, kind, numbers))


def _measure(table: TrainingTable, test: Sample, kind: Kind, seeds: Sequence[int]) -> list[MetricValue]:
    assert test.labels is not None
    if not kind.random and table.counts is None:
        seeds = seeds[:1]
    trained = [table.sample(seed) for seed in seeds]
    first, size = trained[0], len(trained[0])
    order = tuple(sorted({*test.labels, *(first.labels or ())}))
    predictions: list[Classes] = []
    for texts, seed in zip(trained, seeds, strict=True) if first.labels is not None and size else ():
        labels, predict = kind.train(texts, seed=seed)
        predictions.append(numbered(labels, order)[predict(test)])
    values = _scored(numbered(test.labels, order), predictions, table.of, seed=seeds[0])
    settings, note = {"classifier": kind.name}, _note(first, test, table)
    return [replace(each, settings=settings, note=note, sample_size=size) for each in values]


def _scored(truth: Classes, predictions: Sequence[Classes], of: str, *, seed: int) -> list[MetricValue]:
    """Return accuracy and macro F1, the means over all predictions; without values if there are none."""
    if not predictions:
        return [MetricValue(metric, None, of) for metric in (ACCURACY, MACRO_F1)]
    means = [float(np.mean([score(truth, each) for each in predictions])) for score in (accuracy, macro_f1)]
    return [
        MetricValue(ACCURACY, means[0], of, accuracy_interval(truth, predictions)),
        MetricValue(MACRO_F1, means[1], of, macro_f1_interval(truth, predictions, seed=seed)),
    ]


def _note(train: Sample, test: Sample, table: TrainingTable) -> str:
    assert test.labels is not None
    if not len(train):
        return "There are no texts to train on."
    if train.labels is None:
        return "The texts have no labels to train on."
    given, wanted = set(train.labels), set(test.labels)
    remarks = []
    if len(given) == 1:
        remarks.append("all training texts have one label, which the classifier always gives")
    elif wanted - given:
        remarks.append(f"{len(wanted - given)} of {len(wanted)} labels of the test have no training text")
    if given - wanted:
        remarks.append(f"labels of the training texts that are not in the test: {len(given - wanted)}")
    if table.counts is not None and len(train) < sum(table.counts.values()):
        remarks.append("there are fewer real texts of some labels than synthetic ones")
    joined = "; ".join(remarks)
    return f"{joined[:1].upper()}{joined[1:]}." if joined else ""


KIND = "tf-idf"

COLUMN_ACCURACY = metric_named("column_accuracy")
COLUMN_MACRO_F1 = metric_named("column_macro_f1")
_OF = {ACCURACY.name: COLUMN_ACCURACY, MACRO_F1.name: COLUMN_MACRO_F1}


def measure_columns(
    train_real: Sample, test_real: Sample, synthetic: Mapping[str, Sample], *, seed: int
) -> Iterator[MetricValue]:
    """Return accuracy and macro F1 for every typed column, as
    :func:`~understudy.evaluate.metrics.utility.classifiers.measure_classifiers` has them for the label.

    Each is trained once on every table of ``synthetic``, on as many real rows as the largest of them has, at random
    (``real``, if there are more), and on all of them (``real (all)``). ``most frequent`` reads no text: it always
    gives the value that is most frequent among the real training rows.
    """
    tables = {name: table for name, table in synthetic.items() if table.cells is not None}
    for place, column in enumerate(test_real.columns):
        train, test = _labelled(train_real, place), _labelled(test_real, place)
        values = _measure_column(train, test, {name: _labelled(table, place) for name, table in tables.items()}, seed)
        yield from (replace(each, settings={"column": column.name}) for each in values)


def _measure_column(train: Sample, test: Sample, synthetic: Mapping[str, Sample], seed: int) -> Iterator[MetricValue]:
    assert train.labels is not None
    assert test.labels is not None
    if len({*train.labels, *test.labels}) < 2:
        yield from (MetricValue(metric, None, note="All real rows have one value.") for metric in _OF.values())
        return
    as_many = train.at_most(max(map(len, synthetic.values()), default=0), seed=seed)
    fewer = {} if len(as_many) == len(train) else {REAL: as_many}
    tables = {**synthetic, **fewer, REAL_ALL: train}
    order = tuple(sorted({*train.labels, *test.labels}))
    truth, most = numbered(test.labels, order), np.bincount(numbered(train.labels, order)).argmax()
    trained = measure_classifiers(None, test, tables, kinds=[KIND], seeds=1, seed=seed)
    for each in (*trained, *_scored(truth, [np.full_like(truth, most)], MAJORITY, seed=seed)):
        yield replace(each, metric=_OF[each.metric.name])


def _labelled(table: Sample, place: int) -> Sample:
    assert table.cells is not None
    return replace(table, labels=tuple(map(str, table.cells[:, place].tolist())))
