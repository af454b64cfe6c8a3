"""A full disk or a locked file costs nothing: the error says so, and the same command goes on without a new charge."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, settings
from evolution_fixtures import evolving
from run_fixtures import Said, runs_charged
from secret_fixtures import protecting

import understudy as us
from understudy.base.errors import StorageError
from understudy.ledger import Ledger
from understudy.ledger.store import database
from understudy.privacy.guarantee import Budget
from understudy.run import pipeline as running
from understudy.run.settings import run_config

TMPFS = 4 * 1024  # KiB
CURE = r"Free some space, then repeat the same command: it resumes, and nothing is charged twice\.$"
METHODS: dict[str, Callable[..., dict[str, Any]]] = {
    "dp-kps": settings,
    "a guide": partial(settings, guide=True),
    "aug-pe": evolving,
    "sec-pe": protecting,
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB; skipped where none may be mounted."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a disk takes Linux and root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk may be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def run(values: dict[str, Any]) -> running.Result:
    return running.run(run_config(values))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("embedder", "varied_chat")
def test_wherever_the_disk_fills_up_the_same_command_goes_on(small_disk: Path, tmp_path: Path, method: str) -> None:
    failed_before = failed_after = 0
    for free in range(0, 400, 40):
        folder = tmp_path / str(free)
        folder.mkdir()
        values = METHODS[method](folder, output=str(small_disk / str(free)))
        filler = small_disk / "filler"
        used = sum(file.stat().st_blocks // 2 for file in small_disk.rglob("*"))
        filler.write_bytes(bytes(max(0, TMPFS - used - free) * 1024))
        told = ""
        try:
            run(values)
        except StorageError as error:
            told = str(error)
            failed_after += runs_charged(values["ledger"])
            failed_before += not runs_charged(values["ledger"])
        assert not told or re.search(f"^The disk is full: .*{CURE}", told)
        filler.unlink()
        assert run(values).missing == 0
        assert runs_charged(values["ledger"]) == 1
        if failed_before and failed_after > 1:
            break
    assert failed_before
    assert failed_after


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("file", ["dp-kps.release", "statement.md", "synthetic.parquet"])
def test_a_file_that_cannot_be_written_after_the_charge_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Callable[..., Said], code: int, file: str
) -> None:
    values = settings(tmp_path)
    with monkeypatch.context() as patch:
        replace = Path.replace

        def failing(path: Path, target: Path) -> Path:
            if Path(target).name == file:
                raise OSError(code, os.strerror(code))
            return replace(path, target)

        patch.setattr(Path, "replace", failing)
        said = understudy("run", *flags(values))
    assert said.code == StorageError.exit_code
    assert "repeat the same command: it resumes, and nothing is charged twice." in said.err
    assert runs_charged(values["ledger"]) == 1
    assert understudy("run", *flags(values)).code == 0
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize("name", ["evaluation.json", "metrics.json"])
def test_an_evaluation_that_finds_the_disk_full_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    values = settings(tmp_path, epsilon=2)
    made = run(values).folder
    assert made is not None
    with Ledger(values["ledger"]) as ledger:
        ledger.raise_cap("notes", cap=Budget(3, "1e-6"))
    options = {"embedder": "none", "metrics": "leakage", "charge_metrics": "0.5", "ledger": values["ledger"]}
    with monkeypatch.context() as patch:
        replace = Path.replace

        def failing(path: Path, target: Path) -> Path:
            if Path(target).name == name:
                raise OSError(errno.ENOSPC, "No space left on device")
            return replace(path, target)

        patch.setattr(Path, "replace", failing)
        with pytest.raises(StorageError, match=CURE):
            us.evaluate(tmp_path / "notes.csv", made.root, **options)
    assert runs_charged(values["ledger"]) == 2
    us.evaluate(tmp_path / "notes.csv", made.root, **options)
    assert runs_charged(values["ledger"]) == 2


def test_a_locked_store_is_waited_for_and_then_said_to_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(tmp_path)
    run(values)
    other = sqlite3.connect(tmp_path / "out" / "private" / "run.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with monkeypatch.context() as patch:
        patch.setattr(database, "WAIT_SECONDS", 0)
        with pytest.raises(
            StorageError, match=r"Another program holds .*run\.sqlite locked.*then repeat the same"
        ) as told:
            run(values)
    assert "--fresh" not in str(told.value)
    closing = threading.Timer(0.3, other.close)
    closing.start()
    run(values)
    closing.join()
    assert runs_charged(values["ledger"]) == 1


def test_a_damaged_store_is_not_taken_for_a_full_disk(tmp_path: Path, understudy: Callable[..., Said]) -> None:
    values = settings(tmp_path)
    run(values)
    store = tmp_path / "out" / "private" / "run.sqlite"
    store.write_bytes(b"x" * store.stat().st_size)
    said = understudy("run", *flags(values))
    assert said.code == 8
    assert "is damaged" in said.err
    assert "Restore it from a backup" in said.err
    assert "charges the budget again" in said.err


@pytest.mark.skipif(os.name != "posix", reason="Windows has no umask of this kind")
@pytest.mark.usefixtures("embedder")
def test_whatever_the_umask_only_the_owner_writes_and_nobody_else_reads_what_is_private(
    tmp_path: Path, understudy: Callable[..., Said]
) -> None:
    (tmp_path / "bad.csv").write_text(
        (settings(tmp_path) and (tmp_path / "notes.csv").read_text("utf-8")) + ",cardiology,x\n"
    )
    values = settings(
        tmp_path,
        data=str(tmp_path / "bad.csv"),
        max_bad_rows=1,
        output=str(tmp_path / "deep" / "out"),
    )
    before = os.umask(0)
    try:
        assert understudy("run", *flags(values)).code == 0
        options = ["--embedder", "none", "--metrics", "leakage", "--ledger", str(tmp_path / "other.sqlite")]
        words = ["--dataset", "notes", "--charge-metrics", "0.5", "--max-bad-rows", "1"]
        said = understudy("evaluate", values["data"], values["output"], *options, *words)
        assert said.code == 0, said.err
        assert understudy("report", values["output"]).code == 0
    finally:
        os.umask(before)
    out = Path(values["output"])
    modes = {path.relative_to(out).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in (out, *out.rglob("*"))}
    assert {"release/report.html", "release/metrics.json", "private/report.html", "private/metrics/run.sqlite"} <= set(
        modes
    )
    assert {name for name, mode in modes.items() if mode & 0o022} == set()
    assert stat.S_IMODE(out.parent.stat().st_mode) & 0o022 == 0
    assert {name for name, mode in modes.items() if name.startswith("private") and mode & 0o077} == set()
    assert modes["private"] == modes["private/metrics"] == 0o700


@pytest.mark.skipif(os.name != "posix", reason="Windows has no file modes")
def test_a_release_folder_that_anyone_could_write_into_is_closed(tmp_path: Path) -> None:
    values = settings(tmp_path)
    shareable = tmp_path / "out" / "release"
    shareable.mkdir(parents=True)
    shareable.chmod(0o777)
    run(values)
    assert stat.S_IMODE(shareable.stat().st_mode) == 0o755
