"""Charges beside a method's own: a share of the budget for what any method's Release may hold besides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from understudy.base.errors import ConfigError
from understudy.privacy.accountant import Composition, gaussian_split
from understudy.privacy.events import GaussianEvent
from understudy.privacy.facts import Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.secrets.budget import SecretBudget


@dataclass(frozen=True)
class Addition:
    """Charges of Gaussian noise, and the forecast of what they buy."""

    charges: tuple[Charge, ...]
    forecast: Facts


def plan_beside(
    plan_method: Callable[[Budget], Plan],
    budget: Budget | SecretBudget,
    plan_addition: Callable[[Sequence[float]], Addition],
    *,
    shares: Sequence[float],
    what: str,
) -> Plan:
    """The method's plan for what the addition leaves of ``budget``, and the addition's charges behind its own.

    The addition gets ``shares`` of mu^2, the squared parameter of the Gaussian mechanism that spends the whole budget.
    The method plans with the epsilon that the rest of mu^2 has at the budget's delta. For methods of Gaussian noise all
    together spend the budget to the last digit. For others what they compose to is computed, and the method's epsilon
    is searched for, so that together they spend no more, and about all of it.

    Args:
        plan_addition: its charges, given a noise multiplier for each of ``shares``.
        what: the addition is called, as its flags are.

    Raises:
        ConfigError: if the budget protects secrets or has no delta, or nothing is left for the method.
    """
    if isinstance(budget, SecretBudget):
        raise ConfigError(
            f"The {what} of a Release protects records and owners, not secrets.",
            f"Leave --{what} out, or give --epsilon and --delta.",
        )
    if budget.delta == 0:
        raise ConfigError(
            f"The noise of the {what} is Gaussian, which needs a delta.",
            f"Give a delta such as 1e-6, or leave --{what} out.",
        )
    *multipliers, rest = gaussian_split(budget, (*shares, 1 - math.fsum(shares)))
    added = plan_addition(multipliers)
    names = {charge.name for charge in added.charges}
    limit, delta = float(budget.epsilon), float(budget.delta)
    best: Plan | None = None
    low, high = 0.0, limit
    epsilon = min(Composition((GaussianEvent(rest),)).epsilon(delta), limit)
    for _ in range(_TRIES):
        if epsilon < _LEAST_EPSILON:
            break
        try:
            plan = plan_method(Budget(_digits(epsilon), budget.delta))
        except ConfigError:
            if best is None:
                raise
            break
        if names.intersection(each.name for each in plan.charges):
            raise ConfigError(f"The method {plan.method} releases a {what} by itself.", f"Leave --{what} out.")
        total = Composition(tuple(each.event for each in (*plan.charges, *added.charges))).epsilon(delta)
        if total <= limit:
            best, low = plan, epsilon
        else:
            high = epsilon
        if total <= limit and (total >= _ENOUGH * limit or high - low <= (1 - _ENOUGH) * high):
            break
        guess = 0.999 * epsilon * limit / total if total else high
        epsilon = guess if low < guess < high else (low + high) / 2
    if best is None:
        raise ConfigError(
            f"With this share for the {what} nothing is left for the method.",
            f"Give a larger --epsilon, or leave --{what} out.",
        )
    return replace(
        best,
        budget=budget,
        charges=(*best.charges, *added.charges),
        forecast=best.forecast + added.forecast,
    )


_ENOUGH = 0.98
"""Of the budget: no more is looked for."""
_TRIES = 20
_LEAST_EPSILON = 1e-9  # of any budget


def _digits(epsilon: float) -> Fraction:
    """Rounded down to a millionth of its size, in digits that a person can read."""
    step = Fraction(10) ** (math.floor(math.log10(epsilon)) - 6)
    return math.floor(Fraction(epsilon) / step) * step
