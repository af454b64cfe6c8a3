"""``kill -9`` before every statement and commit that make a ledger, or bring one of an older version up to date."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import postgres_cluster
import pytest
from ledger_plans import CAP, RECORD, new_ledger, pure_plan, seal_of
from ledger_workers import started
from test_beginning import as_version_1, in_a_log

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger
from understudy.ledger.database import Database
from understudy.ledger.location import parse_location
from understudy.privacy.guarantee import Budget

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


def charged(location: str) -> list[Any]:
    """A ledger of version 1 with charges; its history."""
    with new_ledger(location) as ledger:
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
        ledger.charge("clinic", pure_plan("0.6"), run_id="r1")
        ledger.confirm(seal_of(ledger, "r1"), "digest")
        history = ledger.history("clinic")
    as_version_1(location)
    return history


def test_a_kill_while_a_ledger_of_version_1_is_brought_up_to_date_loses_no_charge(
    location: str, clear: Callable[[], None]
) -> None:
    for moment in count():
        clear()
        history = charged(location)
        died = killed("bring_up_to_date", location, moment)
        with Ledger(location) as ledger, Ledger(location) as again:
            assert ledger.history("clinic") == history
            assert ledger.id == again.id
            ledger.charge("clinic", pure_plan("0.6"), run_id="r1", kept={"sums": "digest"})
            assert ledger.spent("clinic") == Budget("0.6", 0)
        if not died:
            break
    assert moment > 10


def test_a_kill_while_the_log_of_an_older_version_is_taken_over_loses_no_charge_in_it(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    connection = in_a_log(tmp_path / "here" / "ledger.sqlite")
    left_behind = {path.name: path.read_bytes() for path in (tmp_path / "here").glob("*.sqlite*")}
    connection.close()
    left_behind.pop("ledger.sqlite-shm")
    for moment in count():
        folder = tmp_path / str(moment)
        folder.mkdir()
        for name, content in left_behind.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o600)
        died = killed("bring_up_to_date", str(folder / "ledger.sqlite"), moment)
        with Ledger(folder / "ledger.sqlite") as ledger:
            assert [entry.run_id for entry in ledger.history("clinic")] == ["r1"]
            assert ledger.spent("clinic") == Budget("0.6", 0)
        if not died:
            break
    assert moment > 10
