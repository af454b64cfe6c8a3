"""Where a ledger begins, what it is known by, and how one of an older version is taken over."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from ledger_plans import CAP, RECORD, pure_plan

from understudy.base.errors import LedgerError, UnderstudyWarning
from understudy.cli import cli
from understudy.ledger import Ledger
from understudy.ledger.database import Database
from understudy.ledger.location import parse_location

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no file modes")


def call(line: str) -> Result:
    return CliRunner().invoke(cli, ["ledger", *line.split()], catch_exceptions=False)


def empty_file(path: Path) -> None:
    path.touch(mode=0o600)


def empty_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("VACUUM")
    connection.close()
    path.chmod(0o600)


@pytest.mark.parametrize("make", [lambda _path: None, empty_file, empty_database])
@pytest.mark.parametrize("named_by", ["flag", "environment"])
def test_a_named_ledger_that_is_not_there_is_an_error_and_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], named_by: str
) -> None:
    path = tmp_path / "share" / "ledger.sqlite"
    path.parent.mkdir()
    make(path)
    before = path.read_bytes() if path.exists() else None
    if named_by == "environment":
        monkeypatch.setenv("UNDERSTUDY_LEDGER", str(path))
    with pytest.raises(LedgerError, match=rf"no ledger at {path}.*mounted.*ledger\.create.ledger=.{path}"):
        Ledger(path if named_by == "flag" else None)
    flag = f" --ledger {path}" if named_by == "flag" else ""
    for verb in ("show", "history clinic", "open clinic --epsilon 1 --delta 0"):
        with pytest.raises(LedgerError, match="no ledger at"):
            call(verb + flag)
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_database_server_without_a_ledger_is_an_error(postgres_location: str) -> None:
    with pytest.raises(LedgerError, match=r"no ledger at postgresql://.*us\.ledger\.create"):
        Ledger(postgres_location)
    Ledger.create(postgres_location).close()
    Ledger(postgres_location).close()


def test_the_users_state_folder_is_where_one_begins_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDERSTUDY_LEDGER", raising=False)
    monkeypatch.setattr("understudy.ledger.location.state_folder_location", lambda: str(tmp_path / "s" / "l.sqlite"))
    with Ledger() as ledger:
        first = ledger.id
    with Ledger() as ledger:
        assert ledger.id == first
        assert not ledger.strict
    with pytest.raises(LedgerError, match="no ledger at"):
        Ledger(tmp_path / "s" / "m.sqlite")


@pytest.mark.parametrize("make", [empty_file, empty_database])
def test_a_ledger_in_the_users_state_folder_that_was_emptied_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "ledger.sqlite"
    monkeypatch.delenv("UNDERSTUDY_LEDGER", raising=False)
    monkeypatch.setattr("understudy.ledger.location.state_folder_location", lambda: str(path))
    monkeypatch.setattr("understudy.ledger.ledger.BEGINNING_SECONDS", 0)
    Ledger().close()
    path.unlink()
    make(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(LedgerError, match=rf"no ledger at {path}, but an empty.*backup.*create.ledger=.{path}"):
            Ledger()
        assert path.read_bytes() == before
    call(f"create --ledger {path}")  # the cure where a kill left it
    Ledger().close()


def test_a_ledger_that_another_process_begins_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    monkeypatch.delenv("UNDERSTUDY_LEDGER", raising=False)
    monkeypatch.setattr("understudy.ledger.location.state_folder_location", lambda: str(path))
    empty_file(path)
    monkeypatch.setattr("understudy.ledger.ledger.time.sleep", lambda _: Ledger.create(path).close())
    with Ledger() as ledger, Ledger(path) as named:
        assert ledger.id == named.id


def test_create_may_be_repeated_and_says_the_id(tmp_path: Path) -> None:
    where = str(tmp_path / "new" / "ledger.sqlite")
    first, second = call(f"create --ledger {where}"), call(f"create --ledger {where}")
    with Ledger(where) as ledger:
        assert first.output == second.output == f"Ledger {ledger.id} at {where}.\n"
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
        assert call(f"show --ledger {where}").output.startswith(f"Ledger {ledger.id} at {where}.\n")
        assert json.loads(call(f"show --json --ledger {where}").output)["ledger"] == ledger.id
    call(f"create --ledger {where}")
    with Ledger(where) as ledger:
        assert ledger.dataset("clinic") is not None


def test_create_leaves_another_programs_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    path.chmod(0o644)
    before = path.read_bytes()
    for use in (Ledger, Ledger.create):
        with pytest.raises(LedgerError, match="not a ledger"):
            use(path)
    assert path.read_bytes() == before
    assert os.name != "posix" or path.stat().st_mode & 0o777 == 0o644


def test_a_pinned_id_takes_this_ledger_and_no_other(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "a.sqlite") as first, Ledger.create(tmp_path / "b.sqlite") as second:
        assert first.id != second.id
    Ledger(tmp_path / "a.sqlite", ledger_id=first.id).close()
    with pytest.raises(LedgerError, match=rf"different id \({second.id}\).*ledger_id"):
        Ledger(tmp_path / "b.sqlite", ledger_id=first.id)


def test_another_ledger_that_takes_its_place_meanwhile_is_neither_read_nor_charged(location: str) -> None:
    """As where a drive goes away from over an older file, or a database is renamed."""
    with Ledger.create(location, strict=False) as ledger:
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
        seal = ledger.charge("clinic", pure_plan("0.1"), run_id="r1").seal("sums", noise="system", rows="")
        with Database(parse_location(location)).write() as connection:
            connection.execute(sa.text(f"UPDATE understudy_meta SET value = '{0:032}' WHERE key = 'id'"))
        for use in (
            lambda: ledger.open_dataset("other", cap=CAP, unit=RECORD, by_hand=False),
            lambda: ledger.charge("clinic", pure_plan("0.1"), run_id="r2"),
            lambda: ledger.confirm(seal, "digest"),
            lambda: ledger.check("clinic", pure_plan("0.1")),
            lambda: ledger.spent("clinic"),
            lambda: ledger.strict_changes,
        ):
            with pytest.raises(LedgerError, match=rf"replaced by a different one.*id {ledger.id} "):
                use()


def test_a_strict_ledger_takes_datasets_that_are_opened_by_hand_only(tmp_path: Path) -> None:
    where = str(tmp_path / "ledger.sqlite")
    assert "strict" in call(f"create --strict --ledger {where}").output
    with Ledger(where) as ledger:
        with pytest.raises(LedgerError, match=r'us\.ledger\.open\("clinic", epsilon=E, delta=D\)'):
            ledger.check("clinic", pure_plan("0.1"))
        with pytest.raises(LedgerError, match="strict"):
            ledger.open_dataset("clinic", cap=CAP, unit=RECORD, by_hand=False)
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
        ledger.check("clinic", pure_plan("0.1"))
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD, by_hand=False)  # it is open
    call(f"create --ledger {where}")  # changes nothing
    call(f"create --no-strict --ledger {where}")
    call(f"create --no-strict --ledger {where}")
    with Ledger(where) as ledger:
        assert not ledger.strict
        assert [strict for _, strict in ledger.strict_changes] == [True, False]
        ledger.check("other", pure_plan("0.1"))
    changes = json.loads(call(f"show --json --ledger {where}").output)["strict_changes"]
    assert [change["strict"] for change in changes] == [True, False]


def test_a_new_ledger_in_postgresql_is_strict_unless_told_otherwise(postgres_location: str, tmp_path: Path) -> None:
    with Ledger.create(postgres_location) as ledger:
        assert ledger.strict
    with Ledger.create(postgres_location, strict=False) as ledger:
        assert not ledger.strict
    with Ledger.create(tmp_path / "ledger.sqlite") as ledger:
        assert not ledger.strict


def test_a_ledger_of_another_version_is_refused_and_stays_as_it_is(location: str) -> None:
    Ledger.create(location).close()
    with Database(parse_location(location)).write() as connection:
        connection.execute(sa.text("UPDATE understudy_meta SET value = '2' WHERE key = 'version'"))
    for use in (Ledger, Ledger.create):
        with pytest.raises(LedgerError, match=r"has format version 2; this version of understudy reads 1"):
            use(location)


def test_a_ledger_that_keeps_a_write_ahead_log_is_not_charged(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger.sqlite") as ledger:
        connection = sqlite3.connect(tmp_path / "ledger.sqlite")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
        with pytest.raises(LedgerError, match=r"write-ahead log.*journal_mode to DELETE"):
            ledger.open_dataset("clinic", cap=CAP, unit=RECORD)


@posix
def test_a_ledger_that_others_can_read_is_made_its_owner_s_alone_and_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.create(path).close()
    path.chmod(0o644)
    with pytest.warns(UnderstudyWarning, match=r"could be read or written by others.*0600"):
        Ledger(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnderstudyWarning)
        Ledger(path).close()


@posix
def test_a_ledger_that_cannot_be_made_private_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.create(path).close()
    path.chmod(0o644)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.warns(UnderstudyWarning, match=f"can be read or written by others.*chmod 600 {path}"):
        Ledger(path).close()


@posix
def test_a_folder_that_all_may_write_to_is_warned_of_but_a_shared_temporary_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "all" / "ledger.sqlite"
    Ledger.create(path).close()
    path.parent.chmod(0o777)
    with pytest.warns(UnderstudyWarning, match="Others can write to the folder"):
        Ledger(path).close()
    path.parent.chmod(0o1777)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnderstudyWarning)
        Ledger(path).close()


@posix
def test_the_command_line_says_a_warning_in_words(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.create(path).close()
    path.chmod(0o644)
    command = [sys.executable, "-c", "from understudy.cli import main; main()", "ledger", "show", "--ledger", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"Warning: The ledger {path} could be read or written by others")
