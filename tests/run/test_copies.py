"""Copies of an output's private folder, taken or put back at any moment: one charge, one value that is used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import settings
from run_fixtures import run, runs_charged

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.methods.registry import load_release
from understudy.privacy.guarantee import Budget
from understudy.privacy.sealed import Seal
from understudy.privacy.unit import Unit
from understudy.release import Release
from understudy.run import door as measuring

REFUSED = r"Another copy of this output folder.*fresh"


class Stop(BaseException):
    """The machine goes down."""


def stopped(values: dict[str, Any], owner: type, method: str, *, after: bool = False, name: str = "") -> None:
    """A run that goes down before, or after, the first call of a step (about the charge ``name``)."""
    whole: Callable[..., Any] = getattr(owner, method)

    def stop(*arguments: Any, **named: Any) -> Any:
        if name and name not in [
            each.name if isinstance(each, Seal) else each for each in arguments if isinstance(each, str | Seal)
        ]:
            return whole(*arguments, **named)
        if after:
            whole(*arguments, **named)
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, stop)
        with pytest.raises(Stop):
            run(values)


def copied(values: dict[str, Any], name: str = "copy") -> dict[str, Any]:
    """The settings of a run in a copy of the folder as it is now."""
    output = Path(values["output"])
    shutil.copytree(output, output.with_name(name))
    return {**values, "output": str(output.with_name(name))}


def assert_refused(values: dict[str, Any]) -> None:
    """However often it is tried, nothing is released and nothing is charged."""
    for _ in range(2):
        with pytest.raises(LedgerError, match=REFUSED):
            run(values)
    assert not list((Path(values["output"]) / "release").iterdir())
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize(
    ("owner", "method", "after"),
    [
        (RunStore, "begin", True),  # before the charge
        (Ledger, "charge", True),
        (measuring, "measure", True),
        (RunStore, "keep", False),
    ],
)
def test_copies_from_before_the_draw_draw_no_other_value(tmp_path: Path, owner: type, method: str, after: bool) -> None:
    values = settings(tmp_path)
    stopped(values, owner, method, after=after)
    copy = copied(values)
    run(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "measure", lambda *_, **__: pytest.fail("it sampled again"))
        if method == "begin":
            with pytest.raises(LedgerError, match=REFUSED):
                run(copy)
        assert_refused(copy)
    run(values)


@pytest.mark.parametrize("name", ["vocabulary", "density"])
def test_of_two_copies_that_drew_the_first_to_confirm_is_used_and_no_other(tmp_path: Path, name: str) -> None:
    values = settings(tmp_path)
    stopped(values, RunStore, "keep", name=name)
    copy = copied(values)
    stopped(values, Ledger, "confirm", name=name)  # both have drawn and kept, neither has confirmed
    stopped(copy, Ledger, "confirm", name=name)
    kept = []
    for one in (values, copy):
        with RunStore.open(Path(one["output"]) / "private", noise="system") as store:
            kept.append(store.digest(name, key=b"k"))
    assert kept[0] != kept[1]
    run(copy)
    assert_refused(values)


def test_two_copies_that_draw_at_the_same_time_use_one_value(tmp_path: Path) -> None:
    """The other copy comes in between this one's keep and its confirmation, unseen by its charge."""
    values = settings(tmp_path)
    stopped(values, Ledger, "charge", after=True)
    copy = copied(values)
    whole = Ledger.confirm

    def confirm(ledger: Ledger, *arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "confirm", whole)
            run(copy)
        whole(ledger, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "confirm", confirm)
        with pytest.raises(LedgerError, match=REFUSED):
            run(values)
    assert_refused(values)


def test_a_copy_from_after_the_keep_goes_on_with_the_same_value(tmp_path: Path) -> None:
    values = settings(tmp_path)
    stopped(values, Ledger, "confirm", name="density")
    copy = copied(values)
    first, second = run(values).release, run(copy).release
    assert first.digest == second.digest
    assert runs_charged(values["ledger"]) == 1


def test_an_old_snapshot_put_back_after_the_release_is_refused_until_fresh_charges_again(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with Ledger(values["ledger"]) as ledger:
        ledger.open_dataset("notes", cap=Budget(6, "1e-5"), unit=Unit())
    stopped(values, RunStore, "keep", name="density")
    snapshot = copied(values)
    first = run(values).release
    shutil.rmtree(values["output"])
    shutil.move(snapshot["output"], values["output"])
    assert_refused(values)
    second = run(values, fresh=True).release
    assert runs_charged(values["ledger"]) == 2
    assert not np.array_equal(first.arrays["density"], second.arrays["density"])


@pytest.mark.parametrize("replaced", [0, 1, 2])
def test_a_fresh_run_killed_while_it_sets_the_old_one_aside_draws_no_more(tmp_path: Path, replaced: int) -> None:
    values = settings(tmp_path)
    with Ledger(values["ledger"]) as ledger:
        ledger.open_dataset("notes", cap=Budget(6, "1e-5"), unit=Unit())
    killed: dict[str, Any] = {}

    def save(*_: object) -> None:
        killed.update(copied(values))  # with SQLite's log, which holds the values, as after kill -9
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Release, "save", save)
        with pytest.raises(Stop):
            run(values)
    assert (tmp_path / "copy" / "private" / "run.sqlite-wal").stat().st_size > 0
    first = run(values).release
    whole, done = Path.replace, []

    def replace(self: Path, target: Path) -> Path:
        if len(done) == replaced:
            raise Stop
        done.append(self)
        return whole(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(Stop):  # before the old store is copied, before the new one takes its place, or afterwards
            run(killed, fresh=True)
    again = run(killed).release
    assert (again.digest == first.digest) is (replaced < 2)
    assert runs_charged(values["ledger"]) == (1 if replaced < 2 else 2)


def test_the_ledger_keeps_digests_only_and_shows_none(tmp_path: Path) -> None:
    values = settings(tmp_path)
    made = run(values).release
    with Ledger(values["ledger"]) as ledger:
        (entry,) = ledger.history("notes")
        with RunStore.open(Path(values["output"]) / "private", noise="system") as store:
            digest = store.digest("density", key=ledger.fingerprint_key)
    assert digest is not None
    stored = Path(values["ledger"]).read_bytes()
    assert digest.encode() in stored
    assert made.arrays["density"].tobytes() not in stored
    assert digest not in str(entry.to_json())
    folder = Path(values["output"]) / "release"
    assert all(digest.encode() not in path.read_bytes() for path in folder.iterdir())
    assert load_release(folder / "dp-kps.release").digest == made.digest
