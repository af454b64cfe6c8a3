"""Typed columns for any method's texts: their joint distribution is released, and each text gets a row of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, Self

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.methods.additions.base import Addition, Releasing, Use, Writing
from understudy.methods.additions.columns.plan import parts, plan_with_columns
from understudy.methods.additions.columns.release import release
from understudy.methods.additions.columns.rows import TableRows, longest_details
from understudy.methods.additions.columns.variables import (
    CHOSEN,
    COLUMNS,
    COLUMNS_SHARE,
    LARGEST_LOGARITHM,
    LOGARITHMS,
    PAIRS,
    SCORES,
    RowsParameters,
    TablesParameters,
    Variables,
    has_columns,
    parameters_of,
    variables_of,
)
from understudy.methods.base import Method, Preparation, needed
from understudy.methods.facts import PublicFacts
from understudy.methods.release_schema import Contents, Held
from understudy.privacy.events import GaussianEvent
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.schema.columns import Column
from understudy.schema.labels import LabelSet
from understudy.text.records import SyntheticRecord
from understudy.text.writing import NoText


@dataclass(frozen=True)
class Columns(Addition):
    """The typed columns of any method's Release, with its label."""

    name: ClassVar[str] = "columns"
    parameters: ClassVar[type[Parameters]] = TablesParameters
    writing: ClassVar[type[Parameters]] = RowsParameters

    settings: TablesParameters
    label: str | None
    typed: tuple[Column, ...]
    crossed: tuple[Column, ...]
    labels: LabelSet

    @classmethod
    def of(cls, settings: Parameters, facts: PublicFacts) -> Self | None:
        if not facts.typed:
            return None
        return cls(settings.part(TablesParameters), facts.label, facts.typed, facts.crossed, facts.labels)

    def variables(self, labels: LabelSet) -> Variables:
        """Return the table's variables, with these labels."""
        return Variables(self.label, labels, self.typed, self.crossed)

    def is_first(self, method: Method) -> bool:
        return method.needs.rows

    def plan(self, facts: PublicFacts, plan_rest: Callable[[Any], Plan], budget: Any) -> Plan:
        return plan_with_columns(
            plan_rest,
            budget,
            variables=self.variables(facts.labels),
            parameters=self.settings,
            share=COLUMNS_SHARE,
            expected_records=facts.expected_records,
        )

    def prepare(self, preparation: Preparation) -> Self:
        if find_spec("mbi") is None:
            problem = "Columns are fitted by the package mbi, which is not installed."
            raise ConfigError(problem, 'Install "understudy[tables]".')
        return self

    def release(self, at: Releasing, plan: Plan) -> Releasing:
        variables = self.variables(at.tools.labels)
        made = release(at.corpus, plan, at.tools, variables=variables, parameters=self.settings)
        held = replace(at.planned, arrays=dict(made.arrays))

        @cache
        def rows() -> TableRows:
            return needed(TableRows.of(held, seed=at.tools.seed))

        tools = replace(at.tools, rows=lambda part: rows().of_part(part))
        return replace(at, released=at.released | made, tools=tools)

    @property
    def stored(self) -> dict[str, Any]:
        return self.settings.model_dump(mode="json")

    def planned(self, planned: Release) -> Release:
        return replace(planned, schema=replace(planned.schema, columns=self.typed))

    def details(self, prompted: str | Sequence[str]) -> str:
        return longest_details(self.variables(self.labels), prompted)

    @classmethod
    def is_in(cls, release: Release) -> bool:
        return has_columns(release)

    @classmethod
    def check(cls, release: Release) -> None:
        parts(variables_of(release), parameters_of(release))

    @classmethod
    def contents(cls, contents: Contents, release: Release) -> Contents:
        """Describe the noisy histograms, the measured sets of columns, and the fitted model. Raises ConfigError if a
        declared pair is not a pair of columns."""
        variables, parameters = variables_of(release), parameters_of(release)
        declared, charged = variables.pairs(parameters.column_pairs), parts(variables, parameters)
        shapes: dict[str, int | str] = {
            COLUMNS: sum(variables.sizes),
            SCORES: "sets that were scored",
            PAIRS: "cells of sets",
        }
        sets = "sets" if declared is None else len(declared)
        arrays = {
            **{name: Held("float64", (size,)) for name, size in shapes.items() if name in charged},
            LOGARITHMS: Held("float64", ("numbers of the model",), -LARGEST_LOGARITHM, 0.0),
            CHOSEN: Held("int64", (sets, "of a set"), 0, len(variables.sizes) - 1),
        }
        return contents.joined(dict.fromkeys(charged, GaussianEvent.kind), arrays)

    @classmethod
    def use(cls, release: Release, writing: Writing) -> Use | None:
        where = writing.wanted.where
        rows = TableRows.of(release, seed=writing.seed, where=where, prompt_columns=writing.prompted)
        return _RowsOfTexts(rows=needed(rows))


@dataclass(frozen=True, kw_only=True)
class _RowsOfTexts(Use):
    """Gives each text a row of typed columns that fits its label and the values computed from the text."""

    rows: TableRows

    @property
    def condition(self) -> str:  # type: ignore[override]
        return self.rows.condition

    def share_out(self, records: int) -> list[int]:
        return self.rows.counts(records)

    def require(self, counts: Sequence[int]) -> None:
        self.rows.require(counts)

    def lines(self) -> Sequence[str]:
        if not self.condition:
            return ()
        return (f"The condition holds for {self.rows.shares.sum():.2%} of the rows of the released distribution.",)

    def completed(self, written: Sequence[SyntheticRecord]) -> list[SyntheticRecord]:
        found = [record for record in map(self.rows.completed, written) if record is not None]
        if written and not found:
            raise NoText(
                "No written dialogue meets the condition (--where).",
                "Relax the conditions on columns computed from the dialogue, or name another language model (--llm).",
            )
        return found
