"""``kill -9`` before every statement and commit that make a ledger."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import postgres_cluster
import pytest
from ledger_workers import started

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger
from understudy.ledger.database import Database
from understudy.ledger.location import parse_location

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no kill -9")


@pytest.fixture
def clear(location: str) -> Callable[[], None]:
    """Makes the place as if there had never been a ledger."""

    def cleared() -> None:
        if "://" in location:
            with Database(parse_location(location)).write() as connection:
                postgres_cluster.empty(connection)
        else:
            for file in Path(location).parent.glob("*"):
                file.unlink()

    return cleared


def killed(function: str, location: str, moment: int) -> bool:
    """False if the work ended before this moment came."""
    with started(function, location, moment) as worker:
        return worker.was_killed()


def id_of(location: str) -> str | None:
    """None where there is no ledger; any other fault is an error."""
    try:
        with Ledger(location) as ledger:
            return ledger.id
    except LedgerError as error:
        if "There is no ledger" in error.problem:
            return None
        raise


@pytest.mark.slow
def test_a_kill_while_a_ledger_is_made_leaves_none_or_a_whole_one(location: str, clear: Callable[[], None]) -> None:
    """Which the same command then makes, or finds."""
    for moment in count():
        clear()
        died = killed("create", location, moment)
        found = id_of(location)
        with Ledger.create(location) as ledger:
            assert found in (None, ledger.id)
            assert ledger.strict == ("://" in location)
            assert ledger.datasets() == []
        if not died:
            break
    assert found is not None, "the last was not killed"
    assert moment > 15
