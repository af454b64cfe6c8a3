"""Many processes charge one dataset at once, and some are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from understudy.ledger import Ledger
from understudy.privacy.guarantee import Budget

_SCRIPT = Path(__file__).with_name("charging.py")


def start(location: str, prefix: str, *, count: int, epsilon: str, cap: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(_SCRIPT), location, prefix, str(count), epsilon, cap]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_processes_that_charge_at_once_never_overspend_nor_lose_a_charge(location: str) -> None:
    """They make the ledger and open the dataset at once, too: 40 charges, of which exactly 30 fit."""
    running = [start(location, f"p{n}", count=10, epsilon="1/30", cap="1") for n in range(4)]
    for process in running:
        go(process)
    said = [line for process in running for line in process.communicate()[0].split()]
    assert [process.returncode for process in running] == [0] * 4
    assert len(said) == 40
    assert said.count("refused") == 10
    with Ledger(location) as ledger:
        booked = [entry.run_id for entry in ledger.history("d")]
        assert sorted(map(str, booked)) == sorted(line for line in said if line != "refused")
        assert ledger.spent("d") == Budget(1, 0)
