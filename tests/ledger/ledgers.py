"""A new ledger, made in one place of the tests that need many."""

from __future__ import annotations

from pathlib import Path

from understudy.ledger import Ledger


def new_ledger(location: str | Path) -> Ledger:
    """Made if it is not there. A run may open its datasets, in PostgreSQL too."""
    return Ledger.create(location, strict=False)
