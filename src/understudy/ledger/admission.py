"""Decide whether a run may be charged, and compute what is spent, what remains and which caps are allowed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from fractions import Fraction

import sqlalchemy as sa

from understudy.base.errors import BudgetExceeded, ConfigError, LedgerError
from understudy.ledger import rows
from understudy.ledger.values import Balance, Dataset, both, reading_fields, require_name
from understudy.privacy.accountant import BudgetFilter, CrossRunRule, Spending
from understudy.privacy.exact import as_typed, round_up
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan, require_budget_of, terms
from understudy.privacy.secrets.composition import SecretFilter
from understudy.privacy.unit import Unit


def rule_for(cap: Budget | SecretBudget, unit: Unit, rule: str | None) -> CrossRunRule:
    """Return the rule by which runs under this cap compose; ConfigError if ``rule`` is not allowed for it."""
    require_budget_of(unit, cap)
    if rule not in (None, "basic", "rdp"):
        raise ConfigError(f"There is no rule {rule!r} of composition over runs.", "Use basic or rdp.")
    if isinstance(cap, SecretBudget):
        if rule == "basic":
            raise ConfigError("Posteriors of secrets do not add up over runs.", "Use rule rdp, or leave the rule out.")
        return "rdp"
    if rule != "rdp":
        return "basic"
    if cap.delta == 0:
        raise ConfigError("The rule rdp needs a delta greater than 0.", "Give a delta, or use rule basic.")
    return "rdp"


def require_no_lower(dataset: Dataset, cap: Budget | SecretBudget) -> None:
    """Check that the dataset's cap may become ``cap``; LedgerError if it is lower, or its kind or prior differs."""
    old, of = dataset.cap, f"of dataset {dataset.name!r}"
    if isinstance(old, SecretBudget) and isinstance(cap, SecretBudget):
        if cap.prior != old.prior:
            raise LedgerError(
                f"The cap {cap} has a different prior than the cap {old} {of}, so neither is higher.",
                "Keep the prior, and give a higher posterior.",
            )
        lower, cure = cap.posterior < old.posterior, "its posterior"
    elif isinstance(old, Budget) and isinstance(cap, Budget):
        lower, cure = cap.epsilon < old.epsilon or cap.delta < old.delta, "its epsilon and its delta"
    else:
        raise LedgerError(
            f"The cap {cap} is not of the kind of the cap {old} {of}.", f"Raise it with: {raising(dataset.name, old)}"
        )
    if lower:
        raise LedgerError(
            f"The cap {cap} is lower than the cap {old} {of}.", f"A cap can only be raised: give at least {cure}."
        )


def raising(name: str, cap: Budget | SecretBudget, to: Budget | SecretBudget | None = None) -> str:
    """Return the command that raises a dataset's cap: to at least ``to``, or to numbers that the user chooses."""
    if isinstance(cap, SecretBudget):
        posterior = round_up(float(to.posterior)) if isinstance(to, SecretBudget) else "R"
        flags = f"--secret-prior {as_typed(cap.prior)} --secret-posterior {posterior}"
    elif isinstance(to, Budget):
        epsilon, delta = both(Budget.of(max(cap.epsilon, to.epsilon), max(cap.delta, to.delta))).split(", ")
        flags = f"--epsilon {epsilon} --delta {delta}"
    else:
        flags = "--epsilon E --delta D"
    return f"understudy ledger open {name} {flags} --raise"


def first_cap(name: str, cap: Budget | SecretBudget) -> str:
    """Return the message that a dataset's first run sets its cap."""
    twice = Budget.of(2 * cap.epsilon, min(2 * cap.delta, Fraction(1, 2))) if isinstance(cap, Budget) else None
    return (
        f"This run sets the cap of dataset {name!r} to {cap}: all runs on it together may spend no more. "
        f"To allow more runs later: {raising(name, cap, twice)}"
    )


def opening(name: str, unit: Unit) -> str:
    """Return the command that opens a dataset for runs with this unit."""
    flags = {
        "record": "--epsilon E --delta D",
        "owner": f"--owner {shlex.quote(unit.column or '')} --epsilon E --delta D",
        "secret": "--secret-detectors ... --max-records-per-secret M --secret-prior P --secret-posterior R",
    }
    return f"understudy ledger open {name} {flags[unit.kind]}"


def not_opened(name: str, unit: Unit) -> LedgerError:
    require_name(name)  # so that the message only quotes a name
    return LedgerError(
        f"The ledger is strict, and has no dataset {name!r}: a run cannot open one.",
        f"Name one that is open (--dataset NAME), or open it with a cap: {opening(name, unit)}",
    )


def spent(connection: sa.Connection, dataset: Dataset) -> Budget | SecretBudget | None:
    return _spent(dataset, _spendings(connection, dataset))


def account(connection: sa.Connection, dataset: Dataset) -> list[Balance]:
    history = rows.history(connection, dataset.name)
    raised = any(entry.cap is not None for entry in history)
    cap, spendings, found = None if raised else dataset.cap, list[Spending](), list[Balance]()
    for entry in history:
        cap = entry.cap or cap
        if (spending := entry.spending(dataset.rule)) is not None:
            spendings.append(spending)
        found.append(Balance(entry, _spent(dataset, spendings), cap))
    return found


def remaining(dataset: Dataset, spent: Budget | SecretBudget | None) -> Budget | SecretBudget | None:
    """Return the cap less the spending; None if nothing is left, or if posteriors of secrets cannot be subtracted."""
    cap = dataset.cap
    if spent is None:
        return cap
    if isinstance(cap, SecretBudget) or isinstance(spent, SecretBudget):
        return None
    epsilon = cap.epsilon - spent.epsilon
    delta = cap.delta - spent.delta if dataset.rule == "basic" else cap.delta
    return Budget.of(epsilon, delta) if epsilon > 0 and delta >= 0 else None


def admit(connection: sa.Connection, name: str, plan: Plan, run_id: str | None) -> bool:
    """Check that a plan may be charged. Return True if it may be booked now, False if this run is booked already."""
    dataset = rows.require(connection, name)
    if plan.unit.name != dataset.unit.name:
        column, unit = dataset.unit.column, dataset.unit.name
        cure = f"{f'Run with --owner {column}' if column else f'Protect one {unit}'}, as the dataset was opened."
        if not _spendings(connection, dataset):
            cure += f" Or, because nothing was charged to it yet, open another: {opening('NEW', plan.unit)}"
        raise LedgerError(
            f"Dataset {name!r} protects one {unit}, but this run one {plan.unit.name}: their budgets cannot be added.",
            cure,
        )
    if run_id is not None and (booked := rows.booked(connection, run_id)) is not None:
        owner, entry = booked
        if owner != name:
            raise LedgerError(
                f"This run was charged to the dataset {owner!r} before, but now names the dataset {name!r}.",
                f"Resume with --dataset {owner}, or start over with --fresh (which charges again).",
            )
        same = (entry.method, entry.unit, entry.cost) == (plan.method, plan.unit, plan.budget)
        if not same or terms(entry.charges) != terms(charge.to_json() for charge in plan.charges):
            raise LedgerError(
                "This run was charged before, for other releases or with other noise.",
                "Run with the settings it began with, or start over with --fresh (which charges again).",
            )
        return False
    history = _spendings(connection, dataset)
    so_far = _spent(dataset, history)
    budget_filter = _filter(dataset)
    if not budget_filter.admits(history, plan.spending):
        raise _exceeded(dataset, plan.budget, so_far, budget_filter.spent([*history, plan.spending]))
    return True


def require_same_draws(used: Mapping[str, str], kept: Mapping[str, str]) -> None:
    """Raise LedgerError unless a run still has every noisy value that it used (``used``, ``kept``: digests by name).

    If one is missing or differs, the run would sample and use a second value for one charge.
    """
    if not used.items() <= kept.items():
        raise LedgerError(
            "Another copy of this output folder has already sampled and used the noisy values of this run.",
            "Continue in that copy, or start over with --fresh (which charges again).",
        )


def _spendings(connection: sa.Connection, dataset: Dataset) -> list[Spending]:
    entries = rows.history(connection, dataset.name)
    return [spending for entry in entries if (spending := entry.spending(dataset.rule)) is not None]


def _spent(dataset: Dataset, history: list[Spending]) -> Budget | SecretBudget | None:
    with reading_fields():  # each may be valid, but not their sum
        return _filter(dataset).spent(history)


def _filter(dataset: Dataset) -> BudgetFilter | SecretFilter:
    if isinstance(dataset.cap, SecretBudget):
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
            f"Choose a smaller posterior, or raise the cap to that bound with: "
            f"{raising(dataset.name, dataset.cap, together)}",
        )
    left = remaining(dataset, spent)
    return BudgetExceeded(
        f"The run asks for {asked}, but the cap of dataset {dataset.name!r} is {dataset.cap}: "
        f"{spent or 'nothing'} is spent, and {left or 'no epsilon'} remains.",
        "More texts from an existing Release are free (`understudy generate`). For a new Release "
        f"{'choose a smaller epsilon or delta, or ' * bool(left)}raise the cap with: "
        f"{raising(dataset.name, dataset.cap, together)}",
    )


def _short(budget: Budget | SecretBudget | None) -> str:
    assert isinstance(budget, SecretBudget)
    return f"(p={as_typed(budget.prior)}, r={round_up(float(budget.posterior))})"
