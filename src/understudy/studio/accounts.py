"""The ledger page: each dataset's account."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup

from understudy.base.errors import LedgerError
from understudy.ledger import Balance, Dataset, Ledger, default_location
from understudy.ledger.values import both, numbers, unit_words, what_remains
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.report.numbers import short
from understudy.report.svg import Frame, Scale, counted, path, svg_image, tag, x_axis, y_axis

_TICKS = 4


@dataclass(frozen=True)
class Book:
    """The ledger, or what is wrong with it."""

    location: str
    strict: bool
    accounts: tuple[dict[str, Any], ...]
    error: LedgerError | None = None


def read_ledger(location: str | None) -> Book:
    """Every dataset's account; a ledger that is not there is not begun."""
    try:
        with Ledger(location or default_location()) as ledger:
            accounts = tuple(_account(ledger, dataset, location) for dataset in ledger.datasets())
            return Book(ledger.location, ledger.strict, accounts)
    except LedgerError as error:
        return Book("", False, (), error)


def _account(ledger: Ledger, dataset: Dataset, location: str | None) -> dict[str, Any]:
    """One dataset: numbers as ``understudy ledger show`` has them, and its history, the latest first."""
    balances = ledger.account(dataset.name)
    spent = balances[-1].spent if balances else None
    secret = dataset.unit.kind == "secret"
    place = ["--ledger", ledger.location] if location else []  # without a password, which `location` may hold
    return {
        "name": dataset.name,
        "unit": unit_words(dataset),
        "rule": dataset.rule,
        "measures": ("prior", "posterior") if secret else ("epsilon", "delta"),
        "cap": numbers(dataset.cap, left=True),
        "spent": numbers(spent),
        "remaining": what_remains(dataset, ledger.remaining(dataset.name)),
        "share": min(1.0, _amount(spent) / (_amount(dataset.cap) or 1.0)),
        "chart": _chart(dataset, balances),
        "rows": tuple((*(own := each.entry.cells)[:3], both(each.spent), *own[3:]) for each in reversed(balances)),
        "opened": f"{dataset.opened_at:%Y-%m-%d %H:%M}",
        "command": shlex.join(["understudy", "ledger", "history", dataset.name, *place]),
    }


def _amount(budget: Budget | SecretBudget | None) -> float:
    if budget is None:
        return 0.0
    return float(budget.epsilon if isinstance(budget, Budget) else budget.posterior)


def _chart(dataset: Dataset, balances: list[Balance]) -> Markup:
    """What was spent as an area of steps, the cap (where it is known) as a line above it."""
    if not balances:
        return Markup("")
    raised = any(balance.entry.cap is not None for balance in balances)
    start, end = dataset.opened_at, datetime.now(UTC)
    whole = max((end - start).total_seconds(), 60.0)
    spent = [(0.0, 0.0), *((_since(start, each), _amount(each.spent)) for each in balances)]
    caps = [] if raised else [(0.0, _amount(dataset.cap))]
    caps += [(_since(start, each), _amount(each.cap)) for each in balances if each.cap is not None]

    def moment(offset: float) -> str:
        form = "%d %b %Y" if whole > 3e7 else "%d %b" if whole > 4e5 else "%d %b %H:%M" if whole > 9e4 else "%H:%M"
        words = (start + timedelta(seconds=offset)).strftime(form)
        return words.lstrip("0") if "%d" in form else words

    frame = Frame(width=640, height=240, top=24, left=52)
    x = Scale((0, whole), frame.x, words=moment, marks=tuple(whole * place / _TICKS for place in range(_TICKS + 1)))
    y = Scale((0, max(value for _, value in (*spent, *caps)) * 1.1 or 1), frame.y, words=counted)
    outline = [(x(a), y(b)) for a, b in _stairs(spent, whole)]
    marks = [
        path([(x(0), y(0)), *outline, (x(whole), y(0))], class_="area synthetic"),
        path(outline, class_="line synthetic"),
    ]
    if caps:
        marks.append(path([(x(a), y(b)) for a, b in _stairs(caps, whole)], class_="chance"))
        marks.append(tag("text", "cap", x=x(whole), y=y(caps[-1][1]) - 6, text_anchor="end", class_="note"))
    marks += [tag("circle", cx=x(at), cy=y(value), r=3, class_="dot synthetic") for at, value in spent]
    measure = "posterior" if dataset.unit.kind == "secret" else "epsilon"
    times = [start, *(balance.entry.at for balance in balances)]
    said = "; ".join(f"{at:%Y-%m-%d %H:%M}: {short(value)}" for at, (_, value) in zip(times, spent, strict=True))
    return svg_image(
        f"account-{dataset.name}",
        f"What was spent of {dataset.name}",
        f"Spent {measure} after each entry: {said}. The table has the same numbers.",
        frame,
        y_axis(frame, y, measure),
        *marks,
        x_axis(frame, x, "", inward=True),
    )


def _since(start: datetime, balance: Balance) -> float:
    return (balance.entry.at - start).total_seconds()


def _stairs(points: Sequence[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for left, value in points:
        if found:
            found.append((left, found[-1][1]))
        found.append((left, value))
    return [*found, (end, found[-1][1])] if found else []
