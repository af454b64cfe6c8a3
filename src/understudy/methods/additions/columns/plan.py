"""Plan the typed columns before a private record is read: their charges, and the budget left for the texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.display import plural
from understudy.base.errors import ConfigError
from understudy.methods.additions.columns.distribution import require_narrow
from understudy.methods.additions.columns.variables import COLUMNS, PAIRS, SCORES, TablesParameters, Variables
from understudy.models.machine import require_memory
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import COUNT_GRID, QuerySpec, Sensitivity, Shape, require_releasable
from understudy.privacy.plan import AddedCharges, Charge, Plan, charges_of, plan_beside

_SELECTED = {COLUMNS: 0.2, SCORES: 0.1, PAIRS: 0.7}
_DECLARED = {COLUMNS: 0.35, PAIRS: 0.65}
_MOST_CELLS = 20_000_000


def parts(variables: Variables, parameters: TablesParameters) -> dict[str, float]:
    """Return the names of the columns' charges, with the fraction of the columns' budget (mu^2) that each gets. Pairs
    get more than single columns because they have more cells, and still more if they are selected."""
    pairs = variables.pairs(parameters.column_pairs)
    if pairs is None:
        return _SELECTED
    return _DECLARED if pairs else {COLUMNS: 1.0}


def plan_with_columns(
    plan_method: Callable[[Budget], Plan],
    budget: Budget | SecretBudget,
    *,
    variables: Variables,
    parameters: TablesParameters,
    share: float,
    expected_records: int | None,
) -> Plan:
    """Plan the columns with ``share`` of ``budget`` and the method with the rest; return one plan with all charges,
    those of the method first."""

    def plan_columns(multipliers: Sequence[float]) -> AddedCharges:
        charges = charges_of(_planned(variables, parameters), multipliers)
        return AddedCharges(charges, _forecast(charges, variables, expected_records))

    shares = [share * part for part in parts(variables, parameters).values()]
    return plan_beside(plan_method, budget, plan_columns, shares=shares, what="columns")


def column_charges(budget: Budget, variables: Variables, parameters: TablesParameters) -> tuple[Charge, ...]:
    """Return the charges of the columns if they may spend the whole ``budget``."""
    multipliers = gaussian_split(budget, list(parts(variables, parameters).values()))
    return charges_of(_planned(variables, parameters), multipliers)


def _planned(variables: Variables, parameters: TablesParameters) -> dict[str, tuple[QuerySpec, str]]:
    """Return the sum of each charge, and its purpose. Raises ConfigError if the histograms are too large to be counted,
    stored and fitted."""
    sizes, labelled, declared = variables.sizes, variables.labelled, variables.pairs(parameters.column_pairs)
    pairs = variables.scored(parameters.column_pairs) if declared is None else declared
    cells = sum(math.prod(sizes[each] for each in pair) for pair in pairs)
    if cells > _MOST_CELLS:
        raise ConfigError(
            f"The histograms of the columns have {cells:,} cells; at most {_MOST_CELLS:,} are allowed.",
            "Declare fewer values or bins, or name fewer column_pairs.",
        )
    require_releasable((cells,), cure="Declare fewer values or bins.")
    require_memory(8 * 6 * cells, what="The histograms of the columns", cure="Declare fewer values or bins.")
    require_narrow(sizes, () if declared is None else declared)
    singles = MarginalsSpec(sizes, tuple((each,) for each in range(len(sizes))), labelled)
    found: dict[str, tuple[QuerySpec, str]] = {
        COLUMNS: (singles, f"a noisy histogram of each of {', '.join(variables.names)}")
    }
    if declared is None:
        every = MarginalsSpec(sizes, pairs, labelled)
        found[SCORES] = ScoresSpec(every), _SCORES
        found[PAIRS] = SelectedMarginalsSpec(every), _PAIRS
    elif declared:
        why = f"noisy histograms of {plural(len(declared), 'pair')} of columns"
        found[PAIRS] = MarginalsSpec(sizes, declared, labelled), why
    return found


_SCORES = "how far pairs and triples of columns are from independence, which selects those to measure"
_PAIRS = "noisy histograms of the selected pairs and triples of columns, whose noise grows with their number"


@dataclass(frozen=True)
class MarginalsSpec:
    """Histograms of sets of variables, concatenated; the last variable of each set varies fastest. A record
    adds ``steps[i]`` to one cell of histogram i.

    If there are labels, the first variable is the label; the others are the typed columns.

    Args:
        steps: what a record adds to each histogram, in grid units; if empty, COUNT_GRID, so that records are counted.
    """

    sizes: tuple[int, ...]  # cells of each variable
    sets: tuple[tuple[int, ...], ...]  # of variables; a histogram each
    labelled: bool  # whether the first variable is the label
    steps: tuple[int, ...] = ()

    @property
    def sensitivity(self) -> Sensitivity:
        if not self.steps:
            return Sensitivity.of_counts(len(self.sets))
        squares = sum(step**2 for step in self.steps)
        return Sensitivity(sum(self.steps), math.isqrt(squares - 1) + 1, COUNT_GRID)

    @property
    def shape(self) -> tuple[int, ...]:
        return (int(self.starts[-1]),)

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the histograms of a vector of this shape, each with a dimension per variable."""
        return [
            values[start : start + math.prod(shape)].reshape(shape)
            for start, shape in zip(self.starts.tolist(), self._shapes, strict=False)
        ]

    @property
    def per_record(self) -> NDArray[np.float64]:
        """Return ``Float64[sets]``: what a record adds to each histogram, in units of the released value."""
        return np.array(self.steps or (COUNT_GRID,) * len(self.sets)) / COUNT_GRID

    def in_records(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert a vector of this shape from released units to records."""
        return values / np.repeat(self.per_record, np.diff(self.starts))

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(self.sizes[each] for each in chosen) for chosen in self.sets]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Return the offsets of the histograms, and the end of the last."""
        return np.cumsum([0, *(math.prod(shape) for shape in self._shapes)], dtype=np.int64)


@dataclass(frozen=True)
class ScoresSpec:
    """How far each of the ``sets`` is from independence: a record moves each score by 1 at most."""

    sets: MarginalsSpec

    @property
    def sensitivity(self) -> Sensitivity:
        return self.sets.sensitivity

    @property
    def shape(self) -> Shape:
        return (len(self.sets.sets),)


@dataclass(frozen=True)
class SelectedMarginalsSpec:
    """Histograms of some of these sets, which are selected after the charge. Whatever sets are selected, the L2
    sensitivity of all together is 1, so the noise can be planned before."""

    every: MarginalsSpec

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_shared_weight("gaussian", len(self.every.sets))

    @property
    def shape(self) -> Shape:
        return (None,)

    def of(self, sets: tuple[tuple[int, ...], ...], shares: NDArray[np.float64]) -> MarginalsSpec:
        """Return the spec of one histogram for each set of columns.

        Args:
            shares: what a record adds to each, ``Float64[sets]`` of L2 norm 1; rounded down, so that the norm is kept.
        """
        steps = np.floor(shares * (COUNT_GRID * (1 - 1e-12))).astype(np.int64)
        return replace(self.every, sets=sets, steps=tuple(steps.tolist()))


def _forecast(charges: Sequence[Charge], variables: Variables, expected_records: int | None) -> Facts:
    noise = {charge.name: charge.mechanism.noise_std for charge in charges}  # type: ignore[attr-defined]
    titles = {COLUMNS: "a count of one column", SCORES: "the score of a pair or triple", PAIRS: "a count of a pair"}
    if SCORES in noise:
        tree = len(variables.sizes) - 1
        noise[PAIRS] *= math.sqrt(tree)
        titles[PAIRS] += f" if {tree} are selected"
    entries = [
        Fact(f"{name}_noise".replace("-", "_"), std, f"noise on {titles[name]} (records)")
        for name, std in noise.items()
    ]
    warnings: tuple[str, ...] = ()
    if expected_records is not None:
        name = PAIRS if PAIRS in noise else COLUMNS
        cells = sorted(
            math.prod(variables.sizes[each] for each in pair)
            for pair in (variables.all_pairs if name == PAIRS else [(each,) for each in range(len(variables.sizes))])
        )
        typical = cells[len(cells) // 2]
        error = min(1.0, typical * noise[name] * math.sqrt(2 / math.pi) / (2 * expected_records))
        title = "total variation that noise alone adds to a typical histogram (about, at most)"
        entries.append(Fact("columns_error", error, title))
        if error > _MOSTLY_NOISE:
            warnings = (
                "The histograms of the columns would be mostly noise: declare fewer values or bins, use more records, "
                "or choose a larger epsilon.",
            )
    return Facts(tuple(entries), warnings)


_MOSTLY_NOISE = 0.3
