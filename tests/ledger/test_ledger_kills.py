"""``kill -9`` of processes that use a ledger, and of PostgreSQL itself: what was told to be done stays done, once."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import postgres_cluster
import pytest
from ledger_lives import charge_or_confirm
from ledger_plans import RECORD, new_ledger
from ledger_workers import started

from understudy.ledger import Ledger, rows
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("crash", ["stop_at_once", "kill_server", "kill_backend"])
def test_a_server_that_is_killed_forgets_nothing_that_it_had_committed(
    crash: str, cluster: postgres_cluster.Cluster
) -> None:
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
