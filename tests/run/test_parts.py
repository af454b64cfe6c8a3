"""A charge that is drawn in parts: each is stored and confirmed before it is used, and drawn once, whatever happens."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Lock, get_ident
from typing import Any

import pytest
from parts_method import BATCHES, CHARGE, Drawing, InParts, install, parts
from run_fixtures import release, runs_charged
from test_copies import REFUSED, copied
from test_crash import forgetful

from understudy.base.errors import LedgerError, PrivacyError
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.methods.facts import PublicFacts
from understudy.privacy.events import PureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sealed import Seal
from understudy.privacy.unit import Unit
from understudy.release import Release
from understudy.run.door import Measurements


class Crash(BaseException):
    """The machine goes down."""


class Machine:
    """Watches the steps of every part, and goes down at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[str, str]] = []  # ("before draw", "tokens/0/0/0"), ...
        self.used: dict[str, set[int]] = {}
        self.threads: set[int] = set()
        self.meeting: Barrier | None = None
        """Where the first two threads wait for each other."""
        self.crash_at: int | None = None
        self._lock = Lock()
        for name, owner, place in [("draw", Drawing, 0), ("keep", RunStore, 1), ("confirm", Ledger, 1)]:
            function = getattr(owner, name)
            watched = self._watched(name, function, place)
            monkeypatch.setattr(owner, name, staticmethod(watched) if owner is Drawing else watched)
        monkeypatch.setattr(Drawing, "use", staticmethod(self._use))

    def _watched(self, step: str, function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            name = arguments[place].name if isinstance(arguments[place], Seal) else arguments[place]
            if not name.startswith(CHARGE):
                return function(*arguments, **named)
            self._step(f"before {step}", name)
            made = function(*arguments, **named)
            self._step(f"after {step}", name)
            return made

        return watched

    def _use(self, name: str, value: int) -> str:
        self._step("use", name)
        self.used.setdefault(name, set()).add(value)
        return f"text {value}"

    def _step(self, step: str, name: str) -> None:
        with self._lock:
            self.steps.append((step, name))
            new = get_ident() not in self.threads
            self.threads.add(get_ident())
            if self.crash_at is not None and len(self.steps) > self.crash_at:  # from here on, in every thread
                raise Crash(step)
            meets = self.meeting is not None and new and len(self.threads) <= 2
        if meets:
            self.meeting.wait(60)

    def run(self, values: dict[str, Any], *, crash_at: int | None = None) -> Release | None:
        """The Release; None where the machine went down."""
        self.steps, self.crash_at = [], crash_at
        try:
            return release(values)
        except Crash:
            return None

    def drawn(self) -> list[str]:
        return [name for step, name in self.steps if step == "after draw"]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def names(examples: int) -> set[str]:
    return {f"{CHARGE}/{label}/{batch}/{n}" for label in range(2) for batch in range(BATCHES) for n in range(examples)}


def confirmed(location: str | Path) -> dict[str, str]:
    """What the ledger holds as used."""
    with sqlite3.connect(location) as connection:
        found = dict(connection.execute("SELECT name, digest FROM understudy_draw"))
    connection.close()
    return found


def stored(output: str | Path) -> dict[str, int]:
    """The parts on disk."""
    with RunStore.open(Path(output) / "private", noise="system") as store:
        found = {name: store.value(name) for name in store.names() if name.startswith(CHARGE)}
    return {name: int(arrays["token"][0]) for name, arrays in found.items() if arrays is not None}


def texts(made: Release) -> set[str]:
    return {text for strings in made.strings.values() for text in strings}


def test_every_part_is_stored_then_confirmed_then_used_by_several_threads(tmp_path: Path, machine: Machine) -> None:
    values = parts(tmp_path, texts_per_batch=3)
    machine.meeting = Barrier(2)
    made = machine.run(values)
    assert made is not None
    order = ["before draw", "after draw", "before keep", "after keep", "before confirm", "after confirm", "use"]
    for name in names(3):
        assert [step for step, of in machine.steps if of == name] == order
    assert len(machine.threads) > 1
    assert set(confirmed(values["ledger"])) == set(stored(values["output"])) == names(3)
    assert texts(made) == {f"text {value}" for value in stored(values["output"]).values()}
    assert runs_charged(values["ledger"]) == 1


def test_a_crash_at_any_step_resumes_without_a_second_charge_or_draw(tmp_path: Path, machine: Machine) -> None:
    values = parts(tmp_path, texts_per_batch=1, threads=1)
    assert machine.run(values) is not None
    steps = machine.steps
    assert len(steps) == 4 * 7
    for number, (step, name) in enumerate(steps):
        here = {**values, "output": str(tmp_path / str(number)), "ledger": str(tmp_path / f"{number}.sqlite")}
        machine.used = {}
        assert machine.run(here, crash_at=number) is None
        before = stored(here["output"])
        assert (name in before) == (step in ("after keep", "before confirm", "after confirm", "use"))
        assert set(machine.used) <= set(confirmed(here["ledger"]))
        made = machine.run(here)
        assert made is not None
        assert set(machine.drawn()) == names(1) - set(before), step
        assert before.items() <= stored(here["output"]).items()
        assert all(len(used) == 1 for used in machine.used.values()), step
        assert texts(made) == {f"text {value}" for value in stored(here["output"]).values()}
        assert set(confirmed(here["ledger"])) == names(1)
        assert runs_charged(here["ledger"]) == 1


def test_crashes_of_several_threads_one_after_the_other_use_every_part_once(tmp_path: Path, machine: Machine) -> None:
    values = parts(tmp_path, texts_per_batch=4)
    kept: dict[str, int] = {}
    crashes = 0
    while machine.run(values, crash_at=7 * crashes + 3) is None:
        crashes += 1
        before, kept = kept, stored(values["output"])
        assert before.items() <= kept.items()
    assert crashes > 2
    assert all(len(used) == 1 for used in machine.used.values()), "a second value of one part was used"
    assert set(machine.used) == set(confirmed(values["ledger"])) == names(4)
    assert runs_charged(values["ledger"]) == 1


def test_a_store_that_forgets_is_noticed(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measurements, "_sealed", forgetful(monkeypatch))
    values = parts(tmp_path, texts_per_batch=1)
    machine.run(values)
    (tmp_path / "out" / "release" / "in-parts.release").unlink()
    machine.run(values)
    assert any(len(used) > 1 for used in machine.used.values())


def interrupted_and_copied(tmp_path: Path, machine: Machine) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two folders of one run that have the same first parts and lack the same others."""
    values = parts(tmp_path, texts_per_batch=2, threads=1)
    assert machine.run(values, crash_at=9) is None
    assert len(stored(values["output"])) == 1
    return values, copied(values)


def test_a_copy_that_draws_another_value_of_a_part_is_refused_unused(tmp_path: Path, machine: Machine) -> None:
    first, second = interrupted_and_copied(tmp_path, machine)
    machine.used = {}
    assert machine.run(second, crash_at=4 + 2) is None  # reads one; draws and stores the next, which it never confirms
    assert len(stored(second["output"])) == 2
    made = machine.run(first)
    assert made is not None
    for _ in range(2):
        with pytest.raises(LedgerError, match=REFUSED):
            machine.run(second)
        assert not machine.drawn()
    assert all(len(used) == 1 for used in machine.used.values())
    assert not list((Path(second["output"]) / "release").iterdir())
    assert runs_charged(first["ledger"]) == 1


def test_two_copies_that_draw_at_once_use_one_value_of_every_part(tmp_path: Path, machine: Machine) -> None:
    """The second begins its draw before the first has confirmed: refused when it confirms."""
    first, second = interrupted_and_copied(tmp_path, machine)
    machine.used = {}
    confirm, begun = Ledger.confirm, []

    def meanwhile(ledger: Ledger, seal: Seal, digest: str) -> None:
        if seal.name == f"{CHARGE}/0/0/1" and not begun:  # drawn and stored
            begun.append(seal.name)
            assert machine.run(first) is not None
        confirm(ledger, seal, digest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "confirm", meanwhile)
        with pytest.raises(LedgerError, match=REFUSED):
            machine.run(second)
    assert begun
    assert all(len(used) == 1 for used in machine.used.values())
    with pytest.raises(LedgerError, match=REFUSED):
        machine.run(second)


def test_a_copy_that_lacks_a_part_is_refused_before_it_draws_it(tmp_path: Path, machine: Machine) -> None:
    first, second = interrupted_and_copied(tmp_path, machine)
    machine.run(first)
    with pytest.raises(LedgerError, match=REFUSED):
        machine.run(second)
    assert not machine.drawn()


def test_the_copy_tests_notice_parts_that_are_not_confirmed(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = interrupted_and_copied(tmp_path, machine)
    monkeypatch.setattr(Ledger, "confirm", lambda *arguments: None)
    machine.used = {}
    assert machine.run(first) is not None
    assert machine.run(second) is not None
    assert any(len(used) > 1 for used in machine.used.values())


def test_the_receipt_pays_for_all_parts_once_in_a_process(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = parts(tmp_path, texts_per_batch=2)
    assert machine.run(values, crash_at=5) is None
    assert machine.run(values) is not None  # another receipt for the same entry

    def paying(self: InParts, corpus: Any, plan: Plan, tools: Any) -> Any:
        tools.open(CHARGE)
        return whole(self, corpus, plan, tools)

    whole = InParts.release
    monkeypatch.setattr(InParts, "release", paying)
    with pytest.raises(PrivacyError, match="no unused charge"):
        machine.run({**values, "output": str(tmp_path / "twice"), "ledger": str(tmp_path / "other.sqlite")})


def test_a_part_of_an_unknown_charge_cannot_be_confirmed(tmp_path: Path) -> None:
    plan = InParts().plan(Budget(1, 0), PublicFacts(Unit()))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_dataset("d", cap=Budget(1, 0), unit=Unit())
        receipt = ledger.charge("d", plan, run_id="run")
        seal = receipt.seal(f"{CHARGE}/0/0/0", noise="system", rows="")
        ledger.confirm(seal, "digest")
        for name in ("token/0/0/0", "/0", f"x/{CHARGE}"):
            with pytest.raises(PrivacyError, match="No charge of the plan"):
                receipt.seal(name, noise="system", rows="")
            with pytest.raises(PrivacyError, match="no charge"):
                ledger.confirm(replace(seal, name=name), "digest")
    assert confirmed(tmp_path / "ledger.sqlite") == {f"{CHARGE}/0/0/0": "digest"}


def test_a_charge_with_a_slash_in_its_name_is_refused() -> None:
    charges = (Charge("tokens/0", Declared(PureEvent(0.5)), "to test"),)
    with pytest.raises(PrivacyError, match="slash"):
        Plan("test", Unit(), Budget(1, 0), charges)
