from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "run"), str(_TESTS / "models")]

from evolution_fixtures import embedder, varied_chat  # noqa: E402, F401
from run_fixtures import own_ledger, understudy  # noqa: E402, F401
