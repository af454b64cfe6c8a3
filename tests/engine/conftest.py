from __future__ import annotations

import os
import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
_PATHS = [str(_TESTS / "engine"), str(_TESTS / "run"), str(_TESTS / "methods"), str(_TESTS / "models")]
sys.path[:0] = _PATHS
os.environ["PYTHONPATH"] = os.pathsep.join([*_PATHS, os.environ.get("PYTHONPATH", "")])  # of Ray's workers

from evolution_fixtures import embedder, varied_chat  # noqa: E402, F401
from run_fixtures import own_ledger, shared_workers, understudy, use_chat  # noqa: E402, F401
