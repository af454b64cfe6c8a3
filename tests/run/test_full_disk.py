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
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, settings
from evolution_fixtures import evolving
from run_fixtures import Command, files_holding, runs_charged
from secret_fixtures import protecting

import understudy as us
from understudy.base.errors import StorageError
from understudy.base.files import private_folder
from understudy.ledger import Ledger
from understudy.ledger.locking import FolderLock
from understudy.ledger.store import database
from understudy.privacy.guarantee import Budget
from understudy.run import pipeline as running
from understudy.run.parts import Table
from understudy.run.settings import run_config

TMPFS = 4 * 1024  # KiB
CURE = r"Free some space, then repeat the same command: it resumes, and nothing is charged twice\.$"
METHODS: dict[str, Callable[..., dict[str, Any]]] = {
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
    for free in range(0, 400, 80):
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


@contextmanager
def failing(name: str, code: int = errno.ENOSPC) -> Iterator[None]:
    """No file of this name can be put in its place."""
    replace = Path.replace

    def failing(path: Path, target: Path) -> Path:
        if Path(target).name == name:
            raise OSError(code, os.strerror(code))
        return replace(path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", failing)
        yield


@pytest.mark.parametrize(
    ("file", "code"),
    [("dp-kps.release", errno.ENOSPC), ("statement.md", errno.EDQUOT), ("synthetic.parquet", errno.EIO)],
)
def test_a_file_that_cannot_be_written_after_the_charge_costs_nothing(
    tmp_path: Path, understudy: Command, file: str, code: int
) -> None:
    values = settings(tmp_path)
    with failing(file, code):
        said = understudy("run", *flags(values))
    assert said.code == StorageError.exit_code
    assert "repeat the same command: it resumes, and nothing is charged twice." in said.err
    assert runs_charged(values["ledger"]) == 1
    assert understudy("run", *flags(values)).code == 0
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize("name", ["evaluation.json", "metrics.json"])
def test_an_evaluation_that_finds_the_disk_full_goes_on_too(
    tmp_path: Path, finished: Callable[..., dict[str, Any]], name: str
) -> None:
    values = finished(tmp_path)
    with Ledger(values["ledger"]) as ledger:
        ledger.raise_cap("notes", cap=Budget(4, "1e-6"))
    options = {"embedder": "none", "metrics": "leakage", "charge_metrics": "0.5", "ledger": values["ledger"]}
    with failing(name), pytest.raises(StorageError, match=CURE):
        us.evaluate(tmp_path / "notes.csv", values["output"], **options)
    assert runs_charged(values["ledger"]) == 2
    us.evaluate(tmp_path / "notes.csv", values["output"], **options)
    assert runs_charged(values["ledger"]) == 2


def test_a_locked_store_is_waited_for_and_then_said_to_be_locked(
    tmp_path: Path, finished: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = finished(tmp_path)
    other = sqlite3.connect(tmp_path / "out" / "private" / "run.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with monkeypatch.context() as patch:
        patch.setattr(database, "WAIT_SECONDS", 0)
        with pytest.raises(
            StorageError, match=r"Another program has locked .*run\.sqlite.*then repeat the same"
        ) as told:
            run(values)
    assert "fresh" not in str(told.value)
    closing = threading.Timer(0.3, other.close)
    closing.start()
    run(values)
    closing.join()
    assert runs_charged(values["ledger"]) == 1


def test_a_damaged_store_is_not_taken_for_a_full_disk(
    tmp_path: Path, finished: Callable[..., dict[str, Any]], understudy: Command
) -> None:
    values = finished(tmp_path)
    store = tmp_path / "out" / "private" / "run.sqlite"
    store.write_bytes(b"x" * store.stat().st_size)
    said = understudy("run", *flags(values), code=8)
    assert "is damaged" in said.err
    assert "Restore it from a backup" in said.err
    assert "charges the budget again" in said.err


@pytest.mark.skipif(os.name != "posix", reason="Windows has no umask of this kind")
@pytest.mark.usefixtures("embedder")
def test_whatever_the_umask_nobody_else_writes_or_reads_what_is_private(tmp_path: Path, understudy: Command) -> None:
    out, bad = tmp_path / "deep" / "out", {"max_bad_rows": 1}
    values = settings(tmp_path, output=str(out), **bad)
    with (tmp_path / "notes.csv").open("a") as file:
        file.write(",cardiology,x\n")
    (out / "release").mkdir(parents=True)
    (out / "release").chmod(0o777)
    before = os.umask(0)
    try:
        assert understudy("run", *flags(values)).code == 0
        options = {"embedder": "none", "metrics": "leakage", "ledger": str(tmp_path / "other.sqlite"), **bad}
        words = flags({**options, "dataset": "follow-up", "charge_metrics": "0.5"})
        understudy("evaluate", values["data"], values["output"], *words, code=0)
        assert understudy("report", values["output"]).code == 0
    finally:
        os.umask(before)
    modes = {path.relative_to(out).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in (out, *out.rglob("*"))}
    reports = {"release/report.html", "release/metrics.json", "private/report.html", "private/metrics/run.sqlite"}
    assert reports <= set(modes)
    assert {name for name, mode in modes.items() if mode & 0o022} <= {"."}, "which was there before"
    assert modes["release"] == 0o755
    assert {name for name, mode in modes.items() if name.startswith("private") and mode & 0o077} == set()
    assert modes["private"] == modes["private/metrics"] == 0o700


# -- what a killed command leaves -------------------------------------------------------------------------------------

ROW, LEFT = b"Number 7.", b"left by a killed command"
COPY = "import pathlib, sys; from understudy.corpus.sources import spool_stdin; spool_stdin(pathlib.Path(sys.argv[1]))"


def leave(folder: Path) -> None:
    """A copy of standard input, and halves of files, as a kill leaves them."""
    (folder / "stdin.spool").write_bytes(LEFT)
    (folder / ".run-20250101T000000000000.sqlite.00ff00ff.tmp").write_bytes(LEFT)


def test_what_killed_commands_left_goes_with_the_next_run_even_where_that_opens_no_table(tmp_path: Path) -> None:
    config, private = run_config(settings(tmp_path)), private_folder(tmp_path / "out" / "private")
    with subprocess.Popen([sys.executable, "-c", COPY, str(private)], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(ROW * 200_000)
        process.kill()
    assert files_holding(private, ROW)
    for _ in range(2):
        leave(private)
        running.release(config)  # the second time it is there already
        assert not files_holding(private, ROW) + files_holding(private, LEFT)


@pytest.mark.parametrize("command", ["evaluate FILE FILE --embedder none --seeds 1", "secrets count --data FILE"])
def test_other_commands_remove_it_unless_a_run_uses_it(tmp_path: Path, understudy: Command, command: str) -> None:
    data, private = settings(tmp_path)["data"], private_folder(tmp_path / "out" / "private")
    words = [data if word == "FILE" else word for word in command.split()] + ["--text", "note"]
    words += ["--output", str(tmp_path / "out"), *(["--secret-detectors", "email"] if "secrets" in words else [])]
    leave(private)
    lock = FolderLock(private)
    assert understudy(*words).code == 0
    lock.release()
    assert len(files_holding(private, LEFT)) == 2
    assert understudy(*words).code == 0
    assert not files_holding(private, LEFT)


def test_a_copy_that_a_corpus_of_this_process_reads_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_config(settings(tmp_path, data="-", format="csv", dataset="notes"))
    monkeypatch.setattr("sys.stdin", (tmp_path / "notes.csv").open())
    with Table.of(config).open(tmp_path / "out" / "private") as corpus, sys.stdin:
        running.run(config, corpus=corpus)
        assert files_holding(tmp_path / "out" / "private", ROW)
