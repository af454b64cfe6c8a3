"""One ledger file that is reached by two names, as by a file that is mounted into a container, or a hard link."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_plans import CAP, RECORD, pure_plan

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger, location
from understudy.privacy.guarantee import Budget

_SCRIPT = Path(__file__).with_name("two_names.py")
ROUNDS = 25

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no such mounts, and its hard links are rare")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one" / "ledger.sqlite"
    with Ledger.create(path) as ledger:
        for number in range(ROUNDS):
            ledger.open_dataset(f"d{number}", cap=Budget(1, 0), unit=RECORD)
    return path


def other_name(file: Path) -> Path:
    other = file.parent.parent / "two" / "other.sqlite"
    other.parent.mkdir()
    os.link(file, other)
    return other


@posix
def test_two_processes_by_two_names_lose_no_charge(file: Path) -> None:
    """0.6 and 0.6 under a cap of 1: with a write-ahead log beside each name, both were charged, every time."""
    running = [
        subprocess.Popen(
            [sys.executable, str(_SCRIPT), str(name), run, str(ROUNDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for run, name in (("a", file), ("b", other_name(file)))
    ]
    said = []
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for _ in range(ROUNDS):
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said.append(sorted(process.stdout.readline().strip() for process in running if process.stdout is not None))
    assert [process.communicate() and process.returncode for process in running] == [0, 0]
    assert said == [["charged", "refused"]] * ROUNDS
    (file.parent.parent / "two" / "other.sqlite").unlink()
    with Ledger(file) as ledger:
        assert [len(ledger.history(f"d{number}")) for number in range(ROUNDS)] == [1] * ROUNDS


@posix
def test_a_file_with_two_names_is_refused_before_anything_is_charged(file: Path) -> None:
    ledger = Ledger(file)
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    other = other_name(file)
    for name in (file, other):
        for use in (Ledger, Ledger.create):
            with pytest.raises(LedgerError, match=r"several names.*link or mount its folder"):
                use(name)
    with pytest.raises(LedgerError, match="several names"):
        ledger.charge("clinic", pure_plan("0.1"), run_id="r")
    other.unlink()
    assert ledger.history("clinic") == []
    ledger.close()


@posix
def test_a_link_to_the_folder_or_the_file_is_no_second_name(file: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").symlink_to(file.parent)
    (tmp_path / "link.sqlite").symlink_to(file)
    for name in (tmp_path / "folder" / "ledger.sqlite", tmp_path / "link.sqlite"):
        with Ledger(name) as ledger:
            assert ledger.location == str(file)


@pytest.fixture
def mounted(file: Path) -> Iterator[Path]:
    """The ledger's file, mounted as ``docker -v FILE:FILE`` does; with a space in its path."""
    point = file.parent.parent / "our files" / "ledger.sqlite"
    point.parent.mkdir()
    point.touch()
    if not shutil.which("mount"):
        pytest.skip("there is no program that mounts")
    done = subprocess.run(["mount", "--bind", str(file), str(point)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this user may not mount")
    yield point
    subprocess.run(["umount", str(point)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="bind mounts are Linux's")
def test_a_file_that_is_mounted_by_itself_is_refused(mounted: Path, file: Path) -> None:
    for use in (Ledger, Ledger.create):
        with pytest.raises(LedgerError, match=r"mounted as a single file.*Mount its folder"):
            use(mounted)
    Ledger(file).close()


@pytest.mark.parametrize("between", [" ", "\u2028", "\x85", "\x0c"])
def test_mount_points_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str) -> None:
    path = tmp_path / f"our{between}files" / "ledger.sqlite"
    Ledger.create(path).close()
    table = tmp_path / "mountinfo"
    escaped = str(path).replace(" ", "\\040")
    table.write_text(
        f"36 35 98:0 / / rw - ext4 /dev/vda rw\n37 36 98:0 /x {escaped} rw shared:1 - ext4 /dev/vda rw\n", "utf-8"
    )
    monkeypatch.setattr(location, "_MOUNTS", table)
    with pytest.raises(LedgerError, match="mounted as a single file"):
        Ledger(path)


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="bind mounts are Linux's")
def test_a_folder_that_is_mounted_is_as_good_as_any(file: Path, tmp_path: Path) -> None:
    point = tmp_path / "mounted"
    point.mkdir()
    if subprocess.run(["mount", "--bind", str(file.parent), str(point)], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    try:
        with Ledger(point / "ledger.sqlite") as there, Ledger(file) as here:
            there.charge("d0", pure_plan("0.6"), run_id="a")
            assert here.spent("d0") == Budget("0.6", 0)
    finally:
        subprocess.run(["umount", str(point)], check=True)
