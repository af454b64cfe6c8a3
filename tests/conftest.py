"""What every test shares: hypothesis measures no time, for a busy machine is no fault; ledgers begin by themselves."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the processors: before any library reads it
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "models"))  # models made in a test

settings.register_profile("understudy", deadline=None)
settings.load_profile("understudy")


@pytest.fixture(autouse=True)
def ledgers_begin_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place is as good as the default one, so that a test need not begin its ledger before it runs something.

    Tests of ledgers themselves, and of the documentation, have them as users do.
    """
    monkeypatch.setattr("understudy.ledger.ledger.begins_by_itself", lambda _location: True)
