"""The synthetic record, and the seed it grows from."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Value = str | int | float | bool | datetime.date | datetime.datetime | None
"""Of a typed column."""


@dataclass(frozen=True)
class Row:
    """The typed columns of one record.

    Args:
        values: of each column.
        details: the same in words, for a prompt.
        cells: their cells in words, as a model that was tuned on rows knows them.
        told: values of those columns that are told from the text: what it should be like.
        numbers: the same as numbers, of the columns that are variables of their own.
    """

    values: tuple[Value, ...]
    details: str
    cells: str = ""
    told: Mapping[str, Value] = field(default_factory=dict)
    numbers: tuple[int, ...] = ()


def shown(value: Value) -> str:
    """A value in words: ``true``, ``2024-03-01``, ``0.5``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Rows(Protocol):
    """Rows that texts are to be written for."""

    def take(self, label: int) -> Row:
        """The next row with this label."""
        ...


@dataclass(frozen=True)
class Seed:
    """What one text is to be written from: released phrases, the index of a label, and its row, if they were sampled
    for one."""

    phrases: tuple[str, ...]
    label: int
    row: Row | None = None


@dataclass(frozen=True)
class SyntheticRecord:
    """A synthetic text.

    Args:
        text: the text; empty if the model gave none.
        label: index into the Release's label set.
        provenance: seed phrases, prompt, model, how many phrases were kept.
        columns: values of the typed columns; None where no row was taken for the text.
        cells: of the row that the text was decoded behind, whose values are still to be sampled.
    """

    text: str
    label: int
    provenance: Mapping[str, Any]
    columns: tuple[Value, ...] | None = None
    cells: tuple[int, ...] | None = None
