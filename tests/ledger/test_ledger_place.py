"""Where a ledger may be, and what is said when it cannot be used."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from ledger_plans import CAP, RECORD, pure_plan

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger, default_location
from understudy.ledger.database import Database
from understudy.ledger.location import parse_location

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no file modes")


@posix
def test_the_file_and_its_folder_are_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ledger.sqlite"
    with Ledger.create(path) as ledger:
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_sqlite_writes_through_to_the_disk_without_a_log_beside_the_file(tmp_path: Path) -> None:
    with Database(parse_location(tmp_path / "ledger.sqlite")).write(create=True) as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "fullfsync")
        }
    assert pragmas == {"journal_mode": "delete", "synchronous": 3, "fullfsync": 1}


def test_the_default_is_the_environments_or_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_LEDGER", "/some/where.sqlite")
    assert default_location() == "/some/where.sqlite"
    monkeypatch.delenv("UNDERSTUDY_LEDGER")
    assert Path(default_location()).name == "ledger.sqlite"
    assert "understudy" in default_location()


def test_a_path_may_be_written_as_a_url(tmp_path: Path) -> None:
    with Ledger.create(f"sqlite:///{tmp_path / 'a.sqlite'}") as ledger:
        assert ledger.location == str(tmp_path / "a.sqlite")


def test_a_corrupt_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database at all" * 500)
    with pytest.raises(LedgerError, match=r"not a database.*backup"):
        Ledger(path)


def test_a_damaged_page_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.create(path) as ledger:
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(LedgerError, match=r"malformed.*backup"):
        Ledger(path)


@pytest.mark.parametrize("name", [b"understudy_meta", b"understudy_entry", b"understudy_fingerprint"])
def test_a_schema_that_is_not_utf_8_is_the_error_of_any_damaged_value(tmp_path: Path, name: bytes) -> None:
    """SQLite quotes the name in its message, which Python's driver then cannot read."""
    path = tmp_path / "ledger.sqlite"
    Ledger.create(path).close()
    whole, errors = path.read_bytes(), []
    for found in re.finditer(name, whole):
        path.write_bytes(whole[: found.start() + 3] + b"\xff\xfe\xff\xfe" + whole[found.start() + 7 :])
        try:
            Ledger(path).close()
        except LedgerError as error:
            errors.append(error)
    assert all("backup" in error.cure for error in errors)
    assert any(error.problem.startswith("The ledger is damaged") for error in errors)


def test_a_ledger_that_lost_a_table_is_damaged(location: str) -> None:
    with Ledger.create(location):
        pass
    with Database(parse_location(location)).write() as connection:
        connection.execute(sa.text("DROP TABLE understudy_draw"))
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(location)


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()


def test_a_ledger_from_a_newer_version_is_refused(location: str) -> None:
    with Ledger.create(location):
        pass
    with Database(parse_location(location)).write() as connection:
        connection.execute(sa.text("UPDATE understudy_meta SET value = '3' WHERE key = 'version'"))
    with pytest.raises(LedgerError, match=r"newer version.*Upgrade"):
        Ledger(location)


def test_charges_of_a_kind_that_is_not_known_are_added_but_not_composed(ledger: Ledger, location: str) -> None:
    for rule in ("basic", "rdp"):
        ledger.open_dataset(rule, cap=CAP, unit=RECORD, rule=rule)
        ledger.charge(rule, pure_plan("0.1"), run_id=rule)
    with Database(parse_location(location)).write() as connection:
        connection.execute(sa.text("UPDATE understudy_entry SET charges = replace(charges, '\"pure\"', '\"later\"')"))
    assert ledger.spent("basic") == pure_plan("0.1").budget
    with pytest.raises(LedgerError, match=r"does not know.*Upgrade"):
        ledger.spent("rdp")


def test_a_folder_is_not_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"cannot be written.*Restore write access"):
        Ledger(tmp_path)


def test_only_where_a_new_ledger_cannot_be_made_another_file_is_advised(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="Choose a file that you may write"):
        Ledger.create(tmp_path / "file" / "ledger.sqlite")
    path = tmp_path / "drive" / "ledger.sqlite"
    with Ledger.create(path) as ledger:
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
        path.rename(tmp_path / "kept")
        with pytest.raises(LedgerError, match=r"ledger.sqlite is gone. Put it back"):
            ledger.charge("clinic", pure_plan("0.1"), run_id="r")
        path.parent.rmdir()
        path.parent.touch()  # what a drive was mounted on may be anything
        with pytest.raises(LedgerError, match=r"cannot be written.*Restore write access"):
            ledger.charge("clinic", pure_plan("0.1"), run_id="r")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret@host:port/db",
        "mysql://user:s3cret@host/db",
        "sqlite://",
        "nonsense://s3cret",
        "postgresql://user:one@s3cret@127.0.0.1:1/db",  # host "s3cret@127.0.0.1"
        "postgresql://user:one@127.0.0.1:1/s3cret@host/db",  # database "s3cret@host/db"
        "postgresql://user:one@s3cret?two@127.0.0.1:1/db",  # host "s3cret", and a query
        "postgresql://127.0.0.1:1/db?password=one@s3cret",  # host "s3cret", and the rest a password
    ],
)
def test_a_url_that_cannot_be_used_is_an_error_without_its_password(url: str) -> None:
    with pytest.raises(LedgerError, match="postgresql://USER:PASSWORD@HOST/DATABASE") as caught:
        Ledger(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret%21@127.0.0.1:1/db",
        "postgresql+psycopg://127.0.0.1:1/db?user=user&password=s3cret%40",
        "postgresql://user:s3cret%21@/db?host=/nowhere/s3cret!",  # the driver's message repeats it
    ],
)
def test_an_unreachable_server_is_an_error_without_its_password(url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="cannot be used") as caught:
        Ledger(url)
    assert "postgresql://" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match="pip install 'understudy\\[postgres\\]'"):
        Ledger("postgresql://host/db")
