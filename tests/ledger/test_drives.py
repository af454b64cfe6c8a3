"""On which drives a ledger may lie."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

import pytest

from understudy.base.errors import LedgerError, UnderstudyWarning
from understudy.ledger import Ledger, location

_LINUX = """\
/dev/vda / ext4 rw 0 0
proc /proc proc rw 0 0
server:/export /home nfs4 rw 0 0
/dev/vdb /home/local ext4 rw 0 0
//nas/share /mnt/our\\040files cifs rw 0 0
user@host: /mnt/ssh fuse.sshfs rw 0 0
/dev/sdb1 /media/stick fuseblk rw 0 0
nas:/x /mnt/sh\u2028are nfs4 rw 0 0
tmpfs /over tmpfs rw 0 0
server:/x /over nfs rw 0 0
"""
_MACOS = """\
/dev/disk1s1 on / (apfs, local, journaled)
//user@nas/share on /Volumes/our files (smbfs, nodev, nosuid, mounted by user)
server:/x on /Volumes/home (nfs)
"""
_REFUSED = [
    *("nfs", "nfs4", "cifs", "9p", "lustre", "virtiofs", "vboxsf", "autofs", "unknown", "fuse", "fuse.sshfs"),
]


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
    assert location.drive_type(table, PurePosixPath(path)) == kind


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("understudy.ledger.location.drive_type_of", lambda _path: kind)
    with pytest.warns(UnderstudyWarning, match=rf"\({kind}\) that is gone with its container"):
        Ledger.create(tmp_path / "ledger.sqlite").close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other types")
def test_this_machines_mount_table_is_read(tmp_path: Path) -> None:
    assert location.drive_type_of(tmp_path) != location.UNKNOWN


def test_a_machine_that_lists_no_mounts_has_unknown_drives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda _path, **_: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if sys.platform != "win32":
        assert location.drive_type_of(tmp_path) == location.UNKNOWN
