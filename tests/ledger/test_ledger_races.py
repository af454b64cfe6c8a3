"""Fifty times, several processes use one dataset at the same moment, from its opening on."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from ledger_lives import FIT
from ledger_plans import new_ledger
from ledger_workers import started

from understudy.ledger import rows
from understudy.privacy.guarantee import Budget

ROUNDS = 50
PROCESSES = 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_in_fifty_races_no_cap_is_passed_no_charge_lost_and_one_value_used(location: str) -> None:
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
