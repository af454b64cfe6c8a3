"""Where a ledger may be, and what is said when it cannot be used."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from pathlib import Path, PurePosixPath

import pytest
import sqlalchemy as sa
from ledger_plans import CAP, RECORD, pure_plan

from understudy.base.errors import LedgerError, UnderstudyWarning
from understudy.ledger import Ledger, default_location, location
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
    with pytest.raises(LedgerError, match=r"format version 3.*reads 1"):
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
        with pytest.raises(LedgerError, match=r"ledger.sqlite is gone. Restore it"):
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


# -- drives -----------------------------------------------------------------------------------------------------------

_LINUX = """\
22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:21 / /proc rw,relatime - proc proc rw
24 22 0:40 / /home rw shared:1 - nfs4 server:/export rw
25 24 254:1 / /home/local rw shared:2 master:1 - ext4 /dev/vdb rw
26 22 0:41 / /mnt/our\\040files rw - cifs //nas/share rw
27 22 0:42 / /mnt/ssh rw - fuse.sshfs user@host: rw
28 22 8:17 / /media/stick rw - fuseblk - rw
29 22 0:43 / /mnt/sh\u2028are rw - nfs4 nas:/x rw
30 22 0:44 / /over rw - tmpfs tmpfs rw
31 30 0:45 / /over rw - nfs server:/x rw
"""
_MACOS = """\
/dev/disk1s1 on / (apfs, local, journaled)
//user@nas/share on /Volumes/our files (smbfs, nodev, nosuid, mounted by user)
server:/x on /Volumes/home (nfs)
"""
_REFUSED = [*("nfs", "nfs4", "cifs", "9p", "lustre", "virtiofs", "vboxsf", "autofs", "unknown", "fuse", "fuse.sshfs")]


@pytest.mark.parametrize(
    ("table", "path", "kind"),
    [
        (_LINUX, "/root/ledger.sqlite", "ext4"),
        (_LINUX, "/home/a/ledger.sqlite", "nfs4"),
        (_LINUX, "/homestead/ledger.sqlite", "ext4"),
        (_LINUX, "/home/local/ledger.sqlite", "ext4"),
        (_LINUX, "/mnt/our files/ledger.sqlite", "cifs"),
        (_LINUX, "/mnt/sh\u2028are/ledger.sqlite", "nfs4"),
        (_LINUX, "/mnt/ssh/ledger.sqlite", "fuse.sshfs"),
        (_LINUX, "/media/stick/ledger.sqlite", "fuseblk"),
        (_LINUX, "/over/ledger.sqlite", "nfs"),
        (_MACOS, "/Users/a/ledger.sqlite", "apfs"),
        (_MACOS, "/Volumes/our files/ledger.sqlite", "smbfs"),
        (_MACOS, "/Volumes/home/ledger.sqlite", "nfs"),
        ("", "/ledger.sqlite", "unknown"),
    ],
)
def test_a_drive_s_type_is_read_from_the_mount_table(table: str, path: str, kind: str) -> None:
    assert location.drive_type(location.mounts_of(table), PurePosixPath(path)) == kind


@pytest.mark.parametrize("kind", _REFUSED)
def test_a_drive_that_is_not_known_to_be_local_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("understudy.ledger.location.drive_type_of", lambda _path: kind)
    for use in (Ledger, Ledger.create):
        with pytest.raises(LedgerError, match=f"type '{kind}', which is not known to be local.*PostgreSQL"):
            use(tmp_path / "state" / "ledger.sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "apfs", "ntfs3", "fuseblk"])
def test_a_local_drive_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("understudy.ledger.location.drive_type_of", lambda _path: kind)
    Ledger.create(tmp_path / "ledger.sqlite").close()


def test_a_user_can_vouch_for_a_type_and_for_this_one_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_LOCAL_DRIVES", "bcachefs2, virtiofs")
    monkeypatch.setattr("understudy.ledger.location.drive_type_of", lambda _path: "virtiofs")
    Ledger.create(tmp_path / "ledger.sqlite").close()
    monkeypatch.setattr("understudy.ledger.location.drive_type_of", lambda _path: "9p")
    with pytest.raises(LedgerError, match="UNDERSTUDY_LOCAL_DRIVES=9p"):
        Ledger(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize("kind", ["overlay", "tmpfs"])
def test_a_new_ledger_that_will_be_gone_with_its_container_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drives_last: frozenset[str], kind: str
) -> None:
    monkeypatch.setattr(location, "PASSING", drives_last)
    monkeypatch.setattr("understudy.ledger.location.drive_type_of", lambda _path: kind)
    with pytest.warns(UnderstudyWarning, match=rf"\({kind}\) that is deleted with its container"):
        Ledger.create(tmp_path / "ledger.sqlite").close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other types")
def test_this_machines_mount_table_is_read(tmp_path: Path) -> None:
    assert location.drive_type_of(tmp_path) != location.UNKNOWN


def test_a_machine_that_lists_no_mounts_has_unknown_drives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _path, **_: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if sys.platform != "win32":
        assert location.drive_type_of(tmp_path) == location.UNKNOWN
