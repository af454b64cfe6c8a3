"""Values in rows and columns, and the shares of tables of texts as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from understudy.evaluate.metrics.fidelity.texts import COLUMN_METRICS, PAIR_DISTANCE
from understudy.evaluate.metrics.overview import Overview, Profile
from understudy.evaluate.metrics.value import (
    HOLDOUT,
    MAJORITY,
    REAL,
    REAL_ALL,
    SETTING_TITLES,
    SYNTHETIC,
    Metric,
    MetricValue,
)
from understudy.methods.additions.columns.variables import histograms_of
from understudy.release import Release

FLOORS = ("baseline", "untuned", MAJORITY)
CHARGED = "charged"
"""Real texts, as described by values that were released with a charge."""
_SHARES = ("label_share", "length_share")
_COLUMNS = tuple(metric.name for metric in COLUMN_METRICS)
_TABLES = {SYNTHETIC: "synthetic", REAL: "real", HOLDOUT: "held-out real", CHARGED: "real, with noise"}
_TRAINED_ON = {
    SYNTHETIC: "synthetic texts",
    REAL: "as many real texts",
    REAL_ALL: "all real texts",
    MAJORITY: "most frequent value",
}
T = TypeVar("T")
U = TypeVar("U")
BETTER = {"lower": "lower is better", "higher": "higher is better", "same": "best if like the real texts", "none": ""}
KEY = "↓ lower is better, ↑ higher is better, ≈ best if like the real texts"
SIGNS = {"lower": "↓", "higher": "↑", "same": "≈", "none": ""}
MOST_VALUES = 1000
"""Largest number of values of one run and family on a page: several times what an evaluation measures."""
MOST_PAIRS = 10
"""Number of pairs of columns on a page: those with the largest distance."""


@dataclass(frozen=True)
class Row:
    """A title, a line below it, a value per column (None if missing), and the row's metric if rows differ."""

    title: str
    below: str
    cells: tuple[MetricValue | None, ...]
    metric: Metric | None = None


@dataclass(frozen=True)
class Grid:
    """A table of values, and the metrics in it.

    Args:
        rows: those of one metric are adjacent.
        metrics: by the titles of the rows, or the one metric of all rows.
        remarks: how intervals were computed, and the notes of values, each once.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    metrics: tuple[Metric, ...]
    remarks: tuple[str, ...]


def by_table(values: Sequence[MetricValue], title: str) -> Grid:
    """Lay out values as a row per metric and setting, and a column per table of texts.

    A row without a number appears in the remarks only.
    """
    metrics = {measured.metric.name: measured.metric for measured in values}
    known = [measured for measured in values if measured.value is not None]
    columns = _distinct(known, lambda measured: measured.of)
    cells = {(*_row(measured), measured.of): measured for measured in values}
    sizes = {_row(measured): f"{measured.sample_size:,} texts each" for measured in known if measured.sample_size}
    order = {name: place for place, name in enumerate(metrics)}
    rows = [
        Row(
            metrics[name].title,
            ", ".join(filter(None, (words, sizes.get((name, words))))),
            tuple(cells.get((name, words, of)) for of in columns),
            metrics[name],
        )
        for name, words in sorted(_distinct(known, _row), key=lambda key: order[key[0]])
    ]
    return Grid(title, tuple(map(table_words, columns)), tuple(rows), tuple(metrics.values()), remarks(values))


def by_training(values: Sequence[MetricValue]) -> tuple[Grid, ...]:
    """Return a grid per metric: a row for each training set, a column for each setting, such as the classifier."""
    metrics = {measured.metric.name: measured.metric for measured in values}
    return tuple(_of_metric(metric, [v for v in values if v.metric.name == name]) for name, metric in metrics.items())


def _of_metric(metric: Metric, values: Sequence[MetricValue]) -> Grid:
    columns, tables = _distinct(values, setting_words), _distinct(values, lambda measured: measured.of)
    cells = {(measured.of, setting_words(measured)): measured for measured in values}
    rows = [training_row(of, [cells.get((of, column)) for column in columns]) for of in tables]
    return Grid(metric.title, tuple(columns), tuple(rows), (metric,), remarks(values))


def training_row(of: str, cells: Sequence[MetricValue | None]) -> Row:
    return Row(training_words(of), size_words(cells), tuple(cells))


def size_words(cells: Iterable[MetricValue | None]) -> str:
    """Return how many texts were trained on; empty if unknown."""
    size = next((cell.sample_size for cell in cells if cell is not None and cell.sample_size is not None), None)
    return "" if size is None else f"{size:,} texts"


def first_values(values: Sequence[MetricValue]) -> tuple[tuple[MetricValue, ...], int]:
    """Return the values that a page shows, and how many more there are."""
    return tuple(values[:MOST_VALUES]), max(0, len(values) - MOST_VALUES)


def remarks(values: Sequence[MetricValue]) -> tuple[str, ...]:
    """Return how the intervals were computed, and each note with its values."""
    intervals = [measured.interval for measured in values if measured.interval]
    ways = _distinct(intervals, lambda interval: f"{interval.method} ({interval.level:.0%})")
    notes: dict[str, dict[str, None]] = {}
    for measured in values:
        if measured.note:
            words = filter(None, (measured.metric.title, table_words(measured.of), setting_words(measured)))
            notes.setdefault(measured.note, {})[", ".join(words)] = None
    everything = len({(*_row(measured), measured.of) for measured in values})
    said = [note if len(about) == everything else f"{note} ({'; '.join(about)})" for note, about in notes.items()]
    return tuple([f"Intervals: {'; '.join(ways)}."] * bool(ways) + said)


def table_words(of: str) -> str:
    """Return the name of a table of texts for people."""
    return _TABLES.get(of, of.replace("_", " "))


def training_words(of: str) -> str:
    """Return the name of a training set."""
    return _TRAINED_ON.get(of, table_words(of))


def setting_words(measured: MetricValue) -> str:
    """Return the settings that distinguish a value from others of its metric: names alone, numbers with their title."""
    return ", ".join(
        value if isinstance(value, str) else f"{SETTING_TITLES.get(name, name)} = {value:g}"
        for name, value in measured.settings.items()
    )


def _row(measured: MetricValue) -> tuple[str, str]:
    return measured.metric.name, setting_words(measured)


def _distinct(values: Iterable[T], key: Callable[[T], U]) -> list[U]:
    return list(dict.fromkeys(map(key, values)))


@dataclass(frozen=True)
class Shares:
    """A row: its name, and its share of each table's texts."""

    name: str
    shares: Mapping[str, float]

    @property
    def largest(self) -> float:
        return max(self.shares.values(), default=0.0)


def label_rows(overview: Overview, charged: Sequence[MetricValue]) -> tuple[Shares, ...]:
    """Return each label's share of every table with labels, largest first; charged values are a separate table."""
    shares = {
        of: {label: count / max(1, profile.texts) for label, count in profile.labels.items()}
        for of, profile in overview.profiles.items()
        if profile.labels
    }
    if paid := _charged_shares(charged, "label_share"):
        shares[CHARGED] = paid
    return tuple(sorted(_by_name(shares), key=lambda row: (-row.largest, row.name)))


def _by_name(tables: Mapping[str, Mapping[str, float]]) -> tuple[Shares, ...]:
    names = dict.fromkeys(name for of_table in tables.values() for name in of_table)
    return tuple(Shares(name, {of: of_table.get(name, 0.0) for of, of_table in tables.items()}) for name in names)


def charged_length_rows(charged: Sequence[MetricValue]) -> tuple[Shares, ...]:
    """Return the shares of lengths that were released with a charge."""
    return tuple(Shares(words, {CHARGED: share}) for words, share in _charged_shares(charged, "length_share").items())


def column_rows(overview: Overview | None, release: Release | None) -> dict[str, tuple[Shares, ...]]:
    """Return for each typed column the share of every cell, in order: in every table with this column, and, with noise,
    in the Release."""
    shares: dict[str, dict[str, dict[str, float]]] = {}
    for of, profile in (overview.profiles if overview is not None else {}).items():
        for name, counts in profile.columns.items():
            shares.setdefault(name, {})[of] = _shares_of(counts)
    declared = {column.name: column for column in release.schema.columns} if release is not None else {}
    for name, noisy in (histograms_of(release) if release is not None else {}).items():
        shares.setdefault(name, {})[CHARGED] = _shares_of(declared[name].by_title(noisy.tolist()))
    return {name: _by_name(tables) for name, tables in shares.items()}


def _shares_of(counts: Mapping[str, float]) -> dict[str, float]:
    known = {cell: max(0.0, count) for cell, count in counts.items()}
    total = sum(known.values()) or 1.0
    return {cell: count / total for cell, count in known.items()}


def _charged_shares(values: Sequence[MetricValue], metric: str) -> dict[str, float]:
    return {setting_words(v): v.value for v in values if v.metric.name == metric and v.value is not None}


def topic_rows(overview: Overview) -> tuple[Shares, ...]:
    """Return each topic by its terms, largest first."""
    rows = [Shares(", ".join(topic.terms), topic.shares) for topic in overview.topics]
    return tuple(sorted(rows, key=lambda row: -row.largest))


def length_rows(profiles: Mapping[str, Profile]) -> tuple[Shares, ...]:
    """Return each bin of lengths if all tables have the same bins; else nothing."""
    edges = {profile.words.edges for profile in profiles.values()}
    if len(edges) != 1:
        return ()
    (shared,) = edges
    return tuple(
        Shares(
            f"{first:,.0f}" if end - first <= 1 else f"{first:,.0f} to {end - 1:,.0f}",
            {of: profile.words.counts[place] / max(1, profile.texts) for of, profile in profiles.items()},
        )
        for place, (first, end) in enumerate(pairwise(shared))
    )


def largest(rows: Sequence[Shares]) -> float:
    """Return the largest share of all; never 0."""
    return max((row.largest for row in rows), default=0) or 1.0


def without_shares(values: Sequence[MetricValue]) -> tuple[MetricValue, ...]:
    """Return all values except shares of labels and lengths and distances of columns, which have separate tables."""
    apart = {*_SHARES, *_COLUMNS}
    return tuple(measured for measured in values if measured.metric.name not in apart)


def column_values(values: Sequence[MetricValue]) -> tuple[tuple[MetricValue, ...], int]:
    """Return the distances of columns, for pairs those that are largest for the synthetic rows, and how many pairs are
    left out."""
    own = [measured for measured in values if measured.metric.name in _COLUMNS]
    pairs = [each for each in own if each.metric.name == PAIR_DISTANCE.name]
    distances = {setting_words(each): each.value or 0.0 for each in pairs if each.of == SYNTHETIC}
    farthest = sorted(distances, key=lambda pair: -distances[pair])[:MOST_PAIRS]
    places = {pair: place for place, pair in enumerate(farthest)}
    shown = [each for each in pairs if setting_words(each) in places]
    shown.sort(key=lambda each: places[setting_words(each)])
    others = [each for each in own if each.metric.name != PAIR_DISTANCE.name]
    return (*others[:MOST_VALUES], *shown), len(distances) - len(farthest)
