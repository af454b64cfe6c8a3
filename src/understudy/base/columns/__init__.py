"""Typed columns beside the text, each with a declared, finite domain of cells: public facts alone."""

from understudy.base.columns.column import MOST_CELLS, Column, Span
from understudy.base.columns.declared import declared_columns, read_columns
from understudy.base.columns.rows import (
    WRITTEN,
    cross_labels,
    crossed_columns,
    in_words,
    require_own_names,
    row_characters,
)

__all__ = [
    "MOST_CELLS",
    "WRITTEN",
    "Column",
    "Span",
    "cross_labels",
    "crossed_columns",
    "declared_columns",
    "in_words",
    "read_columns",
    "require_own_names",
    "row_characters",
]
