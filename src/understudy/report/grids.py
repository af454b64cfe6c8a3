"""Figures laid out in rows and columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from understudy.metrics.value import HOLDOUT, REAL, SYNTHETIC, Figure, Metric

_TABLES = {SYNTHETIC: "synthetic", REAL: "real", HOLDOUT: "held-out real", "charged": "real, with noise"}
_TRAINED_ON = {SYNTHETIC: "synthetic texts", REAL: "as many real texts", "real (all)": "all real texts"}
SIZE = "training texts"
_CUT = re.compile(r"On ([0-9]{1,3}(?:,[0-9]{3}){0,4}) texts of each table\.")
T = TypeVar("T")
BETTER = {"lower": "lower is better", "higher": "higher is better", "same": "best if alike", "none": ""}
SIGNS = {"lower": "↓", "higher": "↑", "same": "≈", "none": ""}
MOST_FIGURES = 1000
"""Of one run and family that a page shows: some times what an evaluation measures."""


@dataclass(frozen=True)
class Row:
    """A title, what is said below, a figure a column (None where there is none), and its metric where rows differ."""

    title: str
    below: str
    cells: tuple[Figure | None, ...]
    metric: Metric | None = None


@dataclass(frozen=True)
class Grid:
    """A table of figures, and the metrics in it.

    Args:
        title: for people.
        columns: their names.
        rows: those of one metric stand together.
        metrics: by the titles of the rows, or the one that all rows are of.
        remarks: how intervals came about, and the notes of figures, each once.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    metrics: tuple[Metric, ...]
    remarks: tuple[str, ...]


def by_table(figures: Sequence[Figure], title: str) -> Grid:
    """A row a metric and setting, a column for each table of texts. Rows without a number are told in the remarks."""
    metrics = {figure.metric.name: figure.metric for figure in figures}
    order = {name: place for place, name in enumerate(metrics)}
    known = [figure for figure in figures if figure.value is not None]
    columns = _distinct(known, lambda figure: figure.of)
    keys = _distinct(known, lambda figure: (figure.metric.name, setting_words(figure)))
    cells = {(figure.metric.name, setting_words(figure), figure.of): figure for figure in figures}
    sizes = {
        (figure.metric.name, setting_words(figure)): f"{texts:,} texts each"
        for figure in known
        if (texts := texts_each(figure)) is not None
    }
    return Grid(
        title,
        tuple(table_words(of) for of in columns),
        tuple(
            Row(
                metrics[name].title,
                ", ".join(filter(None, (words, sizes.get((name, words))))),
                tuple(cells.get((name, words, of)) for of in columns),
                metrics[name],
            )
            for name, words in sorted(keys, key=lambda key: order[key[0]])
        ),
        tuple(metrics.values()),
        remarks(figures),
    )


def first_figures(figures: Sequence[Figure]) -> tuple[tuple[Figure, ...], int]:
    """Those that a page shows, and how many more there are."""
    return tuple(figures[:MOST_FIGURES]), max(0, len(figures) - MOST_FIGURES)


def texts_each(figure: Figure) -> int | None:
    """How many texts of each table it was cut to, where its note says so."""
    found = _CUT.match(figure.note)
    return int(found[1].replace(",", "")) if found else None


def remarks(figures: Sequence[Figure]) -> tuple[str, ...]:
    """How the intervals came about, and each note with the figures that it is about."""
    ways = _distinct(
        [figure for figure in figures if figure.interval],
        lambda figure: f"{figure.interval.method} ({figure.interval.level:.0%})" if figure.interval else "",
    )
    notes: dict[str, dict[str, None]] = {}
    for figure in figures:
        if figure.note:
            words = ", ".join(filter(None, (figure.metric.title, table_words(figure.of), setting_words(figure))))
            notes.setdefault(figure.note, {})[words] = None
    everything = len({(figure.metric.name, figure.of, setting_words(figure)) for figure in figures})
    said = [note if len(about) == everything else f"{note} ({'; '.join(about)})" for note, about in notes.items()]
    return tuple([f"Intervals: {'; '.join(ways)}."] * bool(ways) + said)


def by_training(figures: Sequence[Figure]) -> tuple[Grid, ...]:
    """A grid a metric: a row for each training set, a column for each setting, such as the classifier."""
    metrics = {figure.metric.name: figure.metric for figure in figures}
    return tuple(
        _of_metric(metric, [f for f in figures if f.metric.name == metric.name]) for metric in metrics.values()
    )


def _of_metric(metric: Metric, figures: Sequence[Figure]) -> Grid:
    columns, rows = _distinct(figures, column_words), _distinct(figures, lambda figure: figure.of)
    cells = {(figure.of, column_words(figure)): figure for figure in figures}
    sizes = {figure.of: figure.settings[SIZE] for figure in figures if SIZE in figure.settings}
    return Grid(
        metric.title,
        tuple(columns),
        tuple(
            Row(
                training_words(of),
                f"{sizes[of]:,} texts" if of in sizes else "",
                tuple(cells.get((of, column)) for column in columns),
            )
            for of in rows
        ),
        (metric,),
        remarks(figures),
    )


def table_words(of: str) -> str:
    """The name of a table of texts for people."""
    return _TABLES.get(of, of.replace("_", " "))


def training_words(of: str) -> str:
    """The name of what was trained on."""
    return _TRAINED_ON.get(of, table_words(of))


def column_words(figure: Figure) -> str:
    """The settings that make a column: all but how many texts were trained on."""
    return setting_words(figure, leave_out=(SIZE,))


def setting_words(figure: Figure, leave_out: Sequence[str] = ()) -> str:
    """What tells a figure apart from others of its metric: names alone, numbers with what they count."""
    return ", ".join(
        str(value) if isinstance(value, str) else f"{name.replace('_', ' ')} = {value:g}"
        for name, value in figure.settings.items()
        if name not in leave_out
    )


def _distinct(figures: Iterable[Figure], key: Callable[[Figure], T]) -> list[T]:
    return list(dict.fromkeys(map(key, figures)))
