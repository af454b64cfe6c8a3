"""Typed columns in a run: measured beside what the method releases, and rows sampled for what it writes."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.columns import Column, Span, in_words
from understudy.base.errors import ConfigError
from understudy.base.labels import in_proportion
from understudy.base.transcript import PLAIN, TextForm
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.shared.queries.marginals import IndependenceScores, Marginals, independent
from understudy.methods.shared.tables.distribution import Distribution, distribution_of
from understudy.methods.shared.tables.fitting import Worth, fit, select_sets, shares
from understudy.methods.shared.tables.variables import (
    ALL,
    CHOSEN,
    COLUMNS,
    LOGARITHMS,
    NONE,
    PAIRS,
    SCORES,
    TREE,
    Scope,
    TablesParameters,
    Variables,
    cells_of_label,
    has_columns,
    in_one_line,
    variables_of,
)
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.release import Release
from understudy.text.prompts.template import CATEGORIES
from understudy.text.writing import Row, SyntheticRecord, shown

_IMPOSSIBLE = 1e-12
"""Share of all rows below which a condition counts as met by none."""
_AHEAD = 256


def with_columns(
    released: Released,
    corpus: BoundedCorpus,
    plan: Plan,
    tools: ReleaseTools,
    *,
    variables: Variables,
    parameters: TablesParameters,
) -> Released:
    """What a method released, and the typed columns of the same records.

        singles = histogram of each variable + noise                             charge "columns"
        scores  = |histogram of each pair or three - of independence|_1 + noise  charge "column-scores"
        m sets  = those of which more is to be learnt than noise on them is expected to cost
        sets    = (share of each set * its histogram + noise) / the share        charge "column-pairs"

    Guarantee:
        Unit: a record, or an owner of whom at most k records are averaged. Three
        :class:`~understudy.privacy.mechanisms.NoisySum`, over
        :class:`~understudy.methods.shared.queries.marginals.Marginals` and
        :class:`~understudy.methods.shared.queries.marginals.IndependenceScores`. Which sets are scored follows from
        the declared domains; what is expected of independence is computed from the noisy singles; which sets are
        measured, and how many, from the noisy scores. The shares of their histograms have L2 norm 1
        (:func:`~understudy.methods.shared.tables.fitting.shares`), so that the sensitivity is the 1 that was planned,
        whatever sets there are. The model is fitted to noisy values alone. Where the pairs are declared, there is no
        second sum, and a record adds 1 to each histogram.
    """

    noise: set[str] = set()

    def measured(name: str, query: Query[Any]) -> NDArray[np.float64]:
        found = tools.measure(name, query, corpus)
        noise.add(found.seal.noise)
        return found.value

    def std(name: str) -> float:
        return 0.0 if "none" in noise else float(plan.mechanism(name).noise_std)

    marginals = measure_marginals(variables, parameters, measured, std, tools.keep)

    def fitted() -> dict[str, NDArray[Any]]:
        tools.say("Fitting the distribution of rows.")
        return {LOGARITHMS: np.concatenate([table.ravel() for _, table in marginals.fitted().factors])}

    arrays = {**marginals.arrays, LOGARITHMS: tools.keep("columns model", fitted)[LOGARITHMS]}
    arrays[CHOSEN] = _in_rows(marginals.sets)
    check = _noise_check(variables, marginals.singles, marginals.sets, marginals.single_std)
    return released | Released(arrays, public_inputs={"columns": _domains(variables)}, noise_check=check)


def _in_rows(sets: Sequence[Scope]) -> NDArray[np.int64]:
    """``Int64[sets, widest]``, the last variable of a narrower one again."""
    widest = max(map(len, sets), default=2)
    rows = [(*each, *each[-1:] * (widest - len(each))) for each in sets]
    return np.array(rows, dtype=np.int64).reshape(-1, widest)


@dataclass(frozen=True, eq=False)
class NoisyMarginals:
    """The histograms of each variable and of the sets that were measured, with the standard deviations of their
    noise; and all that was measured, as the Release has it."""

    sizes: tuple[int, ...]
    singles: Sequence[NDArray[np.float64]]
    single_std: float
    sets: tuple[Scope, ...]
    histograms: Sequence[NDArray[np.float64]]
    set_stds: Sequence[float]
    arrays: dict[str, NDArray[Any]]

    def fitted(self) -> Distribution:
        return fit(
            *(self.sizes, self.singles, self.sets, self.histograms),
            single_std=self.single_std,
            set_stds=self.set_stds,
        )


def measure_marginals(
    variables: Variables,
    parameters: TablesParameters,
    measure: Callable[[str, Query[Any]], NDArray[np.float64]],
    std: Callable[[str], float],
    keep: Callable[[str, Callable[[], Arrays]], Arrays],
) -> NoisyMarginals:
    """As :func:`with_columns` says.

    Args:
        measure: the noisy value of a charge's query.
        std: of a charge's noise; asked once something was measured.
        keep: what a resumed run must find as it was: the selection, by which the histograms are told apart.
    """
    sizes, labelled = variables.sizes, variables.labelled
    single = Marginals(sizes, tuple((each,) for each in range(len(sizes))), labelled)
    arrays = {COLUMNS: measure(COLUMNS, single)}
    singles, single_std = single.split(arrays[COLUMNS]), std(COLUMNS)
    declared = variables.pairs(parameters.column_pairs)
    if declared is not None:
        sets, query = declared, Marginals(sizes, declared, labelled)
    else:
        every = Marginals(sizes, variables.scored(parameters.column_pairs), labelled)
        expected = independent(every, singles, float(np.mean([each.sum() for each in singles])))
        arrays[SCORES] = measure(SCORES, IndependenceScores(every, expected))
        noisy = zip(arrays[SCORES].tolist(), every.split(expected / COUNT_GRID), strict=True)
        worths = [Worth(*each, std(SCORES)) for each in noisy]
        tree = parameters.column_pairs == TREE

        def selected() -> Arrays:
            return {
                CHOSEN: _in_rows(select_sets(sizes, every.sets, worths, std=std(PAIRS), labelled=labelled, tree=tree))
            }

        sets = tuple(tuple(sorted({*row})) for row in keep("columns sets", selected)[CHOSEN].tolist())
        query = Marginals.sharing(sizes, sets, labelled=labelled, shares=shares(sizes, sets))
    if not sets:
        return NoisyMarginals(sizes, singles, single_std, (), [], [], arrays)
    arrays[PAIRS] = query.in_records(measure(PAIRS, query))
    stds = [std(PAIRS) / each for each in query.per_record.tolist()]
    return NoisyMarginals(sizes, singles, single_std, sets, query.split(arrays[PAIRS]), stds, arrays)


def _domains(variables: Variables) -> dict[str, str]:
    """What the statement says of the domains: they were declared, and what they are is in the Release."""
    text = json.dumps([column.to_json() for column in variables.all_columns], sort_keys=True)
    count = len(variables.all_columns)
    return {"source": f"declared domains of {count} column(s)", "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _noise_check(
    variables: Variables, singles: Sequence[NDArray[np.float64]], sets: Sequence[Scope], std: float
) -> Facts:
    """How many cells of the columns stand above their noise, and which sets were measured."""
    names = variables.names
    above = (f"{name} {int((each > 2 * std).sum())} of {each.size}" for name, each in zip(names, singles, strict=True))
    entries = [
        Fact("column_cells", ", ".join(above), "cells above the noise"),
        Fact(
            "column_pairs",
            "; ".join(" with ".join(names[each] for each in scope) for scope in sets) or "none",
            "columns measured together",
        ),
    ]
    return Facts(tuple(entries))


@dataclass(frozen=True)
class _Told:
    """A column that is told from a text: which variable it is, and what a condition asks of it."""

    column: Column
    place: int
    allowed: NDArray[np.float64]
    spans: tuple[Span, ...]

    def meets(self, value: int | str | None) -> bool:
        """Whether a value meets the condition."""
        cell = self.column.cell(value)
        if cell is None or not self.allowed[cell]:
            return False
        if not self.spans or not isinstance(value, int):
            return True
        nearest = min(max(value, self.column.least), self.column.most)  # as beyond the range
        return any(low <= nearest <= high for low, high in self.spans)


@dataclass(frozen=True)
class TableRows:
    """Rows of a Release's distribution, sampled as they are needed: :class:`~understudy.text.writing.Rows`.

    Args:
        allowed: per variable ``Float64[size]``, the share of each cell that a condition leaves.
        spans: by column the values within bins that it asks for.
        condition: in words; empty for none.
        form: the parts that texts have.
        part: of a release, which has rows of its own.
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
        """None where the Release has no typed columns."""
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
            raise ConfigError("No row of the Release meets the condition (--where).", "Ask for fewer things at once.")
        return rows

    def counts(self, records: int) -> list[int]:
        """``records`` shared out over the labels as the rows that meet the condition are."""
        return in_proportion(records, self.shares.tolist())

    def require(self, counts: Sequence[int]) -> None:
        """See that there are rows of every label that records are wanted of; else ConfigError."""
        for label, count in enumerate(counts):
            if count and self.shares[label] < _IMPOSSIBLE:
                raise ConfigError(
                    f"No row with the label {self.variables.labels.titles[label]!r:.60} meets the condition (--where).",
                    "Ask for --records N in all, which are shared out over the labels that do.",
                )

    def take(self, label: int) -> Row:
        """As :class:`~understudy.text.writing.Rows`."""
        ready = self._ready.setdefault(label, deque())
        if not ready:
            generator = self._generator(label)
            sampled = self.distribution.sample(_AHEAD, self._allowed(label), generator)
            ready.extend(self._row(label, cells, generator) for cells in sampled[:, self._first :].tolist())
        return ready.popleft()

    def completed(self, record: SyntheticRecord) -> SyntheticRecord | None:
        """The record with a row: its own, or one that goes with its label and with what its text tells. What the text
        tells is written as it is. None where that does not meet the condition.
        """
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
        """A row with this label and what a text tells, if there is one; else with the label alone."""
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
        """The columns that are computed from a text, by name."""
        return {
            column.name: _Told(column, place, self.allowed[place], self.spans.get(column.name, ()))
            for place, column in enumerate(self.variables.columns, self._first)
            if column.name in self.form.told
        }

    @property
    def _first(self) -> int:
        """The place of the first typed column among the variables."""
        return int(self.variables.labelled)

    def of_part(self, part: tuple[int, ...]) -> TableRows:
        """Others, for a part of a release: the same ones at every call."""
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
        """``Float64[labels]``: how probable rows of each label are that meet the condition."""
        found = self.distribution.shares(self.allowed)
        return found if self.variables.labelled else found.sum(keepdims=True)


def longest_details(variables: Variables | None, prompt_columns: str | Sequence[str]) -> str:
    """A row as a prompt shows it, each column with its longest value. ConfigError for one that is not there."""
    prompted = _prompted(variables, prompt_columns) if variables else frozenset[str]()
    columns = [column for column in variables.all_columns if column.name in prompted] if variables else []
    return "; ".join(max((in_words([each], [cell]) for cell in range(each.missing)), key=len) for each in columns)


def _prompted(variables: Variables, asked: str | Sequence[str]) -> frozenset[str]:
    """The names of the columns that a prompt shows; ConfigError for one that is not there to be shown."""
    known = frozenset(column.name for column in variables.all_columns if not column.made_up)
    if asked == CATEGORIES:
        return frozenset(each.name for each in variables.columns if each.kind in ("category", "boolean")) & known
    if asked in (ALL, NONE):
        return known if asked == ALL else frozenset()
    names = [name.strip() for name in (asked.split(",") if isinstance(asked, str) else asked)]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"A prompt is to show the column {name!r:.60}, and rows have none of that name to show.",
                f"Name some of these (prompt_columns in the prompt file): {', '.join(sorted(known))}; or all, or none.",
            )
    return frozenset(names)
