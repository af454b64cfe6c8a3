"""Metrics of how similar the synthetic table as a whole is to the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.fidelity import embeddings, texts
from understudy.evaluate.metrics.fidelity.texts import Ints, length_ks, total_variation
from understudy.evaluate.metrics.intervals import (
    LEAST_TO_TELL,
    between_subsamples,
    value_of_subsamples,
    whole_and_subsamples,
)
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import (
    HOLDOUT,
    OTHER_HALF,
    REAL,
    SYNTHETIC,
    Metric,
    MetricValue,
    Setting,
    metric_named,
)
from understudy.methods.shared.decoding.structured import JSONSchema
from understudy.schema import transcript
from understudy.text.vocabulary.words import split_words

__all__ = ["measure_fidelity"]

Measure = Callable[..., Iterable[MetricValue]]
Tables = Mapping[str, Any]
"""A value of each table, by the table's name."""


def measure_fidelity(
    real: Sample,
    synthetic: Sample,
    *,
    holdout: Sample | None,
    schema: JSONSchema | None,
    seed: int,
    resamples: int = 100,
) -> tuple[MetricValue, ...]:
    """Measure how similar the synthetic texts are to the real ones, and other real texts to these for comparison.

    Metrics of embeddings are left out if a table has none, and likewise those of labels, typed columns and JSON. A
    metric that the tables are too small for has the value None.

    Args:
        holdout: real texts that the synthetic ones were not made from: the best possible values at this size. Without
            it, columns are compared with one half of the real rows, and the other half is the reference.
        resamples: per interval: subsamples (of self-BLEU: bootstrap samples).
    """
    require_evaluate()
    from threadpoolctl import threadpool_limits

    tables = {REAL: real, SYNTHETIC: synthetic} | ({} if holdout is None else {HOLDOUT: holdout})
    fewest, cut = min(map(len, tables.values())), _equally_many(tables, seed)
    uneven = any(len(table) > fewest for table in tables.values())
    sampling = {"seed": seed, "resamples": resamples}
    placed, placed_cut = ({of: t for of, t in each.items() if t.embeddings is not None} for each in (tables, cut))
    words, words_cut = ({of: table.words for of, table in each.items()} for each in (tables, cut))
    lengths = {of: np.asarray([len(text) for text in each], np.int64) for of, each in words_cut.items()}
    labels = {of: table.labels for of, table in tables.items() if table.labels}
    labels_cut = {of: table.labels for of, table in cut.items() if table.labels is not None}
    whole = {of: table.texts for of, table in tables.items()}
    typed = {of: table for of, table in tables.items() if table.cells is not None}
    rows = _equally_many(_with_others(typed, seed), seed)
    parted = {of: table for of, table in tables.items() if table.parts is not None}
    total = min(sum(map(len, each)) for each in words.values())
    names = sorted({label for each in labels.values() for label in each})
    near = [embeddings.PRECISION, embeddings.RECALL, embeddings.DENSITY, embeddings.COVERAGE]
    clusters = [embeddings.MAUVE, embeddings.FRONTIER]
    valid = [texts.JSON_PARSED, texts.JSON_VALID]

    def on_equal_sizes(
        cut_tables: Tables, metrics: Sequence[Metric], measure: Measure, least: int = 2
    ) -> Iterator[MetricValue]:
        values = _against_real(cut_tables, metrics, measure, sampling, least)
        return (replace(each, sample_size=fewest) if uneven else each for each in values)

    of_columns = _against_real(rows, [texts.PAIRS_MEAN, texts.PAIRS_LARGEST], texts.column_values, sampling)
    # Many small products: BLAS threads gain nothing, wait for each other on a busy machine, and round differently.
    with threadpool_limits(1, user_api="blas"):
        return (
            *on_equal_sizes(placed_cut, [embeddings.FRECHET], embeddings.frechet_values),
            *on_equal_sizes(placed_cut, clusters, embeddings.mauve_values, LEAST_TO_TELL),
            *on_equal_sizes(placed_cut, near, embeddings.neighbour_values, LEAST_TO_TELL),
            *_against_real(placed, [embeddings.KERNEL], embeddings.kernel_values, sampling),
            *on_equal_sizes(lengths, [texts.LENGTH_JS, texts.LENGTH_KS], texts.length_values),
            *on_equal_sizes(words_cut, [texts.VOCABULARY], texts.vocabulary_values),
            *_each(words, [texts.DISTINCT], texts.distinct_values, {**sampling, "total": total}),
            *_each(whole, [texts.SELF_BLEU], texts.self_bleu_values, sampling),
            *on_equal_sizes(labels_cut, [texts.LABEL_DISTANCE], texts.label_distance_values),
            *_each(labels, [], texts.label_share_values, {"names": names}, least=1),
            *(replace(each, sample_size=len(rows[REAL])) for each in of_columns),
            *_against_real(_with_others(parted, seed), [], shape_values, sampling),
            *_each(parted, [BELONGING], belonging_values, sampling),
            *_each(whole if schema is not None else {}, valid, texts.validity_values, {"schema": schema}, least=1),
        )


def _with_others(tables: Mapping[str, Sample], seed: int) -> Mapping[str, Sample]:
    """Return the tables with other real texts as a yardstick: the held-out ones, or one half of the real ones, whose
    other half is then compared. Empty unless there are real and synthetic texts."""
    if not {REAL, SYNTHETIC} <= tables.keys():
        return {}
    if HOLDOUT in tables:
        return tables
    first, second = tables[REAL].halves(seed=seed)
    return {**tables, REAL: first, OTHER_HALF: second}


def _equally_many(tables: Mapping[str, Sample], seed: int) -> dict[str, Sample]:
    fewest = min(map(len, tables.values()), default=0)
    return {of: table.at_most(fewest, seed=seed) for of, table in tables.items()}


def _against_real(
    tables: Tables, metrics: Sequence[Metric], measure: Measure, more: Mapping[str, Any], least: int = 2
) -> Iterator[MetricValue]:
    real = tables.get(REAL)
    for of, table in tables.items():
        if real is None or of == REAL:
            continue
        if min(len(real), len(table)) < least:
            yield from _too_few(metrics, of, least)
        else:
            yield from measure(real, table, of=of, **more)


def _each(
    tables: Tables, metrics: Sequence[Metric], measure: Measure, more: Mapping[str, Any], least: int = 2
) -> Iterator[MetricValue]:
    for of, table in tables.items():
        yield from _too_few(metrics, of, least) if len(table) < least else measure(table, of, **more)


def _too_few(metrics: Sequence[Metric], of: str, least: int) -> Iterator[MetricValue]:
    note = f"Needs at least {least} texts of a table: fewer mean nothing."
    return (MetricValue(metric, None, of, note=note) for metric in metrics)


PART_LENGTH = metric_named("part_length_ks")
BELONGING = metric_named("parts_belonging")
TURNS, BEGINS = metric_named("turns_ks"), metric_named("begins_distance")
ACTS, CALLS = metric_named("acts_distance"), metric_named("calls_distance")
_OF_SHAPES = {transcript.TURNS: TURNS, transcript.BEGINS: BEGINS, "acts": ACTS, transcript.CALLS: CALLS}


def shape_values(real: Sample, other: Sample, *, of: str, **sampling: int) -> Iterator[MetricValue]:
    """Yield the distances between two tables whose texts have the same parts (such as turns), each of two records or
    more."""
    for (title, names, ours), (*_, theirs) in zip(real.shapes, other.shapes, strict=True):
        metric, settings = _OF_SHAPES.get(title, PART_LENGTH), dict[str, Setting]()
        if metric is PART_LENGTH:
            settings["part"] = title.removeprefix("words of ")
        if min(len(ours), len(theirs)) < 2:
            yield MetricValue(metric, None, of, settings=settings, note="Needs at least 2 such parts of a table.")
            continue
        statistic = partial(total_variation, labels=len(names)) if names else length_ks
        yield between_subsamples(metric, statistic, ours, theirs, of, high=1.0, settings=settings, **sampling)


def belonging_values(table: Sample, of: str, *, seed: int, resamples: int) -> Iterator[MetricValue]:
    """Yield how much better neighbouring parts of a record fit together than parts of different records."""
    assert table.parts is not None
    for one, other in pairwise(table.form.fields) if table.form.fields else [("", "")]:
        found = [
            (number, (first[0], second[0]), first[1], second[1])
            for number, parts in enumerate(table.parts)
            for first, second in pairwise(parts)
            if first[1] and second[1] and (first[0], second[0]) == ((one, other) if one else (first[0], second[0]))
        ]
        settings: dict[str, Setting] = {"part": one, "other": other} if one else {}
        yield _belonging(found, len(table), of, settings, seed=seed, resamples=resamples)


def _belonging(
    pairs: Sequence[tuple[int, tuple[str, str], str, str]],
    size: int,
    of: str,
    settings: dict[str, Setting],
    *,
    seed: int,
    resamples: int,
) -> MetricValue:
    """Return the value for pairs of a part and the next: their records, their names, and their texts."""
    records = np.array([number for number, *_ in pairs], dtype=np.int64)
    kinds = np.array([f"{first}:{second}" for _, (first, second), *_ in pairs])
    others = _of_others(records, kinds, seed)
    known = np.flatnonzero(others >= 0)
    if len(known) < 2 or not any(split_words(text) for *_, first, second in pairs for text in (first, second)):
        note = "Needs at least two records with such parts that are not empty."
        return MetricValue(BELONGING, None, of, settings=settings, note=note)
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(analyzer=split_words).fit_transform(text for *_, a, b in pairs for text in (a, b))
    ours, theirs = vectors[0::2], vectors[1::2]
    more = np.asarray(ours[known].multiply(theirs[known] - theirs[others[known]]).sum(axis=1)).ravel()
    chosen = whole_and_subsamples([size], seed=seed, resamples=resamples)
    whole = float(more.mean())
    means = [float(more[kept].mean()) if kept.any() else whole for kept in chosen[0][:, records[known]]]
    return value_of_subsamples(BELONGING, means, chosen, of, low=-1.0, high=1.0, settings=settings)


def _of_others(records: Ints, kinds: NDArray[np.str_], seed: int) -> Ints:
    """Return, for each pair, a random one of the same kind from another record; -1 if there is none.

    Pairs of a kind are ordered by their records, which are in random order, and shifted by one record's largest number
    of pairs.
    """
    order = np.random.default_rng(seed).permutation(int(records.max(initial=0)) + 1)
    found = np.full(len(records), -1, dtype=np.int64)
    for kind in np.unique(kinds):
        mine = np.flatnonzero(kinds == kind)
        mine = mine[np.argsort(order[records[mine]], kind="stable")]
        moved = np.roll(mine, int(np.bincount(records[mine]).max()))
        found[mine] = np.where(records[mine] == records[moved], -1, moved)
    return found
