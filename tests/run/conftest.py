from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "run"), str(_TESTS / "models"), str(_TESTS / "methods" / "private_prediction")]

from evolution_fixtures import embedder, varied_chat  # noqa: E402, F401
from run_fixtures import (  # noqa: E402, F401
    finished,
    finished_runs,
    learnt,
    method,
    own_ledger,
    quick_fit,
    understudy,
    use_chat,
)
