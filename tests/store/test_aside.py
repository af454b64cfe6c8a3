"""``--fresh`` in a folder whose last run was killed, killed itself at any moment."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.errors import ResumeError, StorageError
from understudy.store import RunStore, aside


class Kill(BaseException):
    """As abrupt as ``kill -9``."""


def killed_store(folder: Path) -> str:
    """A folder as a killed run leaves it: its values are in SQLite's log only. Returns the run."""
    with RunStore.open(folder.with_name("running"), noise="system") as store:
        store.keep("noise", {"x": np.arange(3)})
        shutil.copytree(folder.with_name("running"), folder)
        run_id = store.run_id
    assert (folder / "run.sqlite-wal").stat().st_size > 0
    return run_id


STEPS = ("_empty_log", "sync_folder", "remove_orphans", "rename", "unlink")


def crash_before_and_after(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Ends the process, as it were, at this moment of many: before or after a step that touches files."""
    passed = 0

    def step() -> None:
        nonlocal passed
        passed += 1
        if passed > moment:
            raise Kill

    def stepping(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            step()
            made = function(*arguments, **named)
            step()
            return made

        return call

    for name in STEPS[:2]:
        monkeypatch.setattr(aside, name, stepping(getattr(aside, name)))
    monkeypatch.setattr("understudy.store.run_store.remove_orphans", stepping(aside.remove_orphans))
    for name in STEPS[3:]:
        monkeypatch.setattr(Path, name, stepping(getattr(Path, name)))


@pytest.mark.parametrize("corrupt", [False, True], ids=["whole", "corrupt"])
def test_a_run_id_never_comes_back_without_its_values(tmp_path: Path, corrupt: bool) -> None:
    moment, finished = 0, False
    while not finished:
        folder = tmp_path / str(moment) / "private"
        folder.parent.mkdir()
        old = killed_store(folder)
        if corrupt:
            whole = (folder / "run.sqlite").read_bytes()
            (folder / "run.sqlite").write_bytes(b"?" * len(whole))
        with pytest.MonkeyPatch.context() as patch:
            crash_before_and_after(patch, moment)
            try:
                RunStore.open(folder, noise="system", fresh=True).close()
                finished = True
            except Kill:
                pass
        try:
            with RunStore.open(folder, noise="system") as store:
                value = store.value("noise")
                if store.run_id == old:
                    assert value is not None, f"moment {moment}"
                    assert value["x"].tolist() == [0, 1, 2]
                else:
                    assert value is None
                    assert store.stages() == []
        except ResumeError:
            assert corrupt
        moment += 1
    assert moment > 8


def test_the_store_that_is_set_aside_holds_all_of_its_values(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    old = killed_store(folder)
    RunStore.open(folder, noise="system", fresh=True).close()
    (kept,) = folder.glob("run-*.sqlite")
    assert not list(folder.glob("*-wal"))
    (tmp_path / "again").mkdir()
    kept.rename(tmp_path / "again" / "run.sqlite")
    with RunStore.open(tmp_path / "again", noise="system") as store:
        assert store.run_id == old
        assert store.value("noise") is not None


def test_a_log_that_cannot_be_emptied_is_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "private"
    old = killed_store(folder)
    reader = sqlite3.connect(folder / "run.sqlite", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM value").fetchall()
    monkeypatch.setattr(aside, "WAIT_SECONDS", 0)
    with pytest.raises(StorageError, match=r"Another program holds .*repeat the same command"):
        RunStore.open(folder, noise="system", fresh=True)
    reader.close()
    assert not list(folder.glob("run-*.sqlite"))
    with RunStore.open(folder, noise="system") as store:
        assert store.run_id == old
        assert store.value("noise") is not None
