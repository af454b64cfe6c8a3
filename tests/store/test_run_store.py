"""The run store keeps what a resumed run needs, and lets one process in."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.base.errors import PrivacyError, ResumeError, StorageError
from understudy.ledger import locking
from understudy.ledger.locking import FolderLock
from understudy.ledger.store import RunStore, database
from understudy.privacy.events import GaussianEvent
from understudy.privacy.sealed import NoiseOrigin, Seal
from understudy.privacy.unit import Unit

SEAL = Seal("noise", GaussianEvent(2.0), Unit(), "system", "1" * 32, "2" * 32, 1, rows="3" * 64)
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no file modes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out" / "private"


@pytest.fixture
def store(folder: Path) -> Iterator[RunStore]:
    with RunStore.open(folder, noise="system") as opened:
        yield opened


def test_a_store_is_forgotten_only_if_no_run_began_in_it(folder: Path) -> None:
    with RunStore.open(folder, noise="system") as store:
        store.forget()
    assert not list(folder.iterdir())
    with RunStore.open(folder, noise="system") as store:
        store.begin(config_digest="a", config={}, plan={"charges": [1]})
        assert store.charged
        store.forget()
    assert {path.name for path in folder.iterdir()} == {"run.lock", "run.sqlite"}


def test_who_waits_for_a_lock_that_is_removed_does_not_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    first = FolderLock(folder)
    wait = locking._locked_in_time

    def removed_meanwhile(file: int) -> bool:
        first.release(remove=True)
        return wait(file)

    monkeypatch.setattr(locking, "_locked_in_time", removed_meanwhile)
    with pytest.raises(ResumeError, match="Another process"):
        FolderLock(folder)
    monkeypatch.undo()
    FolderLock(folder).release()


@posix
def test_the_folder_and_the_file_are_the_users_alone(folder: Path, store: RunStore) -> None:
    store.mark("charged")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_the_run_id_is_made_once(folder: Path) -> None:
    with RunStore.open(folder, noise="system") as store:
        first = store.run_id
    with RunStore.open(folder, noise="system") as store:
        assert store.run_id == first
    assert len(first) == 32
    int(first, 16)


def test_values_come_back_exactly(folder: Path) -> None:
    kept: dict[str, Any] = {
        "sums": np.random.default_rng(1).normal(size=(7, 3)),
        "half": np.array([[0.1, -np.inf, np.nan]], dtype=np.float32),
        "counts": np.arange(6, dtype=np.int64)[::2],
        "flags": np.array([True, False]),
        "none": np.zeros((0, 4), dtype=np.float32),
        "one": np.array(3, dtype=np.int32),
    }
    with RunStore.open(folder, noise="system") as store:
        assert store.value("round 1") is None
        store.keep("round 1", kept)
    with RunStore.open(folder, noise="system") as store:
        found = store.value("round 1")
    assert found is not None
    assert found.keys() == kept.keys()
    for name, array in kept.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_value_is_kept_once(store: RunStore) -> None:
    store.keep("round 1", {"x": np.zeros(2)})
    with pytest.raises(PrivacyError, match="sampled only once"):
        store.keep("round 1", {"x": np.ones(2)})
    found = store.value("round 1")
    assert found is not None
    assert found["x"].tolist() == [0, 0]


def test_a_value_whose_noise_has_another_origin_is_never_read(folder: Path) -> None:
    with RunStore.open(folder, noise="none") as store:
        store.keep("noise", {"x": np.zeros(2)})
    with RunStore.open(folder, noise="seeded") as store:
        for read in (store.value, lambda name: store.digest(name, key=b"key")):
            with pytest.raises(PrivacyError, match="another origin"):
                read("noise")
        with pytest.raises(PrivacyError, match="another origin"):
            store.keep_once("noise", lambda: {"x": np.ones(2)})


@pytest.mark.parametrize("noise", ["none", "seeded"])
def test_values_without_a_promise_have_a_file_of_their_own(folder: Path, noise: NoiseOrigin) -> None:
    with RunStore.open(folder, noise=noise) as store:
        store.keep("noise", {"x": np.zeros(2)}, seal=replace(SEAL, noise=noise))
        assert not store.private
    with RunStore.open(folder, noise="system") as store:
        assert store.names() == []
        assert not store.private, "nothing is kept, so nothing is shown to be private"
        store.keep("noise", {"x": np.ones(2)}, seal=SEAL)
        assert store.private
    assert {path.name for path in folder.glob("*.sqlite")} == {"run.sqlite", "insecure.sqlite"}


# -- seals ------------------------------------------------------------------------------------------------------------


def test_a_noisy_value_comes_back_with_its_seal(folder: Path) -> None:
    with RunStore.open(folder, noise="system") as store:
        assert store.sealed("noise") is None
        store.keep("noise", {"value": np.arange(3.0)}, seal=SEAL)
    with RunStore.open(folder, noise="system") as store:
        found = store.sealed("noise")
        assert store.seals() == [SEAL]
    assert found is not None
    assert found.seal == SEAL
    assert found.value.tolist() == [0, 1, 2]


def test_what_is_public_has_no_seal_and_is_no_noisy_value(store: RunStore) -> None:
    store.keep("seeds", {"x": np.zeros(2)})
    assert store.seals() == []
    assert store.digest("seeds", key=b"key") is None
    assert not store.private, "nothing private is kept"
    with pytest.raises(PrivacyError, match="seal is missing"):
        store.sealed("seeds")
    store.keep("noise", {"x": np.zeros(2)}, seal=SEAL)
    assert store.private, "what is public takes nothing from it"


@pytest.mark.parametrize("change", [{"ledger_id": ""}, {"charge_number": 0}], ids=str)
def test_one_value_that_is_not_private_makes_the_whole_run_not_private(store: RunStore, change: dict[str, Any]) -> None:
    store.keep("noise", {"x": np.zeros(2)}, seal=SEAL)
    assert store.private
    store.keep("other", {"x": np.zeros(2)}, seal=replace(SEAL, name="other", **change))
    assert not store.private


@pytest.mark.parametrize(("of_store", "of_seal"), [("system", "none"), ("system", "seeded"), ("none", "system")])
def test_a_seal_of_noise_of_other_origin_is_not_kept(folder: Path, of_store: NoiseOrigin, of_seal: NoiseOrigin) -> None:
    with RunStore.open(folder, noise=of_store) as store:
        with pytest.raises(PrivacyError, match="another origin"):
            store.keep("noise", {"x": np.zeros(2)}, seal=replace(SEAL, noise=of_seal))
        assert store.names() == []


def test_a_seal_of_another_value_is_refused(store: RunStore) -> None:
    store.keep("other", {"x": np.zeros(2)}, seal=SEAL)
    with pytest.raises(PrivacyError, match="seal is missing"):
        store.sealed("other")


def test_the_digest_is_keyed_and_of_the_value_with_its_seal(tmp_path: Path) -> None:
    def digest(number: float, seal: Seal, key: bytes = b"key") -> str | None:
        made.append(number)
        with RunStore.open(tmp_path / str(len(made)), noise="system") as store:
            store.keep("noise", {"value": np.array([number])}, seal=seal)
            return store.digest("noise", key=key)

    made: list[float] = []
    first = digest(1.0, SEAL)
    assert first is not None
    assert len(first) == 64
    assert digest(1.0, SEAL) == first
    changed = [digest(1.5, SEAL), digest(1.0, SEAL, b"other"), digest(1.0, replace(SEAL, charge_number=2))]
    changed += [digest(1.0, replace(SEAL, event=GaussianEvent(3.0))), digest(1.0, replace(SEAL, rows="4" * 64))]
    assert len({first, *changed}) == 6


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"name": "noise"}'])
def test_a_damaged_seal_is_one_clear_error(folder: Path, text: str) -> None:
    with RunStore.open(folder, noise="system") as store:
        store.keep("noise", {"x": np.zeros(2)}, seal=SEAL)
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE value SET seal = ?", (text,))
    with RunStore.open(folder, noise="system") as store:
        for read in (lambda: store.sealed("noise"), store.seals, lambda: store.private):
            with pytest.raises(ResumeError, match="damaged"):
                read()


def test_a_file_that_took_another_one_s_place_is_refused(folder: Path) -> None:
    with RunStore.open(folder, noise="seeded") as store:
        store.keep("noise", {"x": np.zeros(2)})
    (folder / "insecure.sqlite").rename(folder / "run.sqlite")
    with pytest.raises(PrivacyError, match="another origin"):
        RunStore.open(folder, noise="system")


def test_keep_once_draws_only_if_nothing_is_kept(store: RunStore) -> None:
    draws = []

    def draw() -> dict[str, Any]:
        draws.append(1)
        return {"x": np.full(2, len(draws))}

    assert [store.keep_once("noise", draw)["x"].tolist() for _ in range(3)] == [[1, 1]] * 3
    assert len(draws) == 1


def test_a_draw_that_fails_keeps_nothing(store: RunStore) -> None:
    def fail() -> dict[str, Any]:
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        store.keep_once("noise", fail)
    assert store.value("noise") is None


def test_the_same_settings_resume_and_others_are_an_error_that_names_them(folder: Path) -> None:
    config = {
        "epsilon": 6,
        "labels": ["a", "b"],
        "data": "notes.csv",
        "prompt": "x" * 100,
        "files": {"a": "1", "b": "2"},
    }
    changed = {
        "epsilon": 3,
        "labels": ["a", "b"],
        "data": "notes.csv",
        "prompt": "y" * 100,
        "n": 5,
        "files": {"b": "3"},
    }
    with RunStore.open(folder, noise="system") as store:
        store.begin(config_digest="1", config=config, plan={})
    with RunStore.open(folder, noise="system") as store:
        store.begin(config_digest="1", config=config, plan={})
        with pytest.raises(ResumeError, match="other settings") as caught:
            store.begin(config_digest="2", config=changed, plan={})
        for part in (
            "epsilon: 6 became 3",
            "n: null became 5",
            "prompt: (long) became (long)",
            "files: a, b;",
            "fresh",
        ):
            assert part in str(caught.value)
        assert "labels" not in str(caught.value)
        with pytest.raises(ResumeError, match="its options did not"):
            store.begin(config_digest="3", config=config, plan={})


def test_stages_are_marked_in_order_and_once(folder: Path) -> None:
    with RunStore.open(folder, noise="system") as store:
        for stage in ("charged", "released", "charged"):
            store.mark(stage)
    with RunStore.open(folder, noise="system") as store:
        assert store.stages() == ["charged", "released"]


def test_answers_are_stored_and_the_first_stays(folder: Path) -> None:
    with RunStore.open(folder, noise="system") as store:
        store.answers.put_many({f"k{n}": f"answer {n} é" for n in range(1200)})
        store.answers.put_many({"k1": "another"})
        store.answers.put_many({})
    with RunStore.open(folder, noise="system") as store:
        found = store.answers.get_many([f"k{n}" for n in range(2000)])
        assert found == {f"k{n}": f"answer {n} é" for n in range(1200)}
        assert store.answers.get_many([]) == {}


def test_threads_may_share_a_store(store: RunStore) -> None:
    def put(start: int) -> None:
        for n in range(start, start + 50, 10):
            store.answers.put_many({str(k): "x" for k in range(n, n + 10)})

    threads = [threading.Thread(target=put, args=(50 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.answers.get_many([str(n) for n in range(200)])) == 200


def test_one_process_uses_a_folder_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.ledger.locking.LOCK_SECONDS", 0)
    code = "import sys; from pathlib import Path; from understudy.ledger.store import RunStore\n"
    code += "RunStore.open(Path(sys.argv[1]), noise='system')"
    command = [sys.executable, "-c", code, str(folder)]
    with RunStore.open(folder, noise="system") as store:
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "ResumeError: Another process is using" in other.stderr
        with pytest.raises(ResumeError, match="Another process"):
            RunStore.open(folder, noise="system")
        store.mark("charged")
    assert subprocess.run(command, check=False).returncode == 0


def test_a_holder_that_is_about_to_end_is_waited_for(folder: Path) -> None:
    store = RunStore.open(folder, noise="system")
    end = threading.Timer(0.3, store.close)
    end.start()
    RunStore.open(folder, noise="system").close()
    end.join()


def test_fresh_begins_a_new_run_and_keeps_the_old_file(folder: Path) -> None:
    with RunStore.open(folder, noise="system") as store:
        old = store.run_id
        store.keep("noise", {"x": np.zeros(1)})
    with RunStore.open(folder, noise="system", fresh=True) as store:
        assert store.run_id != old
        assert store.value("noise") is None
        store.begin(config_digest="new", config={}, plan={})
    assert len(list(folder.glob("run*.sqlite"))) == 2
    (folder / "run.sqlite").write_bytes(b"broken" * 1000)
    with RunStore.open(folder, noise="system", fresh=True) as store:
        assert store.stages() == []
        store.begin(config_digest="new", config={}, plan={})
    assert len(list(folder.glob("run*.sqlite"))) == 3
    RunStore.open(folder, noise="system").close()


def test_fresh_is_refused_in_a_used_folder(folder: Path, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.ledger.locking.LOCK_SECONDS", 0)
    with pytest.raises(ResumeError, match="Another process"):
        RunStore.open(folder, noise="system", fresh=True)
    assert len(list(folder.glob("run*.sqlite"))) == 1


def _corrupt(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 500)


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def _newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 4")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "made", "message"),
    [
        (_corrupt, False, r"not a database.*fresh"),
        (_foreign, False, r"not a run store.*output"),
        (_newer, True, r"has format version 4; this version of understudy reads 1.*Use the version"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_clear_error(folder: Path, spoil: Any, made: bool, message: str) -> None:
    if made:
        RunStore.open(folder, noise="system").close()
    folder.mkdir(parents=True, exist_ok=True)
    spoil(folder / "run.sqlite")
    before = (folder / "run.sqlite").read_bytes()
    for _ in range(2):  # the lock is let go of, too
        with pytest.raises(ResumeError, match=message):
            RunStore.open(folder, noise="system")
    assert (folder / "run.sqlite").read_bytes() == before or spoil is _foreign


@pytest.mark.parametrize("name", [b"setting", b"batch_job", b"blank_answer"])
def test_a_schema_that_is_not_utf_8_is_one_clear_error_and_can_be_set_aside(folder: Path, name: bytes) -> None:
    RunStore.open(folder, noise="system").close()
    path, problems = folder / "run.sqlite", []
    whole = path.read_bytes()
    for found in re.finditer(name, whole):
        path.write_bytes(whole[: found.start() + 1] + b"\xff\xfe\xff\xfe" + whole[found.start() + 5 :])
        try:
            RunStore.open(folder, noise="system").close()
        except ResumeError as error:
            problems.append(error.problem)
            with RunStore.open(folder, noise="system", fresh=True) as store:
                store.begin(config_digest="a", config={}, plan={})
    assert all("damaged" in problem for problem in problems)
    assert any("not UTF-8" in problem for problem in problems)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"digest": "a", "config": 1, "plan": {}}', b"\xff"])
def test_a_damaged_beginning_is_one_clear_error(folder: Path, text: str | bytes) -> None:
    with RunStore.open(folder, noise="system") as store:
        store.begin(config_digest="a", config={}, plan={})
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE setting SET value = CAST(? AS TEXT) WHERE name = 'run'", (text,))
    with RunStore.open(folder, noise="system") as store:
        for use in (lambda: store.charged, lambda: store.begin(config_digest="a", config={}, plan={})):
            with pytest.raises(ResumeError, match="damaged"):
                use()


def test_damaged_pages_and_values_are_one_clear_error(folder: Path) -> None:
    with RunStore.open(folder, noise="system") as store:
        store.keep("noise", {"x": np.zeros(1)})
    connection = sqlite3.connect(folder / "run.sqlite")
    connection.execute("UPDATE value SET arrays = x'00'")
    connection.commit()
    connection.close()
    with RunStore.open(folder, noise="system") as store, pytest.raises(ResumeError, match="damaged"):
        store.value("noise")
    path = folder / "run.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(ResumeError, match="malformed"):
        RunStore.open(folder, noise="system")


@posix
def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StorageError, match=r"cannot be written.*Use another output"):
        RunStore.open(tmp_path / "out" / "private", noise="system")


def test_a_store_that_cannot_grow_is_a_full_disk_until_it_can(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore.open(folder, noise="system") as store:
        run_id = store.run_id
    with monkeypatch.context() as patch:
        patch.setattr(database, "_SETTINGS", (*database._SETTINGS, "PRAGMA max_page_count = 1"))  # no more than now
        with RunStore.open(folder, noise="system") as store:
            with pytest.raises(StorageError, match=r"disk is full: .*Free some space, then repeat the same command"):
                store.keep("noise", {"x": np.zeros(10_000)})
            assert store.names() == []
    with RunStore.open(folder, noise="system") as store:
        assert store.run_id == run_id
        store.keep("noise", {"x": np.zeros(10_000)})


def test_importing_the_store_loads_no_numpy() -> None:
    code = "import sys, understudy.ledger.store; assert not {'numpy', 'safetensors'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- values that are parts of one charge: many, kept by several threads at once, and listed ---------------------------

THREADS = 4


def test_what_threads_keep_at_once_is_all_there_and_each_is_drawn_once(tmp_path: Path) -> None:
    names = [f"tokens/{number % 2}/{number}" for number in range(400)]
    drawn: list[str] = []

    def keep(store: RunStore, name: str) -> int:
        def draw() -> dict[str, np.ndarray]:
            drawn.append(name)
            return {"x": np.array([len(name), int(name.rpartition("/")[2])])}

        return int(store.keep_once(name, draw)["x"][1])

    for _ in range(2):
        with RunStore.open(tmp_path, noise="system") as store, ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(lambda name: keep(store, name), names)) == list(range(400))
            assert store.names() == sorted(names)
    assert sorted(drawn) == sorted(names)


def test_of_threads_that_keep_one_name_at_once_one_value_stands_and_the_others_are_told(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, noise="system") as store:

        def keep(value: int) -> int | None:
            try:
                store.keep("tokens/0", {"x": np.array([value])})
            except PrivacyError:
                return None
            return value

        with ThreadPoolExecutor(THREADS) as pool:
            kept = [value for value in pool.map(keep, range(40)) if value is not None]
        stored = store.value("tokens/0")
        assert stored is not None
        assert kept == [int(stored["x"][0])]


def test_an_empty_store_has_no_names(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, noise="system") as store:
        assert store.names() == []
        with pytest.raises(ZeroDivisionError):
            store.keep_once("tokens/0", lambda: {"x": np.array([1 // 0])})
        assert store.names() == []


def test_results_without_a_promise_never_begin_beside_a_run_with_one(folder: Path) -> None:
    with RunStore.open(folder, noise="system") as store:
        store.begin(config_digest="1", config={"epsilon": 6}, plan={})
    with pytest.raises(ResumeError, match="must not replace"):
        RunStore.open(folder, noise="none")


def test_what_is_stored_is_on_the_disk_when_a_statement_ends(folder: Path) -> None:
    folder.mkdir(parents=True)
    with closing(database.Database(folder / "run.sqlite")) as opened:
        assert opened.rows("PRAGMA synchronous") == [(2,)]


def test_a_lock_whose_file_was_replaced_meanwhile_is_not_held(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(_descriptor: int) -> bool:
        (folder / "run.lock").unlink()
        (folder / "run.lock").touch()
        return True

    folder.mkdir(parents=True)
    monkeypatch.setattr(locking, "_locked_in_time", replaced)
    with pytest.raises(ResumeError, match="Another process"):
        FolderLock(folder)
