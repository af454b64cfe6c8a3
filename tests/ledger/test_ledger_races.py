"""Several processes use one dataset at the same moment, from its opening on, and one ledger from its making on."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from ledger_lives import DONE, FIT
from ledger_plans import new_ledger
from ledger_workers import started

from understudy.ledger import Ledger, rows
from understudy.privacy.guarantee import Budget

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

ROUNDS = 20
PROCESSES = 4


def test_processes_that_make_a_ledger_and_charge_at_once_never_overspend_nor_lose_a_charge(location: str) -> None:
    """40 charges, of which exactly 30 fit."""
    with ExitStack() as stack:
        workers = [
            stack.enter_context(started("charge_all", location, f"p{number}", 10, "1/30"))
            for number in range(PROCESSES)
        ]
        for worker in workers:
            worker.connection.send("go")
        said = [worker.rest() for worker in workers]
    assert [each.pop() for each in said] == [DONE] * PROCESSES
    charged = [run_id for each in said for run_id in each if run_id is not None]
    assert sum(map(len, said)) - len(charged) == 10
    with Ledger(location) as ledger:
        assert sorted(str(entry.run_id) for entry in ledger.history("d")) == sorted(charged)
        assert ledger.spent("d") == Budget(1, 0)


@pytest.mark.slow
def test_in_twenty_races_no_cap_is_passed_no_charge_lost_and_one_value_used(location: str) -> None:
    with new_ledger(location) as ledger, ExitStack() as stack:
        ends = [stack.enter_context(started("race", location, number)).connection for number in range(PROCESSES)]
        for end in ends:
            assert end.recv() == "ready"
        for name in (f"d{number}" for number in range(ROUNDS)):
            for end in ends:
                end.send(name)
            accepted = [run_id for end in ends for run_id in end.recv()]
            for end in ends:
                end.send("confirm")
            (used,) = [drawn for end in ends if (drawn := end.recv())]
            booked = [str(entry.run_id) for entry in ledger.history(name)]
            assert sorted(booked) == sorted(set(accepted))
            assert len(booked) == FIT
            assert accepted.count(f"{name}-shared") == PROCESSES
            assert ledger.spent(name) == Budget(1, 0)
            with ledger._database.read() as connection:
                assert rows.drawn(connection, f"{name}-shared") == {"sums/0": used}
        for end in ends:
            end.send(None)
