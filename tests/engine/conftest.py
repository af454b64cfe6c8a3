from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loky import ProcessPoolExecutor

from understudy.run import engine
from understudy.run.engine import Processes

_TESTS = Path(__file__).parents[1]
_PATHS = [str(_TESTS / "engine"), str(_TESTS / "run"), str(_TESTS / "methods"), str(_TESTS / "models")]
sys.path[:0] = _PATHS
os.environ["PYTHONPATH"] = os.pathsep.join([*_PATHS, os.environ.get("PYTHONPATH", "")])  # of Ray's workers

from evolution_fixtures import embedder, varied_chat  # noqa: E402, F401
from run_fixtures import own_ledger, understudy, use_chat  # noqa: E402, F401


@pytest.fixture(scope="module")
def shared_workers() -> Iterator[None]:
    """Workers that one test of a module began serve the next ones: to begin one takes seconds."""
    idle: dict[int, Any] = {}

    def begun(workers: int, **options: Any) -> Any:
        return idle.pop(workers, None) or ProcessPoolExecutor(workers, **options)

    def close(made: Processes) -> None:
        pool, made._pool = made._pool, None
        if pool is not None and idle.setdefault(made.workers, pool) is not pool:
            pool.shutdown(kill_workers=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "ProcessPoolExecutor", begun)
        patch.setattr(Processes, "close", close)
        yield
    for pool in idle.values():
        pool.shutdown(kill_workers=True)
