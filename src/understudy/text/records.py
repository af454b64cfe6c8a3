"""The values that go into writing and come out: rows, seeds and synthetic texts."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Value = str | int | float | bool | datetime.date | datetime.datetime | None
"""A value of a typed column."""


@dataclass(frozen=True)
class Row:
    """The values of the typed columns of one record."""

    values: tuple[Value, ...]
    details: str  # the values in words, for a prompt
    cells: str = ""  # their cells in words, as shown to a model that was tuned on rows
    told: Mapping[str, Value] = field(default_factory=dict)  # columns computed from the text: the values it should have
    numbers: tuple[int, ...] = ()  # cells of the columns that are variables themselves


def shown(value: Value) -> str:
    """Return a value in words: ``true``, ``2024-03-01``, ``0.5``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Rows(Protocol):
    """A source of rows of typed columns, for which texts are written."""

    def take(self, label: int) -> Row:
        """Return the next row with this label."""


@dataclass(frozen=True)
class Seed:
    """The source of one text: its label and phrases, and perhaps its row."""

    phrases: tuple[str, ...]  # released
    label: int  # index into the label set
    row: Row | None = None  # the row that the phrases were sampled for


@dataclass(frozen=True)
class SyntheticRecord:
    """A synthetic text with its label and provenance."""

    text: str  # empty if the model gave none
    label: int  # index into the Release's label set
    provenance: Mapping[str, Any]  # seed phrases, prompt, model, how many phrases were kept
    columns: tuple[Value, ...] | None = None  # values of the typed columns; None if the text has no row
    cells: tuple[int, ...] | None = None  # of the row before which the text was decoded, values still to be sampled
