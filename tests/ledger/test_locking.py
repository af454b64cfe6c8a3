"""The lock on the ledger's file: between processes, threads and forks, and beside SQLite's own locks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ledger_plans import RECORD, pure_plan

from understudy.base.errors import BudgetExceeded, LedgerError
from understudy.ledger import Ledger, database
from understudy.privacy.guarantee import Budget

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    with Ledger.create(path) as ledger:
        ledger.open_dataset("d", cap=Budget(1, 0), unit=RECORD)
    return path


def in_child(check: object) -> int:
    """The exit status of a forked child that calls ``check``: 0 if it returns something true."""
    assert callable(check)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_locked(file: Path) -> bool:
    try:
        with database.in_use(file) as opened, opened.alone(time.monotonic()):
            return False
    except database.StillLocked:
        return True


def test_threads_take_turns(file: Path) -> None:
    said: list[str] = []

    def charge(number: int) -> None:
        with Ledger(file) as ledger:
            for part in range(4):
                try:
                    ledger.charge("d", pure_plan("1/10"), run_id=f"{number}-{part}")
                    said.append("charged")
                except BudgetExceeded:
                    said.append("refused")

    threads = [threading.Thread(target=charge, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (said.count("charged"), said.count("refused")) == (10, 6)
    assert not database._files


@forks
def test_a_forked_child_has_no_part_in_its_parent_s_lock(file: Path) -> None:
    with database.in_use(file) as opened, opened.alone(time.monotonic() + 5):
        assert in_child(lambda: is_locked(file)) == 0
        assert in_child(lambda: not database._files) == 0
        assert in_child(lambda: is_locked(file)) == 0  # nor did the first child take it away
    assert in_child(lambda: not is_locked(file)) == 0


@forks
def test_a_child_that_ends_a_transaction_of_its_parent_leaves_the_lock_alone(file: Path) -> None:
    with database.in_use(file) as opened:
        with opened.alone(time.monotonic() + 5):
            child = os.fork()
            if child != 0:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                assert in_child(lambda: is_locked(file)) == 0
        if child == 0:
            os._exit(0)


def test_a_second_descriptor_closes_only_when_no_transaction_is_in_the_file(file: Path) -> None:
    """Closing any descriptor of the file would drop the locks that SQLite holds in this process."""
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with database.in_use(file):
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with Ledger(file) as ledger:
            ledger.spent("d")
        done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False)
        assert "locked" in done.stderr
        holder.close()
    assert not database._files


def test_a_drive_without_such_locks_is_one_clear_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> bool:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(database, "try_lock", refuse)
    with Ledger(file) as ledger, pytest.raises(LedgerError, match=r"cannot be written \(Operation not supported\)"):
        ledger.charge("d", pure_plan("1/10"), run_id="r")


def test_a_ledger_that_keeps_a_write_ahead_log_is_not_charged(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    connection.close()
    with Ledger(file) as ledger, pytest.raises(LedgerError, match="write-ahead log"):
        ledger.charge("d", pure_plan("1/10"), run_id="r")
