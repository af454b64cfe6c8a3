from __future__ import annotations

import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(_TESTS / "methods"), str(_TESTS / "run"), str(_TESTS / "models")]

from local_fixtures import make_llama  # noqa: E402
from run_fixtures import own_ledger, understudy  # noqa: E402, F401


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny causal model."""
    return make_llama(tmp_path_factory.mktemp("llama"))
