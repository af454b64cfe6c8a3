"""Every fidelity metric that the tables at hand allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from understudy.metrics.extra import require_evaluate
from understudy.metrics.fidelity.distinct import DISTINCT, distinct_figures
from understudy.metrics.fidelity.frechet import FRECHET, frechet_figures
from understudy.metrics.fidelity.kernel import KERNEL, kernel_figures
from understudy.metrics.fidelity.labels import LABEL_DISTANCE, label_distance_figures, label_share_figures
from understudy.metrics.fidelity.lengths import LENGTH_JS, LENGTH_KS, length_figures
from understudy.metrics.fidelity.mauve import FRONTIER, MAUVE, mauve_figures
from understudy.metrics.fidelity.neighbours import COVERAGE, DENSITY, PRECISION, RECALL, neighbour_figures
from understudy.metrics.fidelity.self_bleu import SELF_BLEU, self_bleu_figures
from understudy.metrics.fidelity.subsamples import LEAST_TO_TELL
from understudy.metrics.fidelity.validity import JSON_PARSED, JSON_VALID, validity_figures
from understudy.metrics.fidelity.vocabulary import VOCABULARY, vocabulary_figures
from understudy.metrics.sample import Sample
from understudy.metrics.value import HOLDOUT, REAL, SYNTHETIC, Figure, Metric
from understudy.vocabulary.words import split_words

Measure = Callable[..., Iterable[Figure]]


def measure_fidelity(
    real: Sample,
    synthetic: Sample,
    *,
    holdout: Sample | None,
    schema: Mapping[str, Any] | None,
    seed: int,
    draws: int = 100,
) -> tuple[Figure, ...]:
    """How near the synthetic texts are to the real ones, beside how near other real texts are.

    Metrics of embeddings are left out where a table has none, those of labels and of JSON likewise. A metric that the
    tables are too small for has the value None.

    Args:
        real: texts of the private table.
        synthetic: the texts to judge.
        holdout: real texts that the synthetic ones were not made from: what is within reach at this size.
        schema: a JSON schema that the texts should keep to.
        seed: of cuts, clusterings and intervals.
        draws: subsamples (of self-BLEU: bootstrap samples) an interval.

    Raises:
        ConfigError: the extra ``evaluate`` is missing, or ``schema`` cannot be used.
    """
    require_evaluate()
    from threadpoolctl import threadpool_limits

    tables = {REAL: real, SYNTHETIC: synthetic} | ({} if holdout is None else {HOLDOUT: holdout})
    fewest = min(map(len, tables.values()))
    cut = {of: table.at_most(fewest, seed=seed) for of, table in tables.items()}
    note = f"On {fewest:,} texts of each table." if any(len(table) > fewest for table in tables.values()) else ""
    drawn = {"seed": seed, "draws": draws}
    # Hundreds of small products: BLAS threads gain nothing, wait for each other on a busy machine, and round otherwise.
    with threadpool_limits(1, user_api="blas"):
        return (
            *_noted(_of_embeddings(cut, drawn), note),
            *_of_kernels(tables, drawn),
            *_noted(_of_words(cut, drawn), note),
            *_of_diversity(tables, drawn),
            *_noted(_of_labels(cut, drawn), note),
            *_of_shares(tables),
            *(() if schema is None else _of_json(tables, schema)),
        )


def _of_embeddings(tables: Mapping[str, Sample], drawn: Mapping[str, int]) -> Iterator[Figure]:
    tables = {of: table for of, table in tables.items() if table.embeddings is not None}
    yield from _against_real(tables, [FRECHET], frechet_figures, drawn)
    yield from _against_real(tables, [MAUVE, FRONTIER], mauve_figures, drawn, least=LEAST_TO_TELL)
    near = [PRECISION, RECALL, DENSITY, COVERAGE]
    yield from _against_real(tables, near, neighbour_figures, drawn, least=LEAST_TO_TELL)


def _of_kernels(tables: Mapping[str, Sample], drawn: Mapping[str, int]) -> Iterator[Figure]:
    tables = {of: table for of, table in tables.items() if table.embeddings is not None}
    yield from _against_real(tables, [KERNEL], kernel_figures, drawn)


def _of_words(tables: Mapping[str, Sample], drawn: Mapping[str, int]) -> Iterator[Figure]:
    words = {of: [split_words(text) for text in table.texts] for of, table in tables.items()}
    lengths = {of: np.asarray([len(text) for text in texts], np.int64) for of, texts in words.items()}
    yield from _against_real(lengths, [LENGTH_JS, LENGTH_KS], length_figures, drawn)
    yield from _against_real(words, [VOCABULARY], vocabulary_figures, drawn)


def _of_diversity(tables: Mapping[str, Sample], drawn: Mapping[str, int]) -> Iterator[Figure]:
    words = {of: [split_words(text) for text in table.texts] for of, table in tables.items()}
    total = min(sum(map(len, texts)) for texts in words.values())
    yield from _each(words, [DISTINCT], distinct_figures, {**drawn, "total": total})
    yield from _each({of: table.texts for of, table in tables.items()}, [SELF_BLEU], self_bleu_figures, drawn)


def _of_labels(tables: Mapping[str, Sample], drawn: Mapping[str, int]) -> Iterator[Figure]:
    labels = {of: table.labels for of, table in tables.items() if table.labels is not None}
    yield from _against_real(labels, [LABEL_DISTANCE], label_distance_figures, drawn)


def _of_shares(tables: Mapping[str, Sample]) -> Iterator[Figure]:
    labels = {of: table.labels for of, table in tables.items() if table.labels}
    names = sorted({label for each in labels.values() for label in each})
    yield from _each(labels, [], label_share_figures, {"names": names}, least=1)


def _of_json(tables: Mapping[str, Sample], schema: Mapping[str, Any]) -> Iterator[Figure]:
    texts = {of: table.texts for of, table in tables.items()}
    yield from _each(texts, [JSON_PARSED, JSON_VALID], validity_figures, {"schema": schema}, least=1)


def _against_real(
    tables: Mapping[str, Any], metrics: Sequence[Metric], measure: Measure, more: Mapping[str, Any], *, least: int = 2
) -> Iterator[Figure]:
    """The figures of every table against the real one; nothing where there is no real one."""
    real = tables.get(REAL)
    for of, table in tables.items():
        if real is None or of == REAL:
            continue
        if min(len(real), len(table)) < least:
            yield from _too_few(metrics, of, least)
        else:
            yield from measure(real, table, of=of, **more)


def _each(
    tables: Mapping[str, Any], metrics: Sequence[Metric], measure: Measure, more: Mapping[str, Any], *, least: int = 2
) -> Iterator[Figure]:
    """The figures of every table by itself."""
    for of, table in tables.items():
        if len(table) < least:
            yield from _too_few(metrics, of, least)
        else:
            yield from measure(table, of, **more)


def _too_few(metrics: Sequence[Metric], of: str, least: int) -> Iterator[Figure]:
    return (
        Figure(metric, None, of, note=f"Takes at least {least} texts of a table: fewer say nothing.")
        for metric in metrics
    )


def _noted(figures: Iterable[Figure], note: str) -> Iterator[Figure]:
    return (figure if figure.note else replace(figure, note=note) for figure in figures)
