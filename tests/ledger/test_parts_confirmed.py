"""Parts of a charge are confirmed one by one: by several threads at once, in the same time however many there are."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from ledger_plans import CAP, RECORD, pure_plan

from understudy.base.errors import LedgerError, PrivacyError
from understudy.ledger import Ledger, rows
from understudy.ledger.rows import draws
from understudy.ledger.store import RunStore
from understudy.privacy.noise import SystemNoise
from understudy.privacy.plan import Receipt
from understudy.privacy.sealed import Seal
from understudy.run.door import Measurements

THREADS = 4
PLAN = pure_plan("1/2")


def charged(ledger: Ledger, run_id: str = "run") -> Receipt:
    """A run whose one charge, ``sums``, is booked."""
    ledger.open_dataset("d", cap=CAP, unit=RECORD)
    return ledger.charge("d", PLAN, run_id=run_id)


def sealed(receipt: Receipt, name: str) -> Seal:
    return receipt.seal(name, noise="system", rows="rows")


def drawn(ledger: Ledger, run_id: str = "run") -> dict[str, str]:
    with ledger._database.read() as connection:
        return rows.drawn(connection, run_id)


def test_parts_that_threads_confirm_at_once_are_all_there(ledger: Ledger) -> None:
    receipt = charged(ledger)
    digests = {f"sums/{number % 7}/{number}": f"{number:064x}" for number in range(80)}
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda item: ledger.confirm(sealed(receipt, item[0]), item[1]), digests.items()))
    assert drawn(ledger) == digests
    assert len(ledger.history("d")) == 1
    ledger.charge("d", PLAN, run_id="run", kept={**digests, "sums/9": "not confirmed yet"})
    ledger.confirm(sealed(receipt, "sums/0/0"), digests["sums/0/0"])
    assert drawn(ledger) == digests


def test_of_threads_that_confirm_one_part_differently_one_wins(ledger: Ledger) -> None:
    seal = sealed(charged(ledger), "sums/0")

    def confirm(digest: str) -> str | None:
        try:
            ledger.confirm(seal, digest)
        except LedgerError:
            return None
        return digest

    for _ in range(3):
        with ThreadPoolExecutor(THREADS) as pool:
            accepted = {digest for digest in pool.map(confirm, "abcd" * 3) if digest is not None}
        assert accepted == set(drawn(ledger).values())
        assert len(accepted) == 1


@pytest.mark.parametrize("kept", [{}, {"sums/0": "a"}, {"sums/0": "a", "sums/1": "c"}, {"sums": "a"}])
def test_a_run_that_lacks_a_confirmed_part_or_has_another_is_refused(ledger: Ledger, kept: dict[str, str]) -> None:
    receipt = charged(ledger)
    ledger.confirm(sealed(receipt, "sums/0"), "a")
    ledger.confirm(sealed(receipt, "sums/1"), "b")
    with pytest.raises(LedgerError, match="Another copy"):
        ledger.charge("d", PLAN, run_id="run", kept=kept)
    ledger.charge("d", PLAN, run_id="run", kept={"sums/0": "a", "sums/1": "b", "sums/2": "c"})


def test_a_part_is_none_of_another_charge_or_run(ledger: Ledger) -> None:
    seal = sealed(charged(ledger), "sums/0")
    other = sealed(ledger.charge("d", PLAN, run_id="other"), "sums/0")
    for change in ({"name": "sum/0"}, {"name": "/sums"}, {"run_id": "nobody"}, {"run_id": "other"}):
        with pytest.raises(PrivacyError, match="no charge"):
            ledger.confirm(replace(seal, **change), "a")
    ledger.confirm(seal, "a")
    ledger.confirm(other, "b")
    assert (drawn(ledger), drawn(ledger, "other")) == ({"sums/0": "a"}, {"sums/0": "b"})


def test_confirming_takes_no_longer_after_many_parts(tmp_path: Path) -> None:
    """Reading all of a run's digests at every confirmation took 5 times as long after 5,000 of them."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    def watch(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_progress_handler(step, 1)

    def work(count: int) -> int:
        """Instructions of the database's for one confirmation."""
        with Ledger.create(tmp_path / f"{count}.sqlite") as ledger:
            receipt = charged(ledger)
            with ledger._database.write() as connection:
                parts = [{"run_id": "run", "name": f"sums/x/{n}", "digest": "0", "at": ""} for n in range(count)]
                connection.execute(sa.insert(draws), parts)
            before = steps
            ledger.confirm(sealed(receipt, "sums/0"), "a")
        return steps - before

    sa.event.listen(sa.Engine, "connect", watch)
    try:
        assert 0 < work(5_000) < 1.2 * work(1)
    finally:
        sa.event.remove(sa.Engine, "connect", watch)


def test_parts_that_threads_keep_and_confirm_at_once_come_back_as_they_were(tmp_path: Path) -> None:
    with (
        Ledger.create(tmp_path / "ledger.sqlite") as ledger,
        RunStore.open(tmp_path / "private", noise="system") as store,
    ):
        receipt = charged(ledger, store.run_id)
        door = Measurements(PLAN, receipt, SystemNoise(), store, ledger, "rows", opened={"sums"})
        names = [f"sums/{number % 3}/{number}" for number in range(120)]

        def value(name: str) -> dict[str, np.ndarray]:
            number = int(name.rpartition("/")[2])
            return {"tokens": np.arange(number, dtype=np.int32), "private": np.arange(number) % 2 == 0}

        with ThreadPoolExecutor(THREADS) as pool:
            found = pool.map(lambda name: door.seal(name, lambda: value(name)).arrays, names)
            returned = dict(zip(names, found, strict=True))
        digests = {name: store.digest(name, key=ledger.fingerprint_key) for name in store.names()}
        assert drawn(ledger, store.run_id) == digests
        assert sorted(names) == store.names()
        assert store.private
    with RunStore.open(tmp_path / "private", noise="system") as store:
        for name in names:
            stored = store.value(name)
            assert stored is not None
            for key, array in value(name).items():
                assert stored[key].tobytes() == array.tobytes() == returned[name][key].tobytes()
                assert stored[key].dtype == array.dtype
