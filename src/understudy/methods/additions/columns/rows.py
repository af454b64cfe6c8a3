"""Rows of a Release's distribution, sampled for the texts that are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.methods.additions.columns.distribution import Distribution, distribution_of
from understudy.methods.additions.columns.variables import (
    ALL,
    NONE,
    Variables,
    cells_of_label,
    has_columns,
    in_one_line,
    variables_of,
)
from understudy.release import Release
from understudy.schema.columns import Column, Span, in_words
from understudy.schema.labels import in_proportion
from understudy.schema.transcript import PLAIN, TextForm
from understudy.text.prompts.template import CATEGORIES
from understudy.text.records import Row, SyntheticRecord, shown

_IMPOSSIBLE = 1e-12
"""A condition counts as impossible if fewer than this share of all rows meet it."""
_AHEAD = 256


@dataclass(frozen=True)
class _Told:
    """A column whose value is computed from a text: its variable, and the values that a condition allows."""

    column: Column
    place: int
    allowed: NDArray[np.float64]
    spans: tuple[Span, ...]

    def meets(self, value: int | str | None) -> bool:
        """Return whether a value meets the condition."""
        cell = self.column.cell(value)
        if cell is None or not self.allowed[cell]:
            return False
        if not self.spans or not isinstance(value, int):
            return True
        nearest = min(max(value, self.column.least), self.column.most)  # like a value beyond the range
        return any(low <= nearest <= high for low, high in self.spans)


@dataclass(frozen=True)
class TableRows:
    """Rows of a Release's distribution, sampled as they are needed: :class:`~understudy.text.records.Rows`.

    Args:
        allowed: per variable ``Float64[size]``, the share of each cell that a condition allows.
        spans: by column, the range of values within a bin that the condition allows.
        condition: the condition as the user would write it; empty without one.
        form: the parts that texts have.
        part: numbers of the part of a release that these rows are for.
        prompted: the columns that a prompt shows.
    """

    variables: Variables
    distribution: Distribution
    allowed: Sequence[NDArray[np.float64]]
    spans: Mapping[str, tuple[Span, ...]]
    seed: int
    condition: str = ""
    form: TextForm = PLAIN
    part: tuple[int, ...] = ()
    prompted: frozenset[str] = frozenset()
    _ready: dict[int, deque[Row]] = field(default_factory=dict, repr=False, compare=False)
    _generators: dict[int, np.random.Generator] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        made: Release,
        *,
        seed: int,
        where: str | Mapping[str, Any] | None = None,
        prompt_columns: str | Sequence[str] = ALL,
    ) -> TableRows | None:
        """Return the rows; None if the Release has no typed columns."""
        if not has_columns(made):
            return None
        variables = variables_of(made)
        allowed, spans = variables.allowed(where), variables.spans(where)
        rows = cls(
            *(variables, distribution_of(made), allowed, spans, seed),
            condition=in_one_line(where),
            form=made.schema.form,
            prompted=_prompted(variables, prompt_columns),
        )
        if rows.shares.sum() < _IMPOSSIBLE:
            raise ConfigError("No row of the Release meets the condition (--where).", "Relax or leave out parts of it.")
        return rows

    def counts(self, records: int) -> list[int]:
        """Divide ``records`` among the labels in proportion to the rows that meet the condition."""
        return in_proportion(records, self.shares.tolist())

    def require(self, counts: Sequence[int]) -> None:
        """Raise ConfigError if a label with requested records has no row that meets the condition."""
        for label, count in enumerate(counts):
            if count and self.shares[label] < _IMPOSSIBLE:
                raise ConfigError(
                    f"No row with the label {self.variables.labels.titles[label]!r:.60} meets the condition (--where).",
                    "Give --records N, which divides N records among the labels that have such rows.",
                )

    def take(self, label: int) -> Row:
        """Return the next row for a text of this label (:class:`~understudy.text.records.Rows`)."""
        ready = self._ready.setdefault(label, deque())
        if not ready:
            generator = self._generator(label)
            sampled = self.distribution.sample(_AHEAD, self._allowed(label), generator)
            ready.extend(self._row(label, cells, generator) for cells in sampled[:, self._first :].tolist())
        return ready.popleft()

    def completed(self, record: SyntheticRecord) -> SyntheticRecord | None:
        """Return the record with a row of typed columns: the row it was written for or else a sampled one that fits its
        label and the values computed from its text. Return None if these values do not meet the condition."""
        told = {name: value for name, value in self.form.tell(record.text).items() if name in self._told}
        if not all(self._told[name].meets(value) for name, value in told.items()):
            return None
        values = record.columns
        if values is None and record.cells is not None:
            values = self._row(record.label, record.cells, self._generator(record.label)).values
        elif values is None:
            values = (self._beside(record.label, told) if told else self.take(record.label)).values
        named = zip(self.variables.all_columns, values, strict=True)
        return replace(record, columns=tuple(told.get(column.name, value) for column, value in named))

    def _beside(self, label: int, told: Mapping[str, Any]) -> Row:
        """Sample a row with this label and the values computed from a text; if none has them, return any of the
        label."""
        allowed, generator = self._allowed(label), self._generator(label)
        for name, value in told.items():
            place = self._told[name].place
            allowed[place] = allowed[place] * (np.arange(len(allowed[place])) == self._told[name].column.cell(value))
        if self.distribution.shares(allowed).sum() < _IMPOSSIBLE:
            return self.take(label)
        (cells,) = self.distribution.sample(1, allowed, generator)[:, self._first :].tolist()
        return self._row(label, cells, generator)

    @cached_property
    def _told(self) -> dict[str, _Told]:
        """Return the columns that are computed from a text, by name."""
        return {
            column.name: _Told(column, place, self.allowed[place], self.spans.get(column.name, ()))
            for place, column in enumerate(self.variables.columns, self._first)
            if column.name in self.form.told
        }

    @property
    def _first(self) -> int:
        """Position of the first typed column among the variables."""
        return int(self.variables.labelled)

    def of_part(self, part: tuple[int, ...]) -> TableRows:
        """Return a separate source of rows for a part of a release. Equal arguments give equal rows."""
        return replace(self, part=part, _ready={}, _generators={})

    def _generator(self, label: int) -> np.random.Generator:
        return self._generators.setdefault(label, np.random.default_rng([self.seed, label, _AHEAD, *self.part]))

    def _row(self, label: int, cells: Sequence[int], generator: np.random.Generator) -> Row:
        known = {column.name: cell for column, cell in zip(self.variables.columns, cells, strict=True)}
        known |= cells_of_label(self.variables.crossed, label)
        columns = self.variables.all_columns
        values = tuple(
            column.sample(known.get(column.name, 0), generator, self.spans.get(column.name, ())) for column in columns
        )
        named = zip(columns, values, strict=True)
        details = "; ".join(
            f"{column.name}: {shown(value)}"
            for column, value in named
            if value is not None and column.name in self.prompted
        )
        told = {column.name: value for column, value in zip(columns, values, strict=True) if column.name in self._told}
        wanted = {name: value for name, value in told.items() if value is not None}
        return Row(values, details, in_words(self.variables.columns, cells), wanted, tuple(cells))

    def _allowed(self, label: int) -> list[NDArray[np.float64]]:
        if not self.variables.labelled:
            return list(self.allowed)
        mine = np.arange(self.variables.sizes[0]) == label
        return [self.allowed[0] * mine, *self.allowed[1:]]

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Return ``Float64[labels]``: the probability of each label's rows that meet the condition."""
        found = self.distribution.shares(self.allowed)
        return found if self.variables.labelled else found.sum(keepdims=True)


def longest_details(variables: Variables | None, prompt_columns: str | Sequence[str]) -> str:
    """Return the longest row that a prompt may show: each prompted column with its longest value. Raises ConfigError if
    a column is missing."""
    prompted = _prompted(variables, prompt_columns) if variables else frozenset[str]()
    columns = [column for column in variables.all_columns if column.name in prompted] if variables else []
    return "; ".join(max((in_words([each], [cell]) for cell in range(each.missing)), key=len) for each in columns)


def _prompted(variables: Variables, asked: str | Sequence[str]) -> frozenset[str]:
    """Return the names of the columns that a prompt shows; ConfigError for one that rows do not have."""
    known = frozenset(column.name for column in variables.all_columns if not column.made_up)
    if asked == CATEGORIES:
        return frozenset(each.name for each in variables.columns if each.kind in ("category", "boolean")) & known
    if asked in (ALL, NONE):
        return known if asked == ALL else frozenset()
    names = [name.strip() for name in (asked.split(",") if isinstance(asked, str) else asked)]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"Prompts cannot show the column {name!r:.60}, because the rows do not have it.",
                f"Name some of these (prompt_columns in the prompt file): {', '.join(sorted(known))}; or all, or none.",
            )
    return frozenset(names)
