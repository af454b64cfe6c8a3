"""What (epsilon, delta) promises for one record or owner, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from understudy.privacy.exact import as_typed
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.release.statement import everywhere
from understudy.release.statement.rounding import in_a_hundred, round_up

DELTAS = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
NOT_COVERED = (
    everywhere.POPULATION,
    "Other runs on the same data: their budgets add up (see the ledger).",
    everywhere.SELECTION,
    "Groups: k units together are protected k times more weakly in epsilon, and delta grows faster.",
    everywhere.ENDING,
    everywhere.LANGUAGE_MODEL,
)
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class EpsilonPromise:
    """``(epsilon, delta)``-differential privacy, with epsilon at several deltas and the power of a test."""

    budget: Budget
    epsilon_at: Mapping[float, float]
    power: float
    neighbours: ClassVar[str] = "add or remove one unit"
    not_covered: ClassVar[tuple[str, ...]] = NOT_COVERED

    def words(self) -> str:
        epsilon, delta = as_typed(self.budget.epsilon), as_typed(self.budget.delta)
        exponent = float(self.budget.epsilon)
        odds = round_up(math.exp(exponent)) if exponent < _LARGEST_EXPONENT else f"e^{epsilon}"
        more = f", plus {delta}" if self.budget.delta else ""
        return (
            "Take any one unit. The probability of any outcome, whatever is in the Release or in a text made from it, "
            f"is at most {odds} times that without the unit{more}; and without the unit at most {odds} times that "
            f"with it{more}: ({epsilon}, {delta})-differential privacy; neighbours add or remove one unit.\n\n"
            f"In other words: whoever guesses from it whether one given unit was in the data, and is wrong about 1 in "
            f"100 units that were not, is right about at most {in_a_hundred(self.power)} in 100 that were, whatever "
            "else they know."
        )

    def table(self) -> list[str]:
        rows = (f"| {delta:g} | {round_up(epsilon)} |" for delta, epsilon in self.epsilon_at.items())
        return ["| at delta | epsilon |", "|---|---|", *rows]


def epsilon_at(plan: Plan) -> dict[float, float]:
    """epsilon at the booked delta and at several others; infinite ones are left out."""
    deltas = {*([float(plan.budget.delta)] if isinstance(plan.budget, Budget) else []), *DELTAS}
    values = {delta: plan.composition.epsilon(delta) for delta in sorted(deltas, reverse=True)}
    return {delta: epsilon for delta, epsilon in values.items() if math.isfinite(epsilon)}
