"""A studio over made-up runs and a ledger of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))
pytest.importorskip("starlette", reason="the extra studio is not installed")
