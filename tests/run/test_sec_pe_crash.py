"""A run that protects secrets goes down before or after a step: one charge, one draw that is used, each answer once.

``test_crash.py`` goes through the steps that all methods share; here are those from the charge to the Release, and some
of the evolution that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from evolution_fixtures import varied
from run_fixtures import runs_charged
from secret_fixtures import protecting
from test_crash import Machine, files, forgetful, steps_of

from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.run import measuring
from understudy.run.measuring import Measurements

pytestmark = pytest.mark.usefixtures("embedder")
SMALL = {
    **{"label": None, "labels": None, "records_per_label": None, "records": 2, "releases": 2, "clusters": 2},
    **{"rounds": 1, "population": 2, "variations": 2},
}
NOISY = ("clusters-1", "clusters-2")


class Protecting(Machine):
    """Counts the draws of records and noise too."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().watch(monkeypatch)
        monkeypatch.setattr(self.chat, "_reply", varied)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Protecting()
    made.watch(monkeypatch)
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda spec, **options: made.chat)
    return made


def assert_nothing_twice(machine: Machine, config: Mapping[str, Any]) -> None:
    assert runs_charged(config["ledger"]) == 1
    assert set(machine.used) == set(NOISY)
    assert all(len(values) == 1 for values in machine.used.values()), "a second noisy value was used"


def test_a_crash_is_resumed_without_a_second_charge_draw_or_answer(tmp_path: Path, machine: Machine) -> None:
    config = protecting(tmp_path, **SMALL)
    assert machine.run(config, crash_at=None)
    steps = list(machine.steps)
    assert steps_of([(measuring, "measure"), (Ledger, "charge"), (Ledger, "confirm"), (RunStore, "keep")]) <= set(steps)
    first, last = steps.index("before Ledger.charge"), steps.index("after Release.save")
    for number, step in [*enumerate(steps)][first : last + 1] + [*enumerate(steps)][last + 8 :: 8]:
        folder = tmp_path / str(number)
        here = {**config, "output": str(folder), "ledger": str(tmp_path / f"{number}.sqlite")}
        machine.used, machine.draws, machine.chat.asked = {}, Counter(), []
        assert not machine.run(here, crash_at=number), step
        assert machine.run(here, crash_at=None), step
        assert_nothing_twice(machine, here)
        assert sum(machine.draws.values()) <= 3, step  # one redraw at most: of the value that was not stored
        if step not in ("after an answer", "before AnswerStore.put_many"):
            assert max(Counter(machine.chat.keys).values()) == 1, step
        if number % 16 == 0:
            once = files(folder)
            assert machine.run(here, crash_at=None)
            assert files(folder) == once, step


def test_the_crash_test_notices_a_store_that_forgets(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = protecting(tmp_path, **SMALL)
    assert machine.run(config, crash_at=None)
    release = next(number for number, step in enumerate(machine.steps) if "Release.save" in step)
    monkeypatch.setattr(Measurements, "_sealed", machine._recording(forgetful(monkeypatch)))
    machine.used = {}
    here = {**config, "output": str(tmp_path / "other"), "ledger": str(tmp_path / "other.sqlite")}
    assert not machine.run(here, crash_at=release - 8)
    assert machine.run(here, crash_at=None)
    with pytest.raises(AssertionError, match="second noisy value"):
        assert_nothing_twice(machine, here)
