"""The guide, before a private record is read: its charge, and what is left of the budget for the method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from understudy.errors import ConfigError
from understudy.guide.form import VECTOR_WEIGHT, guide_sensitivity
from understudy.guide.parameters import GuideParameters
from understudy.models.machine import require_memory
from understudy.privacy.accountant import Composition, gaussian_split
from understudy.privacy.events import GaussianEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import NoisySum, require_releasable
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.secrets.budget import SecretBudget

GUIDE = "guide"
"""The charge, and the array of the Release."""


def guide_charge(multiplier: float, labels: int) -> Charge:
    """One noisy sum per label, jointly over labels, with this noise multiplier."""
    mechanism = NoisySum("gaussian", multiplier, guide_sensitivity(), (labels, None))
    return Charge(GUIDE, mechanism, f"noisy sums of the texts' embeddings for each of {labels} label(s)")


def require_guide_fits(labels: int, dimension: int) -> None:
    """See, before anything is charged, that the sums can be stored and held; else ConfigError."""
    require_releasable((labels, 1 + dimension), cure="Declare fewer labels.")
    numbers = labels * (1 + dimension)
    require_memory(numbers * _BYTES, what="The sums of the guide", cure="Declare fewer labels.")


_BYTES = 8 * 4
"""Of a number: a batch's sum, all batches' sum, the noise and the noisy sum."""


def plan_with_guide(
    plan_method: Callable[[Budget], Plan],
    budget: Budget | SecretBudget,
    *,
    share: float,
    labels: int,
    expected_records: int | None,
) -> Plan:
    """The method's plan for what the guide leaves of ``budget``, and the guide's charge behind its own.

    The guide gets ``share`` of mu^2, the squared parameter of the Gaussian mechanism that spends the whole budget. The
    method plans with the epsilon that the rest of mu^2 has at the budget's delta. For methods of Gaussian noise both
    together spend the budget to the last digit. For others what they compose to is computed, and the method's epsilon
    is searched for, so that together they spend no more, and about all of it.

    Raises:
        ConfigError: if the budget protects secrets or has no delta, or nothing is left for the method.
    """
    if isinstance(budget, SecretBudget):
        raise ConfigError(
            "A guide protects records and owners, not secrets.", "Leave --guide out, or give --epsilon and --delta."
        )
    if budget.delta == 0:
        raise ConfigError(
            "The noise of a guide is Gaussian, which needs a delta.", "Give a delta such as 1e-6, or leave --guide out."
        )
    guide, rest = gaussian_split(budget, (share, 1 - share))
    charge = guide_charge(guide, labels)
    bought = forecast(charge, labels=labels, expected_records=expected_records)
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
        if any(each.name == GUIDE for each in plan.charges):
            raise ConfigError(f"The method {plan.method} releases a guide by itself.", "Leave --guide out.")
        total = Composition((*(each.event for each in plan.charges), charge.event)).epsilon(delta)
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
            "With this share for the guide nothing is left for the method.",
            "Lower --guide-share, or leave --guide out.",
        )
    return replace(
        best,
        budget=budget,
        charges=(*best.charges, charge),
        forecast=Facts((*best.forecast.entries, *bought.entries), (*best.forecast.warnings, *bought.warnings)),
    )


_ENOUGH = 0.98
"""Of the budget: no more is looked for."""
_TRIES = 20
_LEAST_EPSILON = 1e-9  # of any budget


def _digits(epsilon: float) -> Fraction:
    """Rounded down to a millionth of its size, in digits that a person can read."""
    step = Fraction(10) ** (math.floor(math.log10(epsilon)) - 6)
    return math.floor(Fraction(epsilon) / step) * step


def forecast(charge: Charge, *, labels: int, expected_records: int | None) -> Facts:
    """How far the sums stand above their noise."""
    multiplier = charge.mechanism.noise_multiplier  # type: ignore[attr-defined]
    entries = [Fact("guide_noise", multiplier / VECTOR_WEIGHT, "guide noise on a coordinate of a label's sum (texts)")]
    if expected_records is None:
        return Facts(tuple(entries))
    ratio = _signal_to_noise(multiplier, expected_records / labels)
    entries.append(Fact("guide_signal_to_noise", ratio, "guide signal to noise of a label of average size (about)"))
    return Facts(tuple(entries), (_MOSTLY_NOISE,) if ratio < _LEAST else ())


def recommendation(budget: Budget, *, labels: int, expected_records: int) -> Facts:
    """The share of the budget that a guide should get: 0 where it would be mostly noise and only cost."""
    share = RECOMMENDED
    multiplier = gaussian_split(budget, (share, 1 - share))[0]
    if _signal_to_noise(multiplier, expected_records / labels) < _LEAST:
        share = 0.0
    return Facts((Fact("recommended_guide_share", share, "recommended share of a guide (--guide --guide-share)"),))


RECOMMENDED = GuideParameters().guide_share
_DISTANCE, _DIMENSION = 0.35, 384
"""Of a label's mean from the mean of all, and of the vectors: about those of the built-in embedder."""
_LEAST = 0.5
_MOSTLY_NOISE = (
    "The guide would be mostly noise, and only cost: leave it out, or give it more records, fewer labels, a larger "
    "epsilon or a higher --guide-share."
)


def _signal_to_noise(multiplier: float, records: float) -> float:
    """Of the distance of a label of so many records from the others."""
    return records * _DISTANCE * VECTOR_WEIGHT / (multiplier * math.sqrt(_DIMENSION))
