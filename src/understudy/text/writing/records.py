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
    """The typed columns of one record."""

    values: tuple[Value, ...]
    details: str  # the values in words, for a prompt
    cells: str = ""  # their cells in words, as a model that was tuned on rows knows them
    told: Mapping[str, Value] = field(default_factory=dict)  # of columns computed from the text: how it should be
    numbers: tuple[int, ...] = ()  # cells of the columns that are variables themselves


def shown(value: Value) -> str:
    """A value in words: ``true``, ``2024-03-01``, ``0.5``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Rows(Protocol):
    """Rows that texts are to be written for."""

    def take(self, label: int) -> Row:
        """The next row with this label."""


@dataclass(frozen=True)
class Seed:
    """What one text is to be written from."""

    phrases: tuple[str, ...]  # released
    label: int  # index into the label set
    row: Row | None = None  # that the phrases were sampled for


@dataclass(frozen=True)
class SyntheticRecord:
    """A synthetic text."""

    text: str  # empty if the model gave none
    label: int  # index into the Release's label set
    provenance: Mapping[str, Any]  # seed phrases, prompt, model, how many phrases were kept
    columns: tuple[Value, ...] | None = None  # values of the typed columns; None where no row was taken for the text
    cells: tuple[int, ...] | None = None  # of the row that the text was decoded behind, values still to be sampled
