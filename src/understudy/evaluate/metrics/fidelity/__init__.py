"""How near the synthetic texts are to the real ones, as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.fidelity import embeddings, parts, texts
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
        holdout: real texts that the synthetic ones were not made from: what is within reach at this size. Columns are
            compared with one half of the real rows and have the other half beside them where there is none.
        resamples: per interval: subsamples (of self-BLEU: bootstrap samples).
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
    lengths = {of: np.asarray([len(text) for text in each], np.int64) for of, each in words_cut.items()}
    labels = {of: table.labels for of, table in tables.items() if table.labels}
    labels_cut = {of: table.labels for of, table in cut.items() if table.labels is not None}
    whole = {of: table.texts for of, table in tables.items()}
    rows = _rows(real, synthetic, holdout, seed)
    parted = {of: table for of, table in tables.items() if table.parts is not None}
    shapes = parted if holdout is not None else _beside_a_half(parted, seed)
    total = min(sum(map(len, each)) for each in words.values())
    names = sorted({label for each in labels.values() for label in each})
    near = [embeddings.PRECISION, embeddings.RECALL, embeddings.DENSITY, embeddings.COVERAGE]
    clusters = [embeddings.MAUVE, embeddings.FRONTIER]
    valid = [texts.JSON_PARSED, texts.JSON_VALID]

    def on_rows(values: Iterable[MetricValue]) -> Iterator[MetricValue]:
        return (replace(each, sample_size=len(rows[REAL])) for each in values)

    def on_equal_sizes(
        cut_tables: Tables, metrics: Sequence[Metric], measure: Measure, least: int = 2
    ) -> Iterator[MetricValue]:
        values = _against_real(cut_tables, metrics, measure, sampling, least)
        return (replace(each, sample_size=fewest) if uneven else each for each in values)

    # Hundreds of small products: BLAS threads gain nothing, wait for each other on a busy machine, and round otherwise.
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
            *on_rows(_against_real(rows, [texts.PAIRS_MEAN, texts.PAIRS_LARGEST], texts.column_values, sampling)),
            *_against_real(shapes, [], parts.shape_values, sampling),
            *_each(parted, [parts.BELONGING], parts.belonging_values, sampling),
            *_each(whole if schema is not None else {}, valid, texts.validity_values, {"schema": schema}, least=1),
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
    note = f"Takes at least {least} texts of a table: fewer say nothing."
    return (MetricValue(metric, None, of, note=note) for metric in metrics)
