"""A studio over made-up runs and a ledger of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

for folder in ("report", "run"):  # made-up runs, and a small table for a real one
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))
pytest.importorskip("starlette", reason="the extra studio is not installed")
