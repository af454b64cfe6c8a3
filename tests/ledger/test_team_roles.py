"""The statements of docs/running-for-a-team.md give each role what the page says, and no more."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from ledger_plans import CAP, RECORD, pure_plan

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger
from understudy.ledger.values import Sketch
from understudy.privacy.guarantee import Budget

PAGE = Path(__file__).parents[2] / "docs" / "running-for-a-team.md"
BEFORE, AFTER = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def as_role(postgres_server: str) -> Iterator[Callable[[str], str]]:
    """The location of the page's ledger, with the dataset ``notes`` open, for a role of the page."""
    mark = uuid.uuid4().hex[:8]
    server = sa.make_url(postgres_server).set(drivername="postgresql+psycopg")
    place = server.set(database=f"understudy_{mark}")

    def execute(url: sa.URL, statements: str) -> None:
        renamed = re.sub(r"\b(ledger_(?:owner|user|reader)|DATABASE understudy)\b", rf"\1_{mark}", statements)
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            for statement in filter(str.strip, renamed.split(";")):
                connection.exec_driver_sql(statement)

    def location(role: str) -> str:
        options = {"options": f"-c role={role}_{mark}"}
        return place.set(drivername="postgresql").update_query_dict(options).render_as_string(hide_password=False)

    execute(server, BEFORE)
    try:
        with Ledger.create(location("ledger_owner")) as ledger:
            assert ledger.strict
            ledger.open_dataset("notes", cap=CAP, unit=RECORD)
        execute(sa.make_url(location("ledger_owner")).set(drivername="postgresql+psycopg"), AFTER)
        yield location
    finally:
        execute(server, "DROP DATABASE understudy WITH (FORCE)")
        execute(server, "DROP ROLE ledger_owner; DROP ROLE ledger_user; DROP ROLE ledger_reader")


def test_a_user_runs_and_neither_opens_nor_raises(as_role: Callable[[str], str]) -> None:
    with Ledger(as_role("ledger_user")) as ledger:
        for sketch in (Sketch((1,)), Sketch((1, 2))):
            ledger.identify("notes", uuid.uuid4().hex, sketch=sketch)
        receipt = ledger.charge("notes", pure_plan("0.1"), run_id="one")
        ledger.confirm(receipt.seal("sums", noise="system", rows=""), "digest")
        with pytest.raises(LedgerError, match="permission denied"):
            ledger.open_dataset("letters", cap=CAP, unit=RECORD)
        with pytest.raises(LedgerError, match="permission denied"):
            ledger.raise_cap("notes", cap=Budget(100, "1e-6"))
    with pytest.raises(LedgerError, match="permission denied"):
        Ledger.create(as_role("ledger_user"), strict=False)


def test_a_reader_sees_what_was_spent_and_does_not_run(as_role: Callable[[str], str]) -> None:
    with Ledger(as_role("ledger_user")) as ledger:
        ledger.charge("notes", pure_plan("0.1"), run_id="one")
    with Ledger(as_role("ledger_reader")) as ledger:
        assert [entry.run_id for entry in ledger.history("notes")] == ["one"]
        with pytest.raises(LedgerError, match="permission denied"):
            ledger.charge("notes", pure_plan("0.1"), run_id="two")


def test_the_owner_raises_a_cap(as_role: Callable[[str], str]) -> None:
    with Ledger(as_role("ledger_owner")) as ledger:
        assert ledger.raise_cap("notes", cap=Budget(2, "1e-6")).cap == Budget(2, "1e-6")
