"""A studio over made-up runs and a ledger of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

for folder in ("report", "run"):  # made-up runs, and a small table for a real one
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))
pytest.importorskip("starlette", reason="the extra studio is not installed")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from studio_fixtures import make_world

    return make_world(tmp_path_factory.mktemp("world"))
