"""May this run still be charged? What is spent, what remains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from understudy.errors import BudgetExceeded, LedgerError
from understudy.ledger import caps, rows
from understudy.ledger.damage import reading_fields
from understudy.ledger.values import Dataset, canonical
from understudy.privacy.accountant import BudgetFilter, Spending
from understudy.privacy.exact import as_typed
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget

if TYPE_CHECKING:
    from understudy.privacy.secrets.composition import SecretFilter


def spent(connection: sa.Connection, dataset: Dataset) -> Budget | SecretBudget | None:
    """What the dataset's runs spend together; None if nothing is."""
    return _spent(dataset, _spendings(connection, dataset))


def remaining(dataset: Dataset, spent: Budget | SecretBudget | None) -> Budget | SecretBudget | None:
    """The cap less what is spent; None if no epsilon is left, or where secrets' posteriors cannot be subtracted."""
    cap = dataset.cap
    if spent is None:
        return cap
    if isinstance(cap, SecretBudget) or isinstance(spent, SecretBudget):
        return None
    epsilon = cap.epsilon - spent.epsilon
    delta = cap.delta - spent.delta if dataset.rule == "basic" else cap.delta
    return Budget.of(epsilon, delta) if epsilon > 0 else None


def admit(connection: sa.Connection, name: str, plan: Plan, run_id: str | None) -> bool:
    """True if the plan may be booked now, False if this run is booked already.

    Raises:
        BudgetExceeded: if the plan does not fit.
        LedgerError: if the dataset is not open or has another unit, or the run was charged otherwise.
    """
    dataset = rows.require(connection, name)
    if plan.unit.name != dataset.unit.name:
        raise LedgerError(
            f"Dataset {name!r} protects one {dataset.unit.name}, this run one {plan.unit.name}: "
            "what the two spend cannot be added.",
            f"Run with the unit {dataset.unit.name}, as the dataset was opened.",
        )
    if run_id is not None and (booked := rows.booked(connection, run_id)) is not None:
        owner, entry = booked
        if owner != name:
            raise LedgerError(
                f"This run was charged to the dataset {owner!r} before, and now names the dataset {name!r}.",
                f"Go on with --dataset {owner}, or start anew with --fresh (which charges again).",
            )
        same = (entry.method, entry.unit, entry.cost) == (plan.method, plan.unit, plan.budget)
        if not same or _terms(entry.charges) != _terms([charge.to_json() for charge in plan.charges]):
            raise LedgerError(
                "This run was charged before, with other charges.",
                "Run with the settings it began with, or start anew with --fresh (which charges again).",
            )
        return False
    history = _spendings(connection, dataset)
    so_far = _spent(dataset, history)
    budget_filter = _filter(dataset)
    if not budget_filter.admits(history, plan.spending):
        raise _exceeded(dataset, plan.budget, so_far, budget_filter.spent([*history, plan.spending]))
    return True


def require_same_draws(used: Mapping[str, str], kept: Mapping[str, str]) -> None:
    """See that every value of a run that was ever used is among those that are kept (digests, by name).

    Raises:
        LedgerError: if one is missing or another, so that a second draw of one charge would be used.
    """
    if not used.items() <= kept.items():
        raise LedgerError(
            "The values of this run were drawn and used already, from another copy of this folder.",
            "Use that folder, or start anew with --fresh (which charges again).",
        )


def _spendings(connection: sa.Connection, dataset: Dataset) -> list[Spending]:
    entries = rows.history(connection, dataset.name)
    return [spending for entry in entries if (spending := entry.spending(dataset.rule)) is not None]


def _spent(dataset: Dataset, history: list[Spending]) -> Budget | SecretBudget | None:
    with reading_fields():  # each may be a number, and their sum none
        return _filter(dataset).spent(history)


def _terms(charges: Iterable[Mapping[str, Any]]) -> str:
    """What two charges must share to be one: everything but the words that explain them."""
    return canonical([{key: value for key, value in charge.items() if key != "why"} for charge in charges])


def _filter(dataset: Dataset) -> BudgetFilter | SecretFilter:
    if isinstance(dataset.cap, SecretBudget):
        from understudy.privacy.secrets.composition import SecretFilter

        return SecretFilter(dataset.cap)
    return BudgetFilter(dataset.cap, dataset.rule)


def _exceeded(
    dataset: Dataset,
    asked: Budget | SecretBudget,
    spent: Budget | SecretBudget | None,
    together: Budget | SecretBudget | None,
) -> BudgetExceeded:
    if isinstance(asked, SecretBudget):
        so_far = f" (the runs so far to {_short(spent)})" if spent else ""
        return BudgetExceeded(
            f"The run asks for {asked}, but the cap of dataset {dataset.name!r} is {dataset.cap}: with this run, the "
            f"ledger's bound for all of them comes to {_short(together)}{so_far}.",
            f"Choose a smaller posterior, or raise the cap to that bound with: {caps.raising(dataset)}",
        )
    left = remaining(dataset, spent)
    return BudgetExceeded(
        f"The run asks for {asked}, but of the cap {dataset.cap} of dataset {dataset.name!r} "
        f"{spent or 'nothing'} is spent and {left or 'no epsilon'} remains.",
        f"Choose a smaller epsilon or delta, or raise the cap with: {caps.raising(dataset)}",
    )


def _short(budget: Budget | SecretBudget | None) -> str:
    """A secret budget in four digits, its posterior never rounded down."""
    assert isinstance(budget, SecretBudget)
    posterior = Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(float(budget.posterior)))
    return f"(p={as_typed(budget.prior)}, r={float(posterior):g})"
