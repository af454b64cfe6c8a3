"""What processes do with a ledger in the tests that race and kill them; and, as a script, what forks them.

The script imports what takes long, then forks a process for every line ``[ADDRESS, FUNCTION, ARGUMENT...]`` (JSON) that
it reads. The process connects to the address, tells its number, calls the function, and tells that it is done.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Client, Connection
from typing import Any

import sqlalchemy as sa
from ledger_plans import RECORD, pure_plan, seal_of

from understudy.base.errors import BudgetExceeded, LedgerError
from understudy.ledger import Ledger
from understudy.privacy.guarantee import Budget

DONE = "done"
# Runs that the cap of a race admits, of one that all share and one that each has for itself.
FIT = 3
_PLAN = pure_plan("1/10000")


def race(connection: Connection, location: str, number: int) -> None:
    """Open and charge the shared run and one's own; then confirm a value. Tell what was accepted."""
    plan = pure_plan(f"1/{FIT}")
    with Ledger(location) as ledger:
        connection.send("ready")
        for name in iter(connection.recv, None):
            accepted = [f"{name}-shared"]
            ledger.open_dataset(name, cap=Budget(1, 0), unit=RECORD)
            receipt = ledger.charge(name, plan, run_id=f"{name}-shared")
            with suppress(BudgetExceeded):
                ledger.charge(name, plan, run_id=f"{name}-{number}")
                accepted.append(f"{name}-{number}")
            connection.send(accepted)
            connection.recv()
            try:
                ledger.confirm(receipt.seal("sums/0", noise="system", rows=""), f"drawn by {number}")
                connection.send(f"drawn by {number}")
            except LedgerError:
                connection.send(None)


def charge_all(connection: Connection, location: str, prefix: str, count: int, epsilon: str) -> None:
    """When told so, make the ledger, open its dataset and charge runs. Tell each that fits, and None for each that does
    not."""
    plan = pure_plan(epsilon)
    connection.recv()
    with Ledger.create(location) as ledger:
        ledger.open_dataset("d", cap=Budget(1, 0), unit=RECORD)
        for number in range(count):
            try:
                ledger.charge("d", plan, run_id=f"{prefix}-{number}")
                connection.send(f"{prefix}-{number}")
            except BudgetExceeded:
                connection.send(None)


def use(connection: Connection, location: str, work: list[tuple[str, str]], stubborn: bool = False) -> None:
    """Charge runs and confirm their parts, and tell each when it is done.

    Args:
        work: (run id, part or "").
        stubborn: do what fails again, as the same command again would.
    """
    with Ledger(location) as ledger:
        for step in work:
            for left in range(12_000 if stubborn else 0, -1, -1):
                try:
                    charge_or_confirm(ledger, *step)
                    break
                except LedgerError:
                    if not left:
                        raise
                    time.sleep(0.01)
            connection.send(step)


def charge_or_confirm(ledger: Ledger, run_id: str, part: str) -> None:
    if part:
        ledger.confirm(seal_of(ledger, run_id, part), f"digest of {part}")
    else:
        ledger.charge("d", _PLAN, run_id=run_id)


def create(_connection: Connection, location: str, moment: int) -> None:
    _die_at(moment)
    Ledger.create(location).close()


def _die_at(moment: int) -> None:
    """Kill this process at its moment of this number: before a statement or a commit."""
    left = count(moment, -1)

    def strike(*_: object) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for event in ("before_cursor_execute", "commit"):
        sa.event.listen(sa.Engine, event, strike)

    class Dying(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:  # what is set on a new connection
            strike()
            return super().execute(*arguments)

    connect = sqlite3.connect
    sqlite3.connect = lambda *arguments, **named: connect(*arguments, **{**named, "factory": Dying})  # type: ignore


def main() -> None:
    with suppress(ImportError):
        import psycopg  # noqa: F401 - so that no process has to
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they end
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            address, function, *arguments = json.loads(line)
            with Client(address) as connection:
                connection.send(os.getpid())
                globals()[function](connection, *arguments)
                connection.send(DONE)
            os._exit(0)


if __name__ == "__main__":
    main()
