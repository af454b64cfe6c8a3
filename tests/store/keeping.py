"""A process that keeps values and answers for ever: ``keeping.py FOLDER``. Writes each name once it is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from understudy.ledger.store import RunStore

store = RunStore.open(Path(sys.argv[1]), noise="system")
number = len(store.stages())
while True:
    store.keep(f"value {number}", {"x": np.full(1000, number)})
    store.answers.put_many({f"{number}-{n}": str(n) * 100 for n in range(20)})
    store.mark(f"stage {number}")
    print(number, flush=True)
    number += 1
