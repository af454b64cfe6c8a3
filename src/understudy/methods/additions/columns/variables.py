"""The variables of a table (its label, if it has one, and its typed columns), and the parameters of their release."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, did_you_mean
from understudy.base.parameters import Ablation, Free, Parameters
from understudy.release import Release
from understudy.schema.columns import Column, Span
from understudy.schema.labels import LabelSet

COLUMNS, SCORES, PAIRS = "columns", "column-scores", "column-pairs"
"""Names of the charges, and of arrays of the Release."""
LOGARITHMS, CHOSEN = "column-logarithms", "column-chosen"
"""Arrays: the model's concatenated factors, and the measured sets: one per row, ascending, padded with its last
variable."""
LARGEST_LOGARITHM = 100.0
"""Largest distance of a factor's logarithms below its largest one, which is 0."""
SELECTED, TREE, ALL, NONE = "selected", "tree", "all", "none"
COLUMNS_SHARE = 0.3
"""Share of the budget (of mu^2) that the columns get."""


class TablesParameters(Parameters):
    """The typed columns (--columns), released as noisy marginals."""

    column_pairs: Ablation[str] = SELECTED
    """Columns whose joint histograms are measured: ``selected`` (pairs and triples that are worth more than their noise
    costs, selected under privacy), ``tree`` (as few pairs as connect all columns), ``all`` pairs, ``none``, or
    ``A*B,B*C``, which is public."""


class RowsParameters(Parameters):
    """Which rows are sampled, and how many of each label."""

    where: Free[str | dict[str, Any] | None] = None
    """Only rows like these: ``priority=high,opened=2024-03-01..2024-03-31``; ``A|B`` for one of several."""
    like_private: Free[bool] = False
    """Share ``records`` among labels as the private table has them, by noisy counts that the Release contains anyway.
    Default: equally."""


Scope = tuple[int, ...]
"""Variables that are measured together, in ascending order."""
MOST_COLUMNS = 64
MOST_THREES, _CELLS_OF_THREES, _CELLS_OF_THREE = 1_000, 2_000_000, 100_000
"""Largest number of triples that are scored besides all pairs; of cells of all together, and of one."""


@dataclass(frozen=True)
class Variables:
    """The variables of a table: its label, if any, first, then its typed columns in order. Raises ConfigError if it has
    no variable, or more than :data:`MOST_COLUMNS`."""

    label: str | None  # its column's name, or of crossed columns
    labels: LabelSet  # the label set
    all_columns: tuple[Column, ...]  # the typed columns
    crossed: tuple[Column, ...] = ()  # columns that form the label, in its order: they follow from it

    def __post_init__(self) -> None:
        if not self.names:
            raise ConfigError(
                "All declared columns are identifiers, which are made up.",
                "Declare another column too, or leave out --columns.",
            )
        if len(self.names) > MOST_COLUMNS:
            raise ConfigError(
                f"More than {MOST_COLUMNS} typed columns are declared.",
                "Declare fewer, for example only those you need.",
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the typed columns that are themselves variables."""
        return tuple(each for each in self.all_columns if each not in self.crossed and not each.made_up)

    @property
    def labelled(self) -> bool:
        return bool(self.labels.names)

    @property
    def names(self) -> tuple[str, ...]:
        return (*((self.label or "label",) if self.labelled else ()), *(column.name for column in self.columns))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of cells of each variable."""
        return (*((self.labels.size,) if self.labelled else ()), *(column.size for column in self.columns))

    @property
    def all_pairs(self) -> tuple[Scope, ...]:
        return tuple(combinations(range(len(self.sizes)), 2))

    def scored(self, declared: str) -> tuple[Scope, ...]:
        """Return the sets of variables that may be selected, from public facts: all pairs and, if ``declared`` is
        ``selected``, at most :data:`MOST_THREES` triples with the fewest cells, those with the label first."""
        sizes, threes, cells = self.sizes, [], 0
        found = [
            (self.labelled and 0 not in each, math.prod(sizes[one] for one in each), each)
            for each in combinations(range(len(sizes)), 3)
        ]
        for _, own, three in sorted(found)[:MOST_THREES] if declared == SELECTED else ():
            cells += own
            if own <= _CELLS_OF_THREE and cells <= _CELLS_OF_THREES:
                threes.append(three)
        return (*self.all_pairs, *threes)

    def pairs(self, declared: str) -> tuple[Scope, ...] | None:
        """Return the pairs of variables that ``declared`` names; None if they are selected under privacy. Raises
        ConfigError if one is not a pair of columns."""
        if declared in (SELECTED, TREE):
            return None if len(self.all_pairs) > 1 else self.all_pairs
        if declared in (ALL, NONE):
            return self.all_pairs if declared == ALL else ()
        places = {name: place for place, name in enumerate(self.names)}
        found = []
        for text in declared.split(","):
            ends = tuple(sorted(places.get(name.strip(), -1) for name in text.split("*")))
            if len(ends) != 2 or ends[0] < 0 or ends[0] == ends[1] or ends in found:
                raise ConfigError(
                    f"{text.strip()!r:.80} is not a pair of columns of this table, or is listed twice.",
                    f"Write A*B,B*C with these columns: {', '.join(self.names)}; or selected, tree, all or none.",
                )
            found.append(ends)
        return tuple(found)

    def spans(self, where: str | Mapping[str, Any] | None) -> dict[str, tuple[Span, ...]]:
        """Return, for each column in a condition, the ranges of values that it allows within bins."""
        columns = {column.name: column for column in self.all_columns}
        return {name: columns[name].asked(text).spans for name, text in _conditions(where) if name in columns}

    def allowed(self, where: str | Mapping[str, Any] | None) -> list[NDArray[np.float64]]:
        """Return, per variable, the share of each cell that a condition allows: ``Float64[size]``. Raises ConfigError
        if it names a missing column or value."""
        found = [np.ones(size) for size in self.sizes]
        if len({name for name, _ in _conditions(where)}) < len(_conditions(where)):
            raise ConfigError(
                "A condition names a column twice.", "Write A|B for one of several values, FIRST..LAST for a range."
            )
        for name, asked in _conditions(where):
            of_label = {column.name: column for column in self.crossed}
            if name in of_label:
                cells_of = [cells_of_label(self.crossed, label)[name] for label in range(self.labels.size)]
                found[0] *= of_label[name].asked(asked).weights[cells_of]
                continue
            if name not in self.names:
                known = (*of_label, *self.names)
                raise ConfigError(
                    f"The condition names the column {name!r:.60}, which the Release does not have.",
                    did_you_mean(name, known, f"Its columns are: {', '.join(known)}.{_mapping(known)}"),
                )
            place = self.names.index(name)
            if self.labelled and place == 0:
                cells = np.isin(self.labels.names, [part.strip() for part in asked.split("|")]).astype(float)
                if not cells.any() or cells.sum() < len(asked.split("|")):
                    raise ConfigError(
                        f"The condition names an unknown label: {asked!r:.60}.",
                        f"The labels are: {', '.join(self.labels.names[:20])}.",
                    )
            else:
                cells = self.columns[place - self.labelled].asked(asked).weights
            found[place] *= cells
        return found


def cells_of_label(crossed: Sequence[Column], label: int) -> dict[str, int]:
    """Return the cells of the columns that form a label, by name; empty if none do."""
    places = np.unravel_index(label, [column.missing for column in crossed]) if crossed else ()
    return {column.name: int(place) for column, place in zip(crossed, places, strict=True)}


def in_one_line(where: str | Mapping[str, Any] | None) -> str:
    """Return a condition as the flag ``--where`` would spell it; empty for none."""
    return ", ".join(f"{name}={asked}" for name, asked in _conditions(where))


def _conditions(where: str | Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if where is None or where == {}:
        return []
    if isinstance(where, Mapping):
        return [
            (str(name), "|".join(map(_text, value)) if isinstance(value, list | tuple) else _text(value))
            for name, value in where.items()
        ]
    parts = [part.partition("=") for part in where.split(",")]
    if any(not equals or not asked.strip() or "=" in asked for _, equals, asked in parts):
        raise ConfigError(
            f"The condition {where!r:.80} cannot be read.",
            "Write NAME=VALUE,NAME=FIRST..LAST, with commas between them. Names or values with = or , in them need "
            "a mapping, in YAML or Python (docs/tables.md).",
        )
    return [(name.strip(), asked.strip()) for name, _, asked in parts]


def _mapping(names: Iterable[str]) -> str:
    """Return a hint for names that the flag cannot express."""
    odd = next((name for name in names if "=" in name or "," in name), None)
    return "" if odd is None else f" A name with = or , in it needs YAML or Python: where: {{{odd!r}: ...}}."


def _text(value: object) -> str:
    return "missing" if value is None else str(value)


def has_columns(made: Release) -> bool:
    """Return whether the Release was made with typed columns."""
    return bool(made.schema.columns)


def variables_of(made: Release) -> Variables:
    """Return the variables of a Release."""
    schema = made.schema
    return Variables(schema.label, schema.label_set, schema.columns, schema.crossed)


def parameters_of(made: Release) -> TablesParameters:
    """Return the parameters of the typed columns in a Release."""
    known = {name: made.parameters[name] for name in TablesParameters.model_fields if name in made.parameters}
    return TablesParameters(**known)


def histograms_of(made: Release) -> dict[str, NDArray[np.float64]]:
    """Return the noisy histogram of each typed column, ``Float64[size]``; empty if the Release has none that fit."""
    counts = made.arrays.get(COLUMNS)
    if not has_columns(made) or counts is None:
        return {}
    variables = variables_of(made)
    if counts.shape != (sum(variables.sizes),):
        return {}
    parts = np.split(counts, np.cumsum(variables.sizes)[:-1])[int(variables.labelled) :]
    return {column.name: part for column, part in zip(variables.columns, parts, strict=True)}
