"""A process that charges one run by a name of the ledger's file: ``two_names.py FILE RUN ROUNDS``.

Round n is the dataset ``dN``. It waits for a line on its standard input before each, and says what became of it.
It uses the database without the checks of :class:`understudy.ledger.Ledger`, which refuses a file with two names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ledger_plans import pure_plan

from understudy.base.errors import BudgetExceeded
from understudy.ledger import Ledger, ledger

where, run, rounds = sys.argv[1:]
ledger.require_one_name = lambda path: None  # type: ignore[assignment]
with Ledger(Path(where)) as opened:
    print("ready", flush=True)
    for number in range(int(rounds)):
        sys.stdin.readline()
        try:
            opened.charge(f"d{number}", pure_plan("0.6"), run_id=f"{run}-{number}")
            print("charged", flush=True)
        except BudgetExceeded:
            print("refused", flush=True)
