"""Train on synthetic, test on real: against as many real texts, and against all there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.metrics.sample import Sample
from understudy.metrics.utility.kinds import Kind, kind_named, numbered
from understudy.metrics.utility.scores import (
    ACCURACY,
    MACRO_F1,
    accuracy,
    accuracy_interval,
    macro_f1,
    macro_f1_interval,
)
from understudy.metrics.utility.tables import TrainingTable, training_tables
from understudy.metrics.value import Figure, Interval, Metric


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
) -> tuple[Figure, ...]:
    """Accuracy and macro F1 on real texts of classifiers that were trained on synthetic ones, and on real ones.

    Each kind is trained on every table of ``synthetic``; on as many real texts as the first of them has, label by
    label, drawn anew for each seed (``real``: what real texts of this number would do); and on all real texts (``real
    (all)``: the ceiling). No training reads a test text. What is deterministic is trained once.

    Args:
        train_real: real texts to train on; None leaves ``real`` and ``real (all)`` out.
        test_real: other real texts, with labels.
        synthetic: tables by name.
        kinds: of :data:`understudy.metrics.utility.kinds.KINDS`. ``embedding``, ``network`` and ``coral`` need
            embeddings in every table; ``encoder`` is slow.
        seeds: how many times to train what varies.
        seed: of everything random.
        recipient: unlabelled texts of those who will use the classifier, for ``coral``.
        encoder: the model that is tuned for ``encoder``: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER``.

    Returns:
        Of each table and kind the means over the seeds, with settings ``classifier`` and ``training texts``; intervals
        as :func:`understudy.metrics.utility.scores.accuracy_interval` has them. A table that cannot be trained on
        has None and a note.

    Raises:
        ConfigError: an unknown kind, no texts or no labels to test on, less than one seed, embeddings or a recipient
            that a kind needs and there are none.
        ModelError: the encoder cannot be loaded.
    """
    if seeds < 1:
        raise ConfigError(f"A classifier cannot be trained {seeds} times.", "Give one seed or more.")
    if test_real.labels is None or not len(test_real):
        raise ConfigError("There are no labelled real texts to test on.", "Give some, with the column of their labels.")
    chosen = [kind_named(name, recipient=recipient, encoder=encoder) for name in kinds]
    tables = training_tables(train_real, synthetic)
    for kind in chosen:
        kind.require(test_real, *(table.texts for table in tables))
    numbers = [int(each) for each in np.random.SeedSequence(seed).generate_state(seeds)]
    return tuple(each for table in tables for kind in chosen for each in _measure(table, test_real, kind, numbers))


def _measure(table: TrainingTable, test: Sample, kind: Kind, seeds: Sequence[int]) -> tuple[Figure, Figure]:
    """Accuracy and macro F1 of one kind, trained on one table."""
    assert test.labels is not None
    if not kind.random and table.counts is None:
        seeds = seeds[:1]
    drawn = [table.draw(seed) for seed in seeds]
    note = _note(drawn[0], test, table)
    settings: dict[str, str | int | float] = {"classifier": kind.name, "training texts": len(drawn[0])}

    def figure(metric: Metric, value: float | None, interval: Interval | None) -> Figure:
        return Figure(metric, value, table.of, interval, settings, note)

    if drawn[0].labels is None or not len(drawn[0]):
        return figure(ACCURACY, None, None), figure(MACRO_F1, None, None)
    order = tuple(sorted({*test.labels, *drawn[0].labels}))
    truth = numbered(test.labels, order)
    predictions: list[NDArray[np.int64]] = []
    for texts, seed in zip(drawn, seeds, strict=True):
        labels, predict = kind.train(texts, seed=seed)
        predictions.append(numbered(labels, order)[predict(test)])
    return (
        figure(
            ACCURACY,
            float(np.mean([accuracy(truth, each) for each in predictions])),
            accuracy_interval(truth, predictions),
        ),
        figure(
            MACRO_F1,
            float(np.mean([macro_f1(truth, each) for each in predictions])),
            macro_f1_interval(truth, predictions, seed=seeds[0]),
        ),
    )


def _note(train: Sample, test: Sample, table: TrainingTable) -> str:
    """What is unusual about the training texts, in a sentence; empty where nothing is."""
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
        remarks.append(f"{len(given - wanted)} labels of the training texts are none of the test's")
    if table.counts is not None and len(train) < sum(table.counts.values()):
        remarks.append("there are fewer real texts of some labels than synthetic ones")
    joined = "; ".join(remarks)
    return f"{joined[:1].upper()}{joined[1:]}." if joined else ""
