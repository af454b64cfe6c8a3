"""A process that charges a dataset many times: ``charging.py LOCATION PREFIX COUNT EPSILON CAP``.

It waits for a line on its standard input, then writes each run's id as soon as its charge has returned, and
"refused" where the cap refused it.
"""

from __future__ import annotations

import sys

from ledger_plans import RECORD, pure_plan

from understudy.base.errors import BudgetExceeded
from understudy.ledger import Ledger
from understudy.privacy.guarantee import Budget

where, prefix, count, epsilon, cap = sys.argv[1:]
plan = pure_plan(epsilon)
sys.stdin.readline()
with Ledger.create(where) as ledger:
    ledger.open_dataset("d", cap=Budget(cap, 0), unit=RECORD)
    for number in range(int(count)):
        try:
            ledger.charge("d", plan, run_id=f"{prefix}-{number}")
            print(f"{prefix}-{number}", flush=True)
        except BudgetExceeded:
            print("refused", flush=True)
