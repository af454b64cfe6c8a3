from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(_TESTS / "run"), str(_TESTS / "models")]

from run_fixtures import own_ledger, understudy, use_chat  # noqa: E402, F401
