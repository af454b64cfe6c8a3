"""How near the synthetic texts are to the real ones, as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.fidelity.columns import PAIRS_LARGEST, PAIRS_MEAN, column_values
from understudy.evaluate.metrics.fidelity.embeddings import (
    COVERAGE,
    DENSITY,
    FRECHET,
    KERNEL,
    PRECISION,
    RECALL,
    frechet_values,
    kernel_values,
    neighbour_values,
)
from understudy.evaluate.metrics.fidelity.mauve import FRONTIER, MAUVE, mauve_values
from understudy.evaluate.metrics.fidelity.parts import BELONGING, belonging_values, shape_values
from understudy.evaluate.metrics.fidelity.texts import (
    DISTINCT,
    JSON_PARSED,
    JSON_VALID,
    LABEL_DISTANCE,
    LENGTH_JS,
    LENGTH_KS,
    SELF_BLEU,
    VOCABULARY,
    distinct_values,
    label_distance_values,
    label_share_values,
    length_values,
    self_bleu_values,
    validity_values,
    vocabulary_values,
)
from understudy.evaluate.metrics.intervals import LEAST_TO_TELL
from understudy.evaluate.metrics.sample import Sample, words_of
from understudy.evaluate.metrics.value import HOLDOUT, OTHER_HALF, REAL, SYNTHETIC, Metric, MetricValue
from understudy.text.vocabulary.words import split_words

__all__ = ["measure_fidelity"]

Measure = Callable[..., Iterable[MetricValue]]
Tables = Mapping[str, Any]
"""By whose they are."""


def measure_fidelity(
    real: Sample,
    synthetic: Sample,
    *,
    holdout: Sample | None,
    schema: Mapping[str, Any] | None,
    seed: int,
    resamples: int = 100,
) -> tuple[MetricValue, ...]:
    """How near the synthetic texts are to the real ones, beside how near other real texts are.

    Metrics of embeddings are left out where a table has none, those of labels, typed columns and JSON likewise. A
    metric that the tables are too small for has the value None.

    Args:
        real: texts of the private table.
        synthetic: the texts to judge.
        holdout: real texts that the synthetic ones were not made from: what is within reach at this size. Columns are
            compared with one half of the real rows and have the other half beside them where there is none.
        schema: a JSON schema that the texts should keep to.
        seed: of cuts, clusterings and intervals.
        resamples: per interval: subsamples (of self-BLEU: bootstrap samples).

    Raises:
        ConfigError: the extra ``evaluate`` is missing, or ``schema`` cannot be used.
    """
    require_evaluate()
    from threadpoolctl import threadpool_limits

    tables = {REAL: real, SYNTHETIC: synthetic} | ({} if holdout is None else {HOLDOUT: holdout})
    fewest = min(map(len, tables.values()))
    cut = {of: table.at_most(fewest, seed=seed) for of, table in tables.items()}
    uneven = any(len(table) > fewest for table in tables.values())
    sampling = {"seed": seed, "resamples": resamples}
    placed, placed_cut = ({of: t for of, t in each.items() if t.embeddings is not None} for each in (tables, cut))
    words = {of: words_of(table.texts, split_words) for of, table in tables.items()}
    words_cut = {of: words[of] if t is tables[of] else words_of(t.texts, split_words) for of, t in cut.items()}
    lengths = {of: np.asarray([len(text) for text in texts], np.int64) for of, texts in words_cut.items()}
    labels = {of: table.labels for of, table in tables.items() if table.labels}
    labels_cut = {of: table.labels for of, table in cut.items() if table.labels is not None}
    texts = {of: table.texts for of, table in tables.items()}
    rows = _rows(real, synthetic, holdout, seed)
    parted = {of: table for of, table in tables.items() if table.parts is not None}
    shapes = parted if holdout is not None else _beside_a_half(parted, seed)
    total = min(sum(map(len, each)) for each in words.values())
    names = sorted({label for each in labels.values() for label in each})
    near, clusters = [PRECISION, RECALL, DENSITY, COVERAGE], [MAUVE, FRONTIER]
    valid = [JSON_PARSED, JSON_VALID]

    def on_rows(values: Iterable[MetricValue]) -> Iterator[MetricValue]:
        return (replace(each, sample_size=len(rows[REAL])) for each in values)

    def on_equal_sizes(values: Iterable[MetricValue]) -> Iterator[MetricValue]:
        return (replace(each, sample_size=fewest) if uneven else each for each in values)

    # Hundreds of small products: BLAS threads gain nothing, wait for each other on a busy machine, and round otherwise.
    with threadpool_limits(1, user_api="blas"):
        return (
            *on_equal_sizes(_against_real(placed_cut, [FRECHET], frechet_values, sampling)),
            *on_equal_sizes(_against_real(placed_cut, clusters, mauve_values, sampling, least=LEAST_TO_TELL)),
            *on_equal_sizes(_against_real(placed_cut, near, neighbour_values, sampling, least=LEAST_TO_TELL)),
            *_against_real(placed, [KERNEL], kernel_values, sampling),
            *on_equal_sizes(_against_real(lengths, [LENGTH_JS, LENGTH_KS], length_values, sampling)),
            *on_equal_sizes(_against_real(words_cut, [VOCABULARY], vocabulary_values, sampling)),
            *_each(words, [DISTINCT], distinct_values, {**sampling, "total": total}),
            *_each(texts, [SELF_BLEU], self_bleu_values, sampling),
            *on_equal_sizes(_against_real(labels_cut, [LABEL_DISTANCE], label_distance_values, sampling)),
            *_each(labels, [], label_share_values, {"names": names}, least=1),
            *on_rows(_against_real(rows, [PAIRS_MEAN, PAIRS_LARGEST], column_values, sampling)),
            *_against_real(shapes, [], shape_values, sampling),
            *_each(parted, [BELONGING], belonging_values, sampling),
            *_each(texts if schema is not None else {}, valid, validity_values, {"schema": schema}, least=1),
        )


def _beside_a_half(tables: Mapping[str, Sample], seed: int) -> dict[str, Sample]:
    """One half of the real texts, the other tables, and the other half as a yardstick; empty where there is no real
    one."""
    if REAL not in tables:
        return {}
    first, second = tables[REAL].halves(seed=seed)
    return {**tables, REAL: first, OTHER_HALF: second}


def _rows(real: Sample, synthetic: Sample, holdout: Sample | None, seed: int) -> dict[str, Sample]:
    """Equally many rows of all tables with typed columns: real and synthetic ones, and other real ones as a yardstick.
    Empty without such columns."""
    if real.cells is None or synthetic.cells is None:
        return {}
    if holdout is None or holdout.cells is None:
        first, second = real.halves(seed=seed)
        tables = {REAL: first, SYNTHETIC: synthetic, OTHER_HALF: second}
    else:
        tables = {REAL: real, SYNTHETIC: synthetic, HOLDOUT: holdout}
    fewest = min(map(len, tables.values()))
    return {of: table.at_most(fewest, seed=seed) for of, table in tables.items()}


def _against_real(
    tables: Tables, metrics: Sequence[Metric], measure: Measure, more: Mapping[str, Any], least: int = 2
) -> Iterator[MetricValue]:
    """The values of every table against the real one; nothing where there is no real one."""
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
    """The values of every table by itself."""
    for of, table in tables.items():
        yield from _too_few(metrics, of, least) if len(table) < least else measure(table, of, **more)


def _too_few(metrics: Sequence[Metric], of: str, least: int) -> Iterator[MetricValue]:
    note = f"Takes at least {least} texts of a table: fewer say nothing."
    return (MetricValue(metric, None, of, note=note) for metric in metrics)
