"""Typed columns, the only code that reads private records: noisy histograms, and the model fitted to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.display import plural
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.additions.columns.distribution import Distribution
from understudy.methods.additions.columns.fitting import Worth, fit, select_sets, shares
from understudy.methods.additions.columns.marginals import IndependenceScores, Marginals, independent
from understudy.methods.additions.columns.plan import ScoresSpec, SelectedMarginalsSpec
from understudy.methods.additions.columns.variables import (
    CHOSEN,
    COLUMNS,
    LOGARITHMS,
    PAIRS,
    SCORES,
    TREE,
    Scope,
    TablesParameters,
    Variables,
)
from understudy.methods.base import Released, ReleaseTools
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays


def release(
    corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools, *, variables: Variables, parameters: TablesParameters
) -> Released:
    """Release the typed columns of the records.

        singles = histogram of each variable + noise                             charge "columns"
        scores  = |histogram of each pair or three - of independence|_1 + noise  charge "column-scores"
        m sets  = those whose measurement is expected to gain more than the noise on it loses
        sets    = (share of each set * its histogram + noise) / the share        charge "column-pairs"

    Guarantee:
        Unit: a record, or an owner of whom at most k records are averaged. Three
        :class:`~understudy.privacy.mechanisms.NoisySum`, over
        :class:`~understudy.methods.additions.columns.marginals.Marginals` and
        :class:`~understudy.methods.additions.columns.marginals.IndependenceScores`. Which sets are scored follows from
        the declared domains; what is expected of independence is computed from the noisy singles; which sets are
        measured, and how many, from the noisy scores. The shares of their histograms have L2 norm 1
        (:func:`~understudy.methods.additions.columns.fitting.shares`), so that the sensitivity is the 1 that was
        planned, whatever sets there are. The model is fitted to noisy values alone. Where the pairs are declared,
        there is no second sum, and a record adds 1 to each histogram.
    """

    noise: set[str] = set()

    def measured(name: str, query: Query[Any]) -> NDArray[np.float64]:
        found = tools.measure(name, query, corpus)
        noise.add(found.seal.noise)
        return found.value

    def std(name: str) -> float:
        return 0.0 if "none" in noise else float(plan.mechanism(name).noise_std)

    marginals = measure_marginals(variables, parameters, plan.query, measured, std, tools.keep)

    def fitted() -> dict[str, NDArray[Any]]:
        tools.say("Fitting the distribution of rows.")
        return {LOGARITHMS: np.concatenate([table.ravel() for _, table in marginals.fitted().factors])}

    arrays = {**marginals.arrays, LOGARITHMS: tools.keep("columns model", fitted)[LOGARITHMS]}
    arrays[CHOSEN] = _in_rows(marginals.sets)
    check = _noise_check(variables, marginals.singles, marginals.sets, marginals.single_std)
    return Released(arrays, public_inputs={"columns": _domains(variables)}, noise_check=check)


def _in_rows(sets: Sequence[Scope]) -> NDArray[np.int64]:
    """Return ``Int64[sets, widest]``; a narrower set repeats its last variable."""
    widest = max(map(len, sets), default=2)
    rows = [(*each, *each[-1:] * (widest - len(each))) for each in sets]
    return np.array(rows, dtype=np.int64).reshape(-1, widest)


@dataclass(frozen=True, eq=False)
class NoisyMarginals:
    """The noisy histograms of each variable and of the measured sets, with the standard deviations of their noise, and
    all arrays of the Release."""

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
    planned: Callable[[str], Any],
    measure: Callable[[str, Query[Any]], NDArray[np.float64]],
    std: Callable[[str], float],
    keep: Callable[[str, Callable[[], Arrays]], Arrays],
) -> NoisyMarginals:
    """Measure the histograms as :func:`release` describes.

    Args:
        planned: returns the planned sum of a charge, by its name.
        measure: returns the noisy value of a charge's query.
        std: returns the standard deviation of a charge's noise; called after its measurement.
        keep: stores the selected sets, which a resumed run must find unchanged, since they identify the histograms.
    """
    sizes, labelled = variables.sizes, variables.labelled
    arrays = {COLUMNS: measure(COLUMNS, Marginals(planned(COLUMNS)))}
    singles, single_std = planned(COLUMNS).split(arrays[COLUMNS]), std(COLUMNS)
    sets = variables.pairs(parameters.column_pairs)
    if sets is None:
        scores: ScoresSpec = planned(SCORES)
        every = scores.sets
        expected = independent(every, singles, float(np.mean([each.sum() for each in singles])))
        arrays[SCORES] = measure(SCORES, IndependenceScores(scores, expected))
        noisy = zip(arrays[SCORES].tolist(), every.split(expected / COUNT_GRID), strict=True)
        worths = [Worth(*each, std(SCORES)) for each in noisy]
        tree = parameters.column_pairs == TREE

        def selected() -> Arrays:
            return {
                CHOSEN: _in_rows(select_sets(sizes, every.sets, worths, std=std(PAIRS), labelled=labelled, tree=tree))
            }

        sets = tuple(tuple(sorted({*row})) for row in keep("columns sets", selected)[CHOSEN].tolist())
    if not sets:
        return NoisyMarginals(sizes, singles, single_std, (), [], [], arrays)
    spec = planned(PAIRS)
    if isinstance(spec, SelectedMarginalsSpec):
        spec = spec.of(sets, shares(sizes, sets))
    arrays[PAIRS] = spec.in_records(measure(PAIRS, Marginals(spec)))
    stds = [std(PAIRS) / each for each in spec.per_record.tolist()]
    return NoisyMarginals(sizes, singles, single_std, sets, spec.split(arrays[PAIRS]), stds, arrays)


def _domains(variables: Variables) -> dict[str, str]:
    """Return the statement's entry on the columns' domains: that they were declared, and their SHA-256."""
    text = json.dumps([column.to_json() for column in variables.all_columns], sort_keys=True)
    count = len(variables.all_columns)
    return {
        "source": f"declared domains of {plural(count, 'column')}",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def _noise_check(
    variables: Variables, singles: Sequence[NDArray[np.float64]], sets: Sequence[Scope], std: float
) -> Facts:
    """Return how many cells of the columns are above their noise, and which sets were measured."""
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
