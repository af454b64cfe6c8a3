"""Several typed columns together: the label that they make, their cells in words, and the names that are taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

from understudy.base.columns.column import MOST_CELLS, Column
from understudy.base.errors import ConfigError


def crossed_columns(label: str | None, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The typed columns that a label is made of: ``product``, or ``product*priority``; none if it is a column of its
    own.

    Raises ConfigError if one is named twice, or they have more than :data:`MOST_CELLS` combinations.
    """
    names = [] if label is None else [part.strip() for part in label.split("*")]
    found = [column for name in names for column in columns if column.name == name and not column.made_up]
    if len(found) < len(names):
        return ()
    if len(set(names)) < len(names):
        raise ConfigError(f"The label {label!r:.60} names a column twice.", "Cross different columns.")
    if math.prod(column.missing for column in found) > MOST_CELLS:
        raise ConfigError(
            f"The columns of the label {label!r:.60} have more than {MOST_CELLS} combinations.",
            "Cross fewer columns, or declare fewer values and bins.",
        )
    return tuple(found)


def cross_labels(crossed: Sequence[Column]) -> tuple[str, ...]:
    """The label set of crossed columns, the last one moving fastest; missing values have no label."""
    titles = ([column.title(cell) for cell in range(column.missing)] for column in crossed)
    found = tuple(" / ".join(combination) for combination in product(*titles))
    if len(set(found)) < len(found):
        raise ConfigError(
            "Two combinations of the label's columns are written alike.", "Rename the values that hold a slash."
        )
    return found


def in_words(columns: Sequence[Column], cells: Sequence[int]) -> str:
    """A row's cells, those of missing values left out: ``priority: high; paid: 0 to 5``."""
    named = zip(columns, cells, strict=True)
    return "; ".join(f"{column.name}: {column.title(cell)}" for column, cell in named if cell != column.missing)


def row_characters(columns: Sequence[Column]) -> float:
    """How long a row is :func:`in_words` where nothing is missing, the mean over each column's cells."""
    lengths = ([len(in_words([each], [cell])) + 2 for cell in range(each.missing)] for each in columns)
    return sum(sum(each) / len(each) for each in lengths)


WRITTEN = ("text", "label", "provenance")
"""Columns that every synthetic table has."""


def require_own_names(columns: Sequence[Column], others: Iterable[str | None]) -> None:
    """See that no typed column is one of the ``others``, or of those that every synthetic table has; else
    ConfigError."""
    taken = {*others, *WRITTEN}
    if twice := [column.name for column in columns if column.name in taken]:
        raise ConfigError(
            f"The typed column {twice[0]!r} is also the text, the label, the owner, or a column that is written.",
            f"Declare it once, and rename columns called {', '.join(WRITTEN)}; the label's domain is --labels.",
        )
