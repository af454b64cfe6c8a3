"""``--fresh`` in a folder whose last run was killed, killed itself at any moment."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.base.errors import ResumeError, StorageError
from understudy.ledger.store import RunStore
from understudy.ledger.store import database as aside


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


def begin_fresh(folder: Path) -> str:
    """A new run begins in the folder. Returns it."""
    with RunStore.open(folder, noise="system", fresh=True) as store:
        run_id = store.run_id
        RUNS.append(run_id)
        store.begin(config_digest="new", config={}, plan={})
    return run_id


# Those that began afresh, or tried to.
RUNS: list[str] = []
STEPS = ("_empty_log", "sync_folder", "remove_orphans", "rename", "replace", "unlink")


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
    monkeypatch.setattr("understudy.ledger.store.remove_orphans", stepping(aside.remove_orphans))
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
                begin_fresh(folder)
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
                    assert corrupt or store.run_id == RUNS[-1], f"moment {moment}: neither the old run nor the new"
                    assert value is None
                    assert store.stages() == []
        except ResumeError:
            assert corrupt
        moment += 1
    assert moment > 8


@pytest.mark.parametrize("noise", ["system", "none"])
def test_a_fresh_store_in_which_no_run_began_leaves_the_old_one_as_it_was(tmp_path: Path, noise: Any) -> None:
    folder = tmp_path / "private"
    old = killed_store(folder)
    with RunStore.open(folder, noise=noise, fresh=True) as store:
        assert store.run_id != old
        assert store.value("noise") is None
        assert len(list(folder.glob("*.sqlite"))) == 2
    assert [path.name for path in folder.glob("*.sqlite")] == ["run.sqlite"]
    with RunStore.open(folder, noise="system") as store:
        assert store.run_id == old
        assert store.value("noise") is not None


@pytest.mark.parametrize(("noise", "file"), [("system", "run.sqlite"), ("none", "insecure.sqlite")])
def test_a_fresh_run_takes_the_place_of_runs_with_and_without_a_promise(tmp_path: Path, noise: Any, file: str) -> None:
    folder = tmp_path / "private"
    RunStore.open(folder, noise="none").close()
    RunStore.open(folder, noise="system").close()
    with RunStore.open(folder, noise=noise, fresh=True) as store:
        store.begin(config_digest="new", config={}, plan={})
        store.keep("noise", {"x": np.arange(3)})
        run_id = store.run_id
    assert sorted(path.name.partition("-")[0] for path in folder.glob("*.sqlite")) == sorted([file, "insecure", "run"])
    with RunStore.open(folder, noise=noise) as store:
        assert store.run_id == run_id
        assert store.value("noise") is not None


def test_the_store_that_is_set_aside_holds_all_of_its_values(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    old = killed_store(folder)
    begin_fresh(folder)
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
    with pytest.raises(StorageError, match=r"Another program has locked .*repeat the same command"):
        begin_fresh(folder)
    reader.close()
    assert not list(folder.glob("run-*.sqlite"))
    with RunStore.open(folder, noise="system") as store:
        assert store.run_id == old
        assert store.value("noise") is not None
