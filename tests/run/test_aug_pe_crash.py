"""A private evolution that goes down anywhere: one charge, one used histogram per round, no answer paid twice.

The disk is kept as it was after every step that matters, wherever it has changed, and a run is started on each.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import FakeChat
from evolution_fixtures import evolving, varied
from run_fixtures import UseChat, runs_charged
from test_copies import assert_refused, copied, run, stopped
from test_crash import forgetful

from understudy.ledger import Ledger
from understudy.ledger.store import AnswerStore, RunStore
from understudy.methods.registry import load_release
from understudy.methods.shared.evolution.embeddings import PrivateEmbeddings
from understudy.methods.shared.evolution.loop import Population
from understudy.models.types import ChatRequest, Completion
from understudy.privacy.plan import Receipt
from understudy.privacy.sealed import SealedValue
from understudy.release import Release
from understudy.run import door as measuring
from understudy.run.door import Measurements
from understudy.run.session import Session

pytestmark = pytest.mark.usefixtures("embedder")
SMALL = {"label": None, "labels": None, "records_per_label": None, "population": 2, "variations": 2}
NOISY = ("labels", "votes-1", "votes-2")
KEPT = (*NOISY, "population-0", "population-1")
STEPS: tuple[tuple[Any, str], ...] = (
    *((Ledger, name) for name in ("charge", "confirm")),
    *((RunStore, name) for name in ("keep", "mark")),
    *((measuring, "measure"), (PrivateEmbeddings, "_written"), (shutil, "rmtree"), (Release, "save")),
    *((AnswerStore, "put_many"), (Session, "begin")),
)
Used = dict[str, set[bytes]]


@dataclass(frozen=True)
class Disk:
    """Output folder and ledger at one moment; what had been used and paid for by then."""

    folder: Path
    step: str
    used: Used
    paid: frozenset[str]


class Machine:
    """Remembers what is used and paid for, and keeps the disk at every step if it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used: Used = {}
        self.paid: set[str] = set()
        self.asked: list[str] = []
        self.disks: list[Disk] = []
        self.kept_from: Path | None = None
        self._seen: set[int] = set()
        self._number = count()
        monkeypatch.setattr("understudy.models.catalog.load_chat", lambda spec, **options: FakeChat(self._reply))
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, self._stepping(f"{owner.__name__}.{name}", getattr(owner, name)))
        monkeypatch.setattr(Measurements, "_sealed", self.recording(Measurements._sealed))
        monkeypatch.setattr(Measurements, "keep", self.recording(Measurements.keep))

    def _reply(self, request: ChatRequest) -> Completion:
        """Another answer whenever it is asked."""
        self.asked.append(request.key("fake:chat"))
        return Completion(f"{varied(request).text} {next(self._number)}", "stop")

    def _stepping(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **named: Any) -> Any:
            self._step(f"before {name}")
            made = function(*arguments, **named)
            if name == "AnswerStore.put_many":
                self.paid |= set(arguments[1])
            self._step(f"after {name}")
            return made

        return stepping

    def _step(self, step: str) -> None:
        if self.kept_from is None:
            return
        files = sorted(path for path in self.kept_from.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm")
        state = hash(tuple((str(path), path.read_bytes()) for path in files))
        if state in self._seen:
            return
        self._seen.add(state)
        folder = self.kept_from.with_name(f"disk-{len(self.disks)}")
        shutil.copytree(self.kept_from, folder)
        used = {name: set(values) for name, values in self.used.items()}
        self.disks.append(Disk(folder, step, used, frozenset(self.paid)))

    def recording(self, given: Callable[..., Any]) -> Callable[..., Any]:
        """Whatever the door gives may be used."""

        def recording(door: Measurements, name: str, make: Callable[[], Any]) -> Any:
            value = given(door, name, make)
            arrays = value.arrays if isinstance(value, SealedValue) else value
            self.used.setdefault(name, set()).add(b"".join(arrays[key].tobytes() for key in sorted(arrays)))
            return value

        return recording

    def run_and_keep(self, tmp_path: Path) -> dict[str, Any]:
        """Run to the end, the disk kept at every step; the settings, whose files lie in a folder ``disk``."""
        (tmp_path / "disk").mkdir()
        config = settings(tmp_path, tmp_path / "disk")
        self.kept_from = tmp_path / "disk"
        run(config)
        self.kept_from = None
        return config

    def run_again(self, tmp_path: Path, disk: Disk) -> dict[str, Any]:
        self.used = {name: set(values) for name, values in disk.used.items()}
        self.asked = []
        config = settings(tmp_path, disk.folder)
        run(config)
        return config

    def assert_one_value_each(self, step: str) -> None:
        assert set(self.used) == set(KEPT)
        assert all(len(values) == 1 for values in self.used.values()), f"a second value was used: {step}"


def settings(tmp_path: Path, disk: Path) -> dict[str, Any]:
    place = {"output": str(disk / "out"), "ledger": str(disk / "ledger.sqlite")}
    return evolving(tmp_path, **SMALL, records=3, label_sizes="noisy", **place)


def stored(output: Path) -> dict[str, dict[str, bytes]]:
    with RunStore.open(output / "private", noise="system") as store:
        found = {name: store.value(name) for name in (*KEPT, "fingerprint")}
    return {
        name: {key: array.tobytes() for key, array in arrays.items()}
        for name, arrays in found.items()
        if arrays is not None
    }


def files(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((output / "release").iterdir())}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_a_run_that_goes_down_anywhere_is_resumed_without_a_second_charge_histogram_or_answer(
    tmp_path: Path, machine: Machine
) -> None:
    config = machine.run_and_keep(tmp_path)
    machine.assert_one_value_each("no crash")
    whole, all_paid = files(Path(config["output"])), set(machine.paid)
    assert len(all_paid) == 4 + 2 + 1
    assert len(machine.disks) >= 15
    for disk in machine.disks:
        before = stored(disk.folder / "out")
        config = machine.run_again(tmp_path, disk)
        output = Path(config["output"])
        machine.assert_one_value_each(disk.step)
        assert runs_charged(config["ledger"]) == 1, disk.step
        after = stored(output)
        assert before.items() <= after.items(), disk.step
        assert not set(machine.asked) & disk.paid, f"an answer was paid twice: {disk.step}"
        assert len(machine.asked) == len(set(machine.asked))
        assert not list(output.rglob("embeddings.bin")), disk.step
        release = load_release(output / "release" / "aug-pe.release")
        votes = [np.frombuffer(after[name]["value"]) for name in ("votes-1", "votes-2")]
        assert release.arrays["votes"].tolist() == np.concatenate(votes).tolist()
        assert files(output).keys() == whole.keys()
    last = machine.disks[-1]
    assert files(last.folder / "out") == whole
    assert machine.asked == []


def test_a_store_that_forgets_is_noticed(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.run_and_keep(tmp_path)
    monkeypatch.setattr(Measurements, "keep", machine.recording(lambda door, name, make: make()))
    monkeypatch.setattr(Measurements, "_sealed", machine.recording(forgetful(monkeypatch)))
    monkeypatch.setattr("understudy.ledger.admission.require_same_draws", lambda *arguments: None)
    disk = next(each for each in machine.disks if len(each.used) == 3)
    machine.run_again(tmp_path, disk)
    with pytest.raises(AssertionError, match="a second value was used"):
        machine.assert_one_value_each(disk.step)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork")  # beside the threads of JAX: the child dies before it needs them
def test_a_run_killed_between_the_population_and_its_votes_votes_on_the_same_population(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path, tmp_path)
    pay = Receipt.pay

    def killing(receipt: Receipt, name: str) -> Any:
        if name == "votes-2":
            os.kill(os.getpid(), signal.SIGKILL)
        return pay(receipt, name)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Receipt, "pay", killing)
        try:
            run(config)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    output = Path(config["output"])
    assert list((output / "private").rglob("embeddings.bin"))
    before = stored(output)
    assert before.keys() == {"fingerprint", "labels", "population-0", "votes-1", "population-1"}
    result = run(config)
    assert before.items() <= stored(output).items()
    assert len(machine.asked) == 1  # for the third record: a variation
    population = Population.from_arrays(_arrays(output, "population-1"))
    assert tuple(result.release.strings["texts"][4:]) == population.texts
    assert runs_charged(config["ledger"]) == 1
    assert not list(output.rglob("embeddings.bin"))


def _arrays(output: Path, name: str) -> dict[str, Any]:
    with RunStore.open(output / "private", noise="system") as store:
        found = store.value(name)
    assert found is not None
    return found


# -- copies of the folder ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["votes-1", "votes-2"])
def test_of_two_copies_that_both_drew_the_votes_the_first_that_confirms_is_used_and_the_other_never(
    tmp_path: Path, varied_chat: FakeChat, name: str
) -> None:
    values = evolving(tmp_path)
    stopped(values, RunStore, "keep", name=name)  # its population is stored
    copy = copied(values)
    stopped(values, Ledger, "confirm", name=name)
    stopped(copy, Ledger, "confirm", name=name)
    assert stored(Path(values["output"]))[name] != stored(Path(copy["output"]))[name]
    run(copy)
    assert_refused(values)


def test_a_copy_from_before_the_votes_draws_none_again(tmp_path: Path, varied_chat: FakeChat) -> None:
    values = evolving(tmp_path)
    stopped(values, RunStore, "keep", name="votes-2")
    copy = copied(values)
    first = run(values).release
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "measure", lambda *_, **__: pytest.fail("it sampled again"))
        assert_refused(copy)
    assert run(values).release.digest == first.digest


def test_a_copy_with_another_population_is_refused_too(tmp_path: Path, use_chat: UseChat) -> None:
    number = count()
    use_chat(FakeChat(lambda request: Completion(f"{varied(request).text} {next(number)}", "stop")))
    values = evolving(tmp_path)
    stopped(values, AnswerStore, "put_many")
    copy = copied(values)
    stopped(values, Ledger, "confirm", name="votes-1")
    stopped(copy, Ledger, "confirm", name="votes-1")
    assert stored(Path(values["output"]))["population-0"] != stored(Path(copy["output"]))["population-0"]
    run(copy)
    assert_refused(values)
