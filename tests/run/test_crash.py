"""A run that crashes anywhere and is started again: one charge, one draw, no answer paid twice.

The crash is a ``BaseException`` before or after every step that matters, in this process;
``test_kill_moments.py`` kills real processes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from clinic import FakeChat, settings
from evolution_fixtures import varied
from run_fixtures import run, runs_charged
from secret_fixtures import protecting

from understudy.corpus import Corpus
from understudy.ledger import Ledger
from understudy.ledger.store import AnswerStore, RunStore
from understudy.methods.shared.queries.discovered_terms import Runs
from understudy.privacy.sealed import Seal, SealedValue
from understudy.release import Release
from understudy.run import door as measuring
from understudy.run import outputs
from understudy.run.door import Measurements
from understudy.run.outputs import OutputFolder
from understudy.run.settings import run_config

STEPS = (
    *((Ledger, name) for name in ("check", "open_dataset", "identify", "charge", "confirm")),
    *((RunStore, name) for name in ("begin", "keep", "mark")),
    *((Corpus, "identity"), (measuring, "measure"), (Release, "save")),
    *((OutputFolder, "clear"), (OutputFolder, "write_statement"), (AnswerStore, "put_many"), (outputs, "write_table")),
)

# Each crashes at every second step, so that two workers share the sweep.
SHARDS = 2


class Crash(BaseException):
    """The machine goes down."""


class Machine:
    """Counts a run's steps, goes down at one of them, and remembers what was drawn, used and paid for."""

    def __init__(self) -> None:
        self.crash_at: int | None = None
        self.steps: list[str] = []
        self.draws: Counter[str] = Counter()
        self.used: dict[str, set[str]] = {}
        self.chat = FakeChat(told=lambda when: self.step(f"{when} an answer"))

    def step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) - 1 == self.crash_at:
            raise Crash(name)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, self._stepping(f"{owner.__name__}.{name}", getattr(owner, name)))
        monkeypatch.setattr(Measurements, "_sealed", self._recording(Measurements._sealed))

    def _stepping(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **named: Any) -> Any:
            self.step(f"before {name}")
            made = function(*arguments, **named)
            if name == "understudy.run.door.measure":
                self.draws[type(arguments[1]).__name__] += 1
            self.step(f"after {name}")
            return made

        return stepping

    def _recording(self, seal: Callable[..., SealedValue]) -> Callable[..., SealedValue]:
        """Whatever ``seal`` returns may be shown: it is used."""

        def recording(door: Measurements, name: str, make: Callable[[], Any]) -> SealedValue:
            value = seal(door, name, make)
            arrays = value.arrays
            digest = hashlib.sha256(b"".join(arrays[key].tobytes() for key in sorted(arrays))).hexdigest()
            self.used.setdefault(name, set()).add(digest)
            return value

        return recording

    def run(self, config: dict[str, Any], *, crash_at: int | None) -> bool:
        """Whether the run came to its end."""
        self.crash_at, self.steps = crash_at, []
        try:
            run(config)
        except Crash:
            return False
        return True


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    made.watch(monkeypatch)
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda spec, **options: made.chat)
    return made


def forgetful(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SealedValue]:
    """The broken twin of a door: it stores nothing, and so makes every value anew."""
    given: dict[str, Seal] = {}

    def seal(door: Measurements, name: str, make: Callable[[], Any]) -> SealedValue:
        given[name] = door.receipt.seal(name, noise=door.noise.origin, rows=door.rows)
        return SealedValue(make(), given[name])

    monkeypatch.setattr(RunStore, "seals", lambda _store: list(given.values()))
    return seal


def steps_of(functions: Iterable[tuple[Any, str]]) -> set[str]:
    return {f"{when} {owner.__name__}.{name}" for owner, name in functions for when in ("before", "after")}


def files(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((output / "release").iterdir())}


def assert_nothing_twice(
    machine: Machine, config: Mapping[str, Any], noisy: Sequence[str] = ("vocabulary", "density")
) -> None:
    assert runs_charged(config["ledger"]) == 1
    assert set(machine.used) == set(noisy)
    assert all(len(values) == 1 for values in machine.used.values()), "a second noisy value was used"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_crash_anywhere_resumes_without_a_second_charge_or_draw(tmp_path: Path, machine: Machine, shard: int) -> None:
    config = settings(tmp_path, llm="fake", records_per_label=2)
    assert machine.run(config, crash_at=None)
    steps = list(machine.steps)
    assert steps_of(STEPS) - steps_of([(Ledger, "check")]) <= set(steps)
    assert len(machine.chat.asked) == 4

    for number, step in list(enumerate(steps))[shard::SHARDS]:
        folder = tmp_path / str(number)
        here = {**config, "output": str(folder), "ledger": str(tmp_path / f"{number}.sqlite")}
        machine.used, machine.draws, machine.chat.asked = {}, Counter(), []
        assert not machine.run(here, crash_at=number), step
        stored = RunStoreContents(folder)
        assert machine.run(here, crash_at=None), step
        assert_nothing_twice(machine, here)
        stored.assert_still_there(folder)
        assert sum(machine.draws.values()) <= 3, step  # one redraw at most: of the value that was not stored
        again = [key for key, times in Counter(machine.chat.keys).items() if times > 1]
        if step not in ("after an answer", "before AnswerStore.put_many"):  # these lose what was not on disk yet
            assert not again, step
        if number // SHARDS % 8 == 0:
            once = files(folder)
            assert machine.run(here, crash_at=None)
            assert files(folder) == once, step
            assert_nothing_twice(machine, here)


def test_a_run_that_crashes_one_step_later_each_time_draws_once(tmp_path: Path, machine: Machine) -> None:
    config = settings(tmp_path, llm="fake")
    with Ledger(config["ledger"]) as ledger:  # a cap that a second charge would exceed
        ledger.open_dataset("notes", cap=run_config(config).budget, unit=run_config(config).unit)
    assert steps_of([(Ledger, "check")]) <= steps_until_the_end(machine, config)
    assert_nothing_twice(machine, config)
    written = files(tmp_path / "out")
    for _ in range(2):
        assert machine.run(config, crash_at=None)
        assert files(tmp_path / "out") == written
    assert_nothing_twice(machine, config)


@pytest.mark.parametrize("method", ["dp-kps", "sec-pe"])
@pytest.mark.usefixtures("embedder")
def test_the_crash_test_notices_a_store_that_forgets(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    config = settings(tmp_path, llm="fake") if method == "dp-kps" else protecting(tmp_path, **SMALL)
    noisy = ("vocabulary", "density") if method == "dp-kps" else SECRETLY
    monkeypatch.setattr(machine.chat, "_reply", varied)
    monkeypatch.setattr(Measurements, "_sealed", machine._recording(forgetful(monkeypatch)))
    other = {**config, "output": str(tmp_path / "other"), "ledger": str(tmp_path / "other.sqlite")}
    assert machine.run(other, crash_at=None)
    release = next(number for number, step in enumerate(machine.steps) if "Release.save" in step)
    machine.used = {}
    assert not machine.run(config, crash_at=release - 2)
    assert machine.run(config, crash_at=None)
    with pytest.raises(AssertionError, match="second noisy value"):
        assert_nothing_twice(machine, config, noisy)


class RunStoreContents:
    """The noisy values of a run store, to be compared with those of later."""

    def __init__(self, output: Path) -> None:
        with RunStore.open(output / "private", noise="system") as store:
            self.values = {name: store.value(name) for name in ("fingerprint", "vocabulary", "density")}

    def assert_still_there(self, output: Path) -> None:
        later = RunStoreContents(output).values
        for name, arrays in self.values.items():
            for key, array in (arrays or {}).items():
                assert later[name] is not None
                assert later[name][key].tobytes() == array.tobytes()


SMALL = {
    **{"label": None, "labels": None, "records_per_label": None, "records": 2, "releases": 2, "clusters": 2},
    **{"rounds": 1, "population": 2, "variations": 2},
}
SECRETLY = ("clusters-1", "clusters-2")


def steps_until_the_end(machine: Machine, config: Mapping[str, Any]) -> set[str]:
    """All that a run goes through which crashes one step later each time."""
    attempts, seen = 0, set[str]()
    while not machine.run(dict(config), crash_at=attempts):
        attempts += 1
        seen |= set(machine.steps)
    return seen | set(machine.steps)


@pytest.mark.usefixtures("embedder")
def test_a_run_of_secrets_resumes_so_too(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.chat, "_reply", varied)
    config = protecting(tmp_path, **SMALL)
    seen = steps_until_the_end(machine, config)
    assert steps_of([(measuring, "measure"), (Ledger, "charge"), (Ledger, "confirm"), (RunStore, "keep")]) <= seen
    assert_nothing_twice(machine, config, SECRETLY)
    assert max(machine.draws.values()) <= 3 * len(SECRETLY), "drawn again only until it was stored"


FOUND = ("vocabulary", "discovered-terms", "density")


def test_a_run_that_finds_terms_is_resumed_so_too_even_out_of_the_middle_of_its_files(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((Runs, "write"), (measuring, "select")):
        monkeypatch.setattr(owner, name, machine._stepping(f"{owner.__name__}.{name}", getattr(owner, name)))
    config = settings(tmp_path, llm="fake", records_per_label=1, discover_terms=0.3)
    assert steps_of([(measuring, "select"), (Runs, "write")]) <= steps_until_the_end(machine, config)
    assert_nothing_twice(machine, config, FOUND)
    assert not (tmp_path / "out" / "private" / "scratch").exists()
