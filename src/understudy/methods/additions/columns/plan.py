"""The columns, before a private record is read: their charges, and what is left of the budget for the text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from understudy.base.errors import ConfigError
from understudy.methods.additions.columns.distribution import require_narrow
from understudy.methods.additions.columns.variables import COLUMNS, PAIRS, SCORES, TablesParameters, Variables
from understudy.models.machine import require_memory
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import NoisySum, Sensitivity, Shape, require_releasable
from understudy.privacy.plan import AddedCharges, Charge, Plan, plan_beside

_SELECTED = {COLUMNS: 0.2, SCORES: 0.1, PAIRS: 0.7}
_DECLARED = {COLUMNS: 0.35, PAIRS: 0.65}
_MOST_CELLS = 20_000_000


def parts(variables: Variables, parameters: TablesParameters) -> dict[str, float]:
    """The charges, each with its part of the columns' share of mu^2: pairs get more than single columns, as they have
    more cells, and are more where they are selected."""
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
    """The method's plan for what the columns leave of ``budget``, and the columns' charges behind its own."""
    require_measurable(variables, parameters)

    def plan_columns(multipliers: Sequence[float]) -> AddedCharges:
        charges = _charges(multipliers, variables, parameters)
        return AddedCharges(charges, _forecast(charges, variables, expected_records))

    shares = [share * part for part in parts(variables, parameters).values()]
    return plan_beside(plan_method, budget, plan_columns, shares=shares, what="columns")


def column_charges(budget: Budget, variables: Variables, parameters: TablesParameters) -> tuple[Charge, ...]:
    """The columns' charges where they get the whole of ``budget``."""
    return _charges(gaussian_split(budget, list(parts(variables, parameters).values())), variables, parameters)


def _charges(multipliers: Sequence[float], variables: Variables, parameters: TablesParameters) -> tuple[Charge, ...]:
    names = parts(variables, parameters)
    return tuple(_charge(name, noise, variables, parameters) for name, noise in zip(names, multipliers, strict=True))


def require_measurable(variables: Variables, parameters: TablesParameters) -> None:
    """See, before anything is charged, that all histograms can be counted, stored and fitted; else ConfigError."""
    declared = variables.pairs(parameters.column_pairs)
    pairs = variables.scored(parameters.column_pairs) if declared is None else declared
    cells = sum(math.prod(variables.sizes[each] for each in pair) for pair in pairs)
    if cells > _MOST_CELLS:
        raise ConfigError(
            f"The histograms of the columns have {cells:,} cells, and {_MOST_CELLS:,} are the most.",
            "Declare fewer values or bins, or name fewer column_pairs.",
        )
    require_releasable((cells,), cure="Declare fewer values or bins.")
    require_memory(8 * 6 * cells, what="The histograms of the columns", cure="Declare fewer values or bins.")
    require_narrow(variables.sizes, () if declared is None else declared)


def _charge(name: str, multiplier: float, variables: Variables, parameters: TablesParameters) -> Charge:
    sizes = variables.sizes
    pairs = variables.pairs(parameters.column_pairs)
    shape: Shape = (None,)
    if name == COLUMNS:
        sensitivity, shape = Sensitivity.of_counts(len(sizes)), (sum(sizes),)
        why = f"a noisy histogram of each of {', '.join(variables.names)}"
    elif name == SCORES:
        every = len(variables.scored(parameters.column_pairs))
        sensitivity, shape = Sensitivity.of_counts(every), (every,)
        why = "how far pairs and threes of columns are from independence, by which those to measure are selected"
    elif pairs is None:
        sensitivity = Sensitivity.of_shared_weight("gaussian", len(variables.scored(parameters.column_pairs)))
        why = "noisy histograms of the selected pairs and threes of columns, whose noise grows with their number"
    else:
        sensitivity = Sensitivity.of_counts(len(pairs))
        why = f"noisy histograms of {len(pairs)} pair(s) of columns"
    return Charge(name, NoisySum("gaussian", multiplier, sensitivity, shape), why)


def _forecast(charges: Sequence[Charge], variables: Variables, expected_records: int | None) -> Facts:
    noise = {charge.name: charge.mechanism.noise_std for charge in charges}  # type: ignore[attr-defined]
    titles = {COLUMNS: "a count of one column", SCORES: "the score of a pair or three", PAIRS: "a count of a pair"}
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
                "The histograms of the columns would be mostly noise: declare fewer values or bins, or give them more "
                "records or a larger epsilon.",
            )
    return Facts(tuple(entries), warnings)


_MOSTLY_NOISE = 0.3
