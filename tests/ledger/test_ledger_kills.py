"""``kill -9`` of processes that use a ledger, and of PostgreSQL itself: what was told to be done stays done, once."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import postgres_cluster
import pytest
from ledger_lives import DONE, FIT, charge_or_confirm
from ledger_plans import RECORD, new_ledger
from ledger_workers import started

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger, rows
from understudy.ledger.database import Database
from understudy.ledger.location import parse_location
from understudy.privacy.guarantee import Budget

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no kill -9")

KILLS = 10
PARTS = ["sums/0", "sums/1"]


def steps(prefix: str, runs: int) -> list[list[str]]:
    """Runs and their parts, in the order in which they are charged and confirmed: [run id, part or ""]."""
    return [[f"{prefix}-{number}", part] for number in range(runs) for part in ["", *PARTS]]


def recorded(ledger: Ledger, prefix: str) -> list[list[str]]:
    """The steps that the ledger holds, in order; a run that is booked twice is there twice."""
    booked = [str(entry.run_id) for entry in ledger.history("d") if str(entry.run_id).startswith(f"{prefix}-")]
    found = []
    with ledger._database.read() as connection:
        for run_id in booked:
            digests = rows.drawn(connection, run_id)
            assert all(digest == f"digest of {part}" for part, digest in digests.items())
            found += [[run_id, part] for part in ["", *sorted(digests)]]
    return found


def test_what_ten_killed_processes_had_done_is_there_and_what_was_torn_is_whole_or_absent(location: str) -> None:
    runs = 0
    with new_ledger(location) as ledger:
        ledger.open_dataset("d", cap=Budget(1, 0), unit=RECORD)
        for kill in range(KILLS):
            prefix = f"kill{kill}"
            expected = steps(prefix, 50)  # more than a process comes to
            with started("use", location, expected) as worker:
                done = [worker.connection.recv() for _ in range(random.randint(0, 6))]
                time.sleep(random.uniform(0, 0.02))
                worker.kill()
                done += worker.rest()
            assert done == expected[: len(done)]
            found = recorded(ledger, prefix)  # by a new connection
            assert found in (done, expected[: len(done) + 1])
            for step in expected[len(done) : len(done) + 1]:  # none where the kill came after the last one
                charge_or_confirm(ledger, *step)
            assert recorded(ledger, prefix) == expected[: len(done) + 1]
            runs += len({run_id for run_id, _ in expected[: len(done) + 1]})
        spent = ledger.spent("d")
        assert spent is not None
        assert spent.epsilon * 10000 == runs


@pytest.fixture(scope="module")
def cluster() -> Iterator[postgres_cluster.Cluster]:
    """It syncs, and recovers from its log."""
    try:
        made = postgres_cluster.Cluster(synced=True)
    except postgres_cluster.NotThere as why:
        pytest.skip(str(why))
    with made:
        yield made


@pytest.mark.parametrize("crash", ["stop_at_once", "kill_server", "kill_backend"])
def test_a_killed_server_forgets_nothing_that_was_committed(crash: str, cluster: postgres_cluster.Cluster) -> None:
    with new_ledger(cluster.url) as ledger:
        ledger.open_dataset("d", cap=Budget(1, 0), unit=RECORD)
        expected = steps(crash, 16)  # more than are heard of before the last crash, so that it comes in the middle
        with started("use", cluster.url, expected, True) as worker:
            connection, done = worker.connection, []
            for _ in range(3):
                done += [connection.recv() for _ in range(random.randint(1, 4))]
                time.sleep(random.uniform(0, 0.02))
                getattr(cluster, crash)()
                found = recorded(ledger, crash)
                assert found[: len(done)] == done
            done += [connection.recv() for _ in range(len(expected) - len(done))]
        assert done == expected
        assert recorded(ledger, crash) == expected


# -- before every statement and commit that make a ledger -------------------------------------------------------------


@pytest.fixture
def clear(location: str) -> Callable[[], None]:
    """Makes the place as if there had never been a ledger."""

    def cleared() -> None:
        if "://" in location:
            with Database(parse_location(location)).write() as connection:
                postgres_cluster.empty(connection)
        else:
            for file in Path(location).parent.glob("*"):
                file.unlink()

    return cleared


def killed(function: str, location: str, moment: int) -> bool:
    """False if the work ended before this moment came."""
    with started(function, location, moment) as worker:
        return worker.was_killed()


def id_of(location: str) -> str | None:
    """None where there is no ledger; any other fault is an error."""
    try:
        with Ledger(location) as ledger:
            return ledger.id
    except LedgerError as error:
        if "There is no ledger" in error.problem:
            return None
        raise


def test_a_kill_while_a_ledger_is_made_leaves_none_or_a_whole_one(location: str, clear: Callable[[], None]) -> None:
    """Which the same command then makes, or finds."""
    for moment in count():
        clear()
        died = killed("create", location, moment)
        found = id_of(location)
        with Ledger.create(location) as ledger:
            assert found in (None, ledger.id)
            assert ledger.strict == ("://" in location)
            assert ledger.datasets() == []
        if not died:
            break
    assert found is not None, "the last was not killed"
    assert moment > 15


# -- several processes at the same moment -----------------------------------------------------------------------------

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
