"""The ledger page: each dataset's account."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from understudy.base.errors import LedgerError
from understudy.ledger import Balance, Dataset, Ledger, default_location
from understudy.ledger.values import both, numbers, unit_words, what_remains
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.studio.curves import Step, account_chart


@dataclass(frozen=True)
class Account:
    """One dataset: numbers as ``understudy ledger show`` has them, and its history.

    Args:
        name, unit, rule: of the dataset.
        measures: what its two numbers are.
        cap, spent, remaining: of it now.
        share: what is spent of the cap, in [0, 1].
        chart: over time; empty where nothing was ever booked.
        rows: of the history, the latest first: time, what, cost, spent after it, run, note.
    """

    name: str
    unit: str
    rule: str
    measures: tuple[str, str]
    cap: tuple[str, str] | None
    spent: tuple[str, str] | None
    remaining: str
    share: float
    chart: Markup
    rows: tuple[tuple[str, ...], ...]
    opened: str
    command: str


@dataclass(frozen=True)
class Book:
    """The ledger, or what is wrong with it."""

    location: str
    strict: bool
    accounts: tuple[Account, ...]
    error: LedgerError | None = None


def read_ledger(location: str | None) -> Book:
    """Every dataset's account; a ledger that is not there is not begun."""
    try:
        with Ledger(location or default_location()) as ledger:
            accounts = tuple(_account(ledger, dataset, location) for dataset in ledger.datasets())
            return Book(ledger.location, ledger.strict, accounts)
    except LedgerError as error:
        return Book("", False, (), error)


def _account(ledger: Ledger, dataset: Dataset, location: str | None) -> Account:
    balances = ledger.account(dataset.name)
    spent = balances[-1].spent if balances else None
    secret = dataset.unit.kind == "secret"
    place = ["--ledger", ledger.location] if location else []  # without a password, which `location` may hold
    return Account(
        name=dataset.name,
        unit=unit_words(dataset),
        rule=dataset.rule,
        measures=("prior", "posterior") if secret else ("epsilon", "delta"),
        cap=numbers(dataset.cap, left=True),
        spent=numbers(spent),
        remaining=what_remains(dataset, ledger.remaining(dataset.name)),
        share=min(1.0, _amount(spent) / (_amount(dataset.cap) or 1.0)),
        chart=_chart(dataset, balances),
        rows=tuple(_row(balance) for balance in reversed(balances)),
        opened=f"{dataset.opened_at:%Y-%m-%d %H:%M}",
        command=shlex.join(["understudy", "ledger", "history", dataset.name, *place]),
    )


def _amount(budget: Budget | SecretBudget | None) -> float:
    if budget is None:
        return 0.0
    return float(budget.epsilon if isinstance(budget, Budget) else budget.posterior)


def _chart(dataset: Dataset, balances: list[Balance]) -> Markup:
    if not balances:
        return Markup("")
    raised = any(balance.entry.cap is not None for balance in balances)
    first = Step(dataset.opened_at, 0.0, None if raised else _amount(dataset.cap))
    steps = [
        Step(balance.entry.at, _amount(balance.spent), None if balance.cap is None else _amount(balance.cap))
        for balance in balances
    ]
    measure = "posterior" if dataset.unit.kind == "secret" else "epsilon"
    title = f"What was spent of {dataset.name}"
    return account_chart(dataset.name, title, [first, *steps], end=datetime.now(UTC), measure=measure)


def _row(balance: Balance) -> tuple[str, ...]:
    entry = balance.entry
    return (
        f"{entry.at:%Y-%m-%d %H:%M:%S}",
        entry.method or "cap raised",
        both(entry.cost or entry.cap),
        both(balance.spent),
        ", ".join(str(charge["name"]) for charge in entry.charges),
        entry.run_id or "",
        entry.note,
    )
