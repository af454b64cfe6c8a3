"""What a report says so that it can be filed: the promise in one sentence, what it is about, when it was released, who
is responsible; and, for inside alone, what the ledger then left."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger, default_location
from understudy.ledger.admission import remaining
from understudy.ledger.values import both, what_remains
from understudy.privacy.guarantee import Budget
from understudy.release.statement import Statement
from understudy.report.contents import Contents

_WEAK = 10
"""Epsilon from which on the sentence says that the limit is weak."""


def one_sentence(statement: Statement) -> str:
    """The promise for who reads it once; the statement's own words are exact."""
    unit, budget = statement.unit, statement.budget
    said = "let them conclude about whether any one record was in the data"
    if unit.kind == "owner":
        said = f"let them conclude about whether the records of any one {unit.name} were in the data"
    elif unit.kind == "secret":
        said = "add to their guess at any one secret of the data"
    weak = " At this budget the limit is weak." * (isinstance(budget, Budget) and budget.epsilon >= _WEAK)
    return (
        f"However much anyone knows and however hard they try, what these texts {said} is limited; the figures below "
        f"are the limit.{weak}"
    )


def for_the_file(contents: Contents, responsible: str, location: str | None) -> list[tuple[str, str]]:
    """Titles and values; of what the ledger says the day alone, but on a page for inside."""
    statement = contents.statement
    rows = [
        ("dataset", statement.dataset),
        ("method", statement.method),
        ("software", f"understudy {version('understudy')}"),
    ]
    if contents.release is not None:
        rows.append(("Release (SHA-256)", contents.release.digest))
    if statement.private:
        rows += _booked(statement, location)[: None if contents.internal else 1]
    return [*rows, *([("responsible", responsible)] if responsible else [])]


def _booked(statement: Statement, location: str | None) -> list[tuple[str, str]]:
    """As the ledger stood right after the run was booked; nothing where that ledger is not here."""
    assert statement.sealed is not None
    try:
        with Ledger(location or default_location()) as ledger:  # one that is not there is not begun
            dataset = ledger.dataset(statement.dataset)
            if ledger.id != statement.sealed.ledger_id or dataset is None:
                return []
            balances = ledger.account(dataset.name)
    except LedgerError:
        return []
    raised = any(each.entry.cap is not None for each in balances)
    for each in balances:
        if each.entry.run_id == statement.sealed.run_id:
            rows = [("released on", f"{each.entry.at:%Y-%m-%d} (UTC)")]
            if each.cap is not None or not raised:  # the first cap of a dataset whose cap was raised is not on record
                then = replace(dataset, cap=each.cap or dataset.cap)
                rows.append(("cap of the dataset then", both(then.cap, left=True)))
                rows.append(("left of it then", what_remains(then, remaining(then, each.spent))))
            return rows
    return []
