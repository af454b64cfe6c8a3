"""Starts, kills and listens to the processes of :mod:`ledger_lives`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from json import dumps
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from ledger_lives import DONE


@dataclass(frozen=True)
class Worker:
    """A process, and the connection to it."""

    number: int
    connection: Connection

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.kill(self.number, signal.SIGKILL)

    def rest(self) -> list[Any]:
        """What it said and nobody has read, until its end."""
        found = []
        while True:
            try:
                found.append(self.connection.recv())
            except (EOFError, ConnectionError):
                return found

    def was_killed(self) -> bool:
        """Once it has ended: whether that was before its work was."""
        return DONE not in self.rest()


@contextmanager
def started(function: str, *arguments: Any) -> Iterator[Worker]:
    """A process that does what the function of :mod:`ledger_lives` says; killed at the end."""
    with tempfile.TemporaryDirectory() as folder, Listener(f"{folder}/socket") as listener:
        orders = _forking().stdin
        assert orders is not None
        orders.write(dumps([listener.address, function, *arguments]) + "\n")
        orders.flush()
        with listener.accept() as connection:
            worker = Worker(connection.recv(), connection)
            try:
                yield worker
            finally:
                worker.kill()


@cache
def _forking() -> subprocess.Popen[str]:
    """It ends with this process, whose end closes its standard input."""
    script = Path(__file__).with_name("ledger_lives.py")
    return subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, text=True)
