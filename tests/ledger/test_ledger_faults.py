"""Faults between the statements of the transaction that charges, and exact sums for any history."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_plans import CAP, RECORD, pure_plan

from understudy.base.errors import BudgetExceeded, LedgerError
from understudy.ledger import Ledger
from understudy.ledger.database import Database
from understudy.ledger.location import parse_location
from understudy.privacy.guarantee import Budget


class Fault(BaseException):
    """As abrupt as an interrupt."""


@contextmanager
def fault_before(moment: str, number: int = 0) -> Iterator[None]:
    """Raise before the statement of this number ("before_cursor_execute"), or before the "commit"."""
    seen = 0

    def strike(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen > number:
            raise Fault

    sa.event.listen(sa.Engine, moment, strike)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, moment, strike)


def test_a_fault_before_any_statement_books_nothing_and_the_next_try_books_once(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    plan = pure_plan("0.1")
    faults = 0
    while True:
        try:
            with fault_before("before_cursor_execute", faults):
                ledger.charge("clinic", plan, run_id="r")
            break
        except Fault:
            faults += 1
            assert ledger.history("clinic") == []
    assert faults >= 5  # begin, dataset, run, history, insert
    assert len(ledger.history("clinic")) == 1
    ledger.charge("clinic", plan, run_id="r")
    assert ledger.spent("clinic") == plan.budget


def test_a_fault_before_the_commit_books_nothing(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    with pytest.raises(Fault), fault_before("commit"):
        ledger.charge("clinic", pure_plan("0.1"), run_id="r")
    assert ledger.spent("clinic") is None


def test_a_fault_while_a_ledger_is_made_leaves_one_that_can_be_made(location: str) -> None:
    faults = 0
    while True:
        try:
            with fault_before("before_cursor_execute", faults):
                Ledger.create(location).close()
            break
        except Fault:
            faults += 3
    assert faults > 0
    with Ledger.create(location) as ledger:
        assert len(ledger.fingerprint_key) == 32


def test_a_writer_waits_for_another_and_gives_up_with_a_clear_error(
    location: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    monkeypatch.setattr("understudy.ledger.database.PATIENCE_SECONDS", 1)
    with Database(parse_location(location)).write():
        with pytest.raises(LedgerError, match="Another process holds it"):
            ledger.charge("clinic", pure_plan("0.1"), run_id="r")
        ledger.check("clinic", pure_plan("0.1"))  # reading waits for nobody
    ledger.charge("clinic", pure_plan("0.1"), run_id="r")


_FRACTIONS = st.fractions(Fraction(1, 1000), Fraction(2, 5), max_denominator=1000)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(_FRACTIONS, st.integers(0, 5)), max_size=8))
def test_what_is_booked_never_exceeds_the_cap_and_what_fits_is_booked(
    asked: list[tuple[Fraction, int]],
) -> None:
    cap = Budget(1, "1e-5")
    epsilon = delta = Fraction(0)
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.create(Path(folder) / "ledger.sqlite") as ledger,
    ):
        ledger.open_dataset("d", cap=cap, unit=RECORD)
        for number, (more, millionths) in enumerate(asked):
            budget = Budget(more, Fraction(millionths, 10**6))
            fits = epsilon + budget.epsilon <= cap.epsilon and delta + budget.delta <= cap.delta
            try:
                ledger.charge("d", pure_plan(budget.epsilon, budget.delta), run_id=str(number))
                booked = True
            except BudgetExceeded:
                booked = False
            assert booked == fits
            if booked:
                epsilon, delta = epsilon + budget.epsilon, delta + budget.delta
        spent = ledger.spent("d")
        assert (spent.epsilon, spent.delta) == (epsilon, delta) if spent else epsilon == 0
