"""The one door to private records: a value is stored, then confirmed, then used; and never taken for what it is not."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save

from understudy.base.errors import LedgerError, PrivacyError
from understudy.corpus.bounding import BoundedBatch
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.methods.shared.queries.counts import LabelCounts
from understudy.methods.shared.specs import LabelCountsSpec
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import NoisySum, SampledSum, Sensitivity
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseKind, NoiseSource, SystemNoise
from understudy.privacy.plan import Charge, Plan, Receipt
from understudy.privacy.sealed import NoiseOrigin, SealedValue
from understudy.privacy.subsampled import SubsampledTokens
from understudy.privacy.unit import Unit
from understudy.run.door import Measurements

QUERY = LabelCounts(LabelCountsSpec(3))
COUNTS = NoisySum("laplace", 2.0, QUERY.sensitivity, (3,))
TOKENS = SubsampledTokens("votes", subsets=4, noise_multiplier=0.1, rate=0.1, tokens=2)
PLAN = Plan("test", Unit(), Budget(1, 0), (Charge("sums", COUNTS, "counts"), Charge("tokens", TOKENS, "tokens")))
ROWS = "a keyed hash of the rows"


@dataclass(frozen=True)
class Corpus:
    """Records by their labels; notes how often it is read."""

    labels: tuple[int, ...] = (0, 2, 2)
    reads: list[int] = field(default_factory=list)

    def batches(self) -> Iterator[BoundedBatch]:
        self.reads.append(1)
        ones = np.ones(len(self.labels), dtype=np.int64)
        yield BoundedBatch([""] * len(ones), np.array(self.labels, dtype=np.int32), ones, np.arange(len(ones)))


class Counted(SystemNoise):
    """The system's noise; counts how often it is sampled."""

    def __init__(self) -> None:
        self.samples = 0

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        self.samples += 1
        return super().draw(kind, scale=scale, size=size)


class Killed(Exception):
    pass


class Folder:
    """A run's folder and ledger, used by one process after another."""

    def __init__(self, root: Path, *, ledger: Path | None = None) -> None:
        self.root = root
        self.private = root / "private"
        self.ledger = Ledger.create(ledger or root / "ledger.sqlite")
        if self.ledger.dataset("d") is None:
            self.ledger.open_dataset("d", cap=Budget(9, 0), unit=Unit())

    def open(self, noise: NoiseOrigin = "system") -> RunStore:
        return RunStore.open(self.private, noise=noise)

    def door(self, store: RunStore, *, noise: NoiseSource | None = None, rows: str = ROWS) -> Measurements:
        """Charged, or known to be: what a command does before it releases anything."""
        key = self.ledger.fingerprint_key
        kept = {seal.name: store.digest(seal.name, key=key) or "" for seal in store.seals()}
        receipt = self.ledger.charge("d", PLAN, run_id=store.run_id, kept=kept)
        return Measurements(PLAN, receipt, noise or SystemNoise(), store, self.ledger, rows)

    def measure(self, corpus: Corpus | None = None, *, noise: NoiseSource | None = None) -> SealedValue:
        with self.open() as store:
            return self.door(store, noise=noise).measure("sums", QUERY, corpus or Corpus())

    def sql(self, command: str, *values: object, file: str = "run.sqlite") -> None:
        with closing(sqlite3.connect(self.private / file)) as connection, connection:
            assert connection.execute(command, values).rowcount == 1

    def reseal(self, **changes: Any) -> None:
        """Edit the stored seal by hand."""
        with self.open() as store:
            (seal,) = store.seals()
        self.sql("UPDATE value SET seal = ? WHERE name = 'sums'", json.dumps({**seal.to_json(), **changes}))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    with made.ledger:
        yield made


# -- stored, confirmed, used ------------------------------------------------------------------------------------------


def test_a_measured_value_is_stored_sealed_and_confirmed(folder: Folder) -> None:
    notes: list[Mapping[str, Any]] = []
    with folder.open() as store:
        door = replace(folder.door(store), note=notes.append)
        value = door.measure("sums", QUERY, Corpus())
        stored = store.sealed("sums")
        assert stored is not None
        assert np.array_equal(stored.value, value.value)
        assert (value.seal.run_id, value.seal.ledger_id) == (store.run_id, folder.ledger.id)
        assert (value.seal.event, value.seal.unit, value.seal.rows) == (COUNTS.event, Unit(), ROWS)
        assert value.seal == stored.seal
        assert value.seal.private
        assert store.private
        digest = store.digest("sums", key=folder.ledger.fingerprint_key)
        with pytest.raises(LedgerError, match="has already sampled and used"):
            folder.ledger.confirm(value.seal, f"not {digest}")  # it is confirmed
    assert [(note.keys(), note["charge"]) for note in notes] == [({"charge", "seconds"}, "sums")]


def test_the_value_is_that_of_the_planned_mechanism(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, noise="none") as store:
        door = Measurements(PLAN, Receipt(store.run_id, PLAN), InsecureNoNoise(), store, None, "")
        assert door.measure("sums", QUERY, Corpus()).value.tolist() == [1, 0, 2]


def test_a_stored_value_is_read_and_neither_record_nor_noise_is_asked_again(folder: Folder) -> None:
    noise, corpus = Counted(), Corpus()
    first = folder.measure(corpus, noise=noise)
    with folder.open() as store:
        door = folder.door(store, noise=noise)
        for _ in range(2):
            assert np.array_equal(door.measure("sums", QUERY, corpus).value, first.value)
    assert (len(corpus.reads), noise.samples) == (1, 1)
    with folder.open() as store:
        folder.door(store, noise=noise).receipt.pay("sums")  # a value that is only read pays nothing


def test_a_value_that_cannot_be_stored_is_never_used(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        raise Killed

    with folder.open() as store, monkeypatch.context() as patch:
        patch.setattr(RunStore, "keep", killed)
        patch.setattr(Ledger, "confirm", lambda *_: pytest.fail("confirmed before it was stored"))
        with pytest.raises(Killed):
            folder.door(store).measure("sums", QUERY, Corpus())
    with folder.open() as store:
        assert store.names() == []
    noise = Counted()
    folder.measure(noise=noise)  # nobody saw the first: the same charge pays for sampling anew
    assert noise.samples == 1
    assert len(folder.ledger.history("d")) == 1


def test_a_value_that_was_stored_but_not_confirmed_is_the_one_that_is_confirmed_later(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[SealedValue | None] = []
    corpus, noise = Corpus(), Counted()
    with folder.open() as store:
        door = folder.door(store, noise=noise)

        def killed(*_: object) -> None:
            stored.append(store.sealed("sums"))  # it is on disk when the ledger hears of it
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "confirm", killed)
            with pytest.raises(Killed):
                door.measure("sums", QUERY, corpus)
    assert stored[0] is not None
    again = folder.measure(corpus, noise=noise)
    assert np.array_equal(again.value, stored[0].value)
    assert (len(corpus.reads), noise.samples) == (1, 1)


def test_a_copy_of_the_folder_that_samples_anew_is_refused(folder: Folder) -> None:
    with folder.open() as store:
        folder.door(store)
    shutil.copytree(folder.private, folder.root / "copy")
    folder.measure()
    shutil.rmtree(folder.private)
    (folder.root / "copy").rename(folder.private)
    with pytest.raises(LedgerError, match="Another copy of this output folder"):
        folder.measure()


def test_two_copies_that_were_both_charged_confirm_one_value(folder: Folder) -> None:
    """The ledger is asked at each value again, not only when the run begins."""
    with folder.open() as store:
        folder.door(store)
    shutil.copytree(folder.private, folder.root / "copy" / "private")
    with folder.open() as store, RunStore.open(folder.root / "copy" / "private", noise="system") as other:
        doors = [folder.door(store), folder.door(other)]
        doors[0].measure("sums", QUERY, Corpus())
        with pytest.raises(LedgerError, match="Another copy of this output folder"):
            doors[1].measure("sums", QUERY, Corpus())


# -- values that are not what they should be --------------------------------------------------------------------------

ALTERED: dict[str, dict[str, Any]] = {
    "of another run": {"run_id": "9" * 32},
    "of another ledger": {"ledger_id": "9" * 32},
    "of no ledger": {"ledger_id": ""},
    "of another entry": {"charge_number": 2},
    "of less noise": {"event": {"kind": "pure", "epsilon": 0.6}},
    "of more noise": {"event": {"kind": "pure", "epsilon": 0.1}},
    "of another unit": {"unit": {"kind": "owner", "max_records": 3}},
    "of other rows": {"rows": "of another table"},
    "of another charge": {"name": "tokens"},
    "of a part": {"name": "sums/0"},
    "without noise": {"noise": "none"},
}


@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED)
def test_a_value_whose_seal_was_edited_is_refused(folder: Folder, change: dict[str, Any]) -> None:
    folder.measure()
    folder.reseal(**change)
    with folder.open() as store:
        receipt = folder.ledger.charge("d", PLAN, run_id=store.run_id, kept=_confirmed(folder, store.run_id))
        door = Measurements(PLAN, receipt, SystemNoise(), store, folder.ledger, ROWS)
        with pytest.raises(PrivacyError, match=r"sealed for another run, charge or table|seal is missing"):
            door.measure("sums", QUERY, Corpus())


def _confirmed(folder: Folder, run_id: str) -> dict[str, str]:
    """As if the folder held what the ledger has confirmed: only the door is in the way."""
    from understudy.ledger import rows

    with folder.ledger._database.read() as connection:
        return rows.drawn(connection, run_id)


@pytest.mark.parametrize("edit", ["numbers", "seal", "rows"])
def test_an_edited_value_is_not_what_the_ledger_has_confirmed(folder: Folder, edit: str) -> None:
    """Neither at the charge, where it is missing among the noisy values or another, nor when it is asked for."""
    folder.measure()
    if edit == "numbers":
        folder.sql("UPDATE value SET arrays = ?", save({"value": np.array([1.0, 0.0, 2.0])}))
    elif edit == "seal":
        folder.sql("UPDATE value SET seal = NULL")
    else:
        folder.reseal(rows="of another table")
    with folder.open() as store:
        with pytest.raises(LedgerError, match="has already sampled and used"):
            folder.door(store)
        receipt = folder.ledger.charge("d", PLAN, run_id=store.run_id, kept=_confirmed(folder, store.run_id))
        door = Measurements(PLAN, receipt, SystemNoise(), store, folder.ledger, ROWS)
        with pytest.raises(
            (LedgerError, PrivacyError), match=r"already sampled and used|seal is missing|sealed for another run"
        ):
            door.measure("sums", QUERY, Corpus())


def test_a_value_copied_from_another_runs_store_is_refused(folder: Folder, tmp_path: Path) -> None:
    """Of the same plan, table and ledger, with a seal that is right for the other run."""
    other = Folder(tmp_path / "other", ledger=tmp_path / "ledger.sqlite")
    with other.ledger:
        other.measure()
    with folder.open() as store:
        folder.door(store)
    with closing(sqlite3.connect(folder.private / "run.sqlite")) as connection, connection:
        connection.execute("ATTACH ? AS other", (str(other.private / "run.sqlite"),))
        connection.execute("INSERT INTO value SELECT * FROM other.value")
    with folder.open() as store, pytest.raises(PrivacyError, match="sealed for another run, charge or table"):
        folder.door(store).measure("sums", QUERY, Corpus())
    folder.reseal(run_id=_run_id(folder))  # and its entry is still the other run's
    with folder.open() as store, pytest.raises(PrivacyError, match="sealed for another run, charge or table"):
        folder.door(store).measure("sums", QUERY, Corpus())


def _run_id(folder: Folder) -> str:
    with folder.open() as store:
        return store.run_id


# -- without a promise ------------------------------------------------------------------------------------------------

INSECURE: dict[NoiseOrigin, Callable[[], NoiseSource]] = {
    "none": InsecureNoNoise,
    "seeded": lambda: InsecureSeededNoise(3),
}
insecurely = pytest.mark.parametrize("origin", INSECURE)


@insecurely
def test_a_value_of_insecure_noise_is_never_private_though_charged(folder: Folder, origin: NoiseOrigin) -> None:
    with folder.open(origin) as store:
        receipt = folder.ledger.charge("d", PLAN, run_id=store.run_id)
        door = Measurements(PLAN, receipt, INSECURE[origin](), store, None, ROWS)
        value = door.measure("sums", QUERY, Corpus())
        assert value.seal.ledger_id == folder.ledger.id
        assert (value.seal.noise, value.seal.private, store.private) == (origin, False, False)


@insecurely
def test_the_ledger_refuses_values_of_insecure_noise_and_none_is_used(folder: Folder, origin: NoiseOrigin) -> None:
    with folder.open(origin) as store:
        door = folder.door(store, noise=INSECURE[origin]())
        for _ in range(2):
            with pytest.raises(PrivacyError, match="no charge for the noisy value"):
                door.measure("sums", QUERY, Corpus())


@insecurely
def test_noise_of_another_origin_than_the_stores_is_not_kept(folder: Folder, origin: NoiseOrigin) -> None:
    for of_store, noise in (("system", INSECURE[origin]()), (origin, SystemNoise())):
        with RunStore.open(folder.root / of_store / "private", noise=of_store) as store:  # type: ignore[arg-type]
            with pytest.raises(PrivacyError, match="another origin"):
                folder.door(store, noise=noise).measure("sums", QUERY, Corpus())
            assert store.names() == []


@insecurely
def test_an_insecure_value_that_was_moved_into_a_private_store_is_refused(folder: Folder, origin: NoiseOrigin) -> None:
    with folder.open(origin) as store:
        receipt = Receipt(store.run_id, PLAN)
        Measurements(PLAN, receipt, INSECURE[origin](), store, None, "").measure("sums", QUERY, Corpus())
    with folder.open() as store:
        folder.door(store)
    with closing(sqlite3.connect(folder.private / "run.sqlite")) as connection, connection:
        connection.execute("ATTACH ? AS other", (str(folder.private / "insecure.sqlite"),))
        connection.execute("INSERT INTO value SELECT * FROM other.value")
    with pytest.raises(PrivacyError, match="another origin"):
        folder.open()
    folder.sql("UPDATE value SET noise = 'system'")  # its own seal still says it
    with folder.open() as store:
        assert not store.private
        with pytest.raises(PrivacyError, match="sealed for another run, charge or table"):
            folder.door(store).measure("sums", QUERY, Corpus())


def test_the_systems_noise_without_a_ledger_is_not_private(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, noise="system") as store:
        door = Measurements(PLAN, Receipt(store.run_id, PLAN), SystemNoise(), store, None, "")
        assert not door.measure("sums", QUERY, Corpus()).seal.private
        assert not store.private


# -- what the ledger has not booked -----------------------------------------------------------------------------------


@pytest.mark.parametrize("claims", [False, True])
def test_a_receipt_that_no_ledger_gave_seals_nothing_that_a_ledger_confirms(folder: Folder, claims: bool) -> None:
    booked = {"ledger_id": folder.ledger.id, "charge_number": 1} if claims else {}
    with folder.open() as store:
        receipt = Receipt(store.run_id, PLAN, **booked)  # type: ignore[arg-type]
        door = Measurements(PLAN, receipt, SystemNoise(), store, folder.ledger, ROWS)
        with pytest.raises(PrivacyError, match="no charge for the noisy value"):
            door.measure("sums", QUERY, Corpus())


def test_a_charge_of_another_plan_confirms_no_value(folder: Folder) -> None:
    """More noise was booked than is sampled."""
    quieter = Plan("test", Unit(), Budget(1, 0), (Charge("sums", replace(COUNTS, noise_multiplier=3.0), "counts"),))
    with folder.open() as store:
        booked = folder.ledger.charge("d", quieter, run_id=store.run_id)
        number = booked.seal("sums", noise="system", rows=ROWS).charge_number
        receipt = Receipt(store.run_id, PLAN, ledger_id=folder.ledger.id, charge_number=number)
        door = Measurements(PLAN, receipt, SystemNoise(), store, folder.ledger, ROWS)
        with pytest.raises(PrivacyError, match="no charge for the noisy value"):
            door.measure("sums", QUERY, Corpus())


def test_a_value_that_no_charge_pays_for_is_not_made(folder: Folder) -> None:
    corpus = Corpus()
    with folder.open() as store:
        door = folder.door(store)
        for ask in (
            lambda: door.measure("others", QUERY, corpus),
            lambda: door.seal("others/0", lambda: pytest.fail("it was made")),
            lambda: door.open("others"),
        ):
            with pytest.raises(PrivacyError, match=r"No charge of the plan pays|no unused charge|does not belong"):
                ask()
        assert store.names() == []
    assert corpus.reads == []


def test_a_charge_is_opened_once_in_a_process_and_its_parts_are_sealed_one_by_one(folder: Folder) -> None:
    made: list[str] = []

    def part(name: str) -> Mapping[str, NDArray[Any]]:
        made.append(name)
        return {"tokens": np.array([len(made)])}

    for _ in range(2):
        with folder.open() as store:
            door = folder.door(store)
            assert door.open("tokens").label(0).left == 2
            with pytest.raises(PrivacyError, match="no unused charge"):
                door.open("tokens")
            parts = [door.seal(f"tokens/{number}", lambda: part("made")) for number in range(3)]
            assert [int(each.arrays["tokens"][0]) for each in parts] == [1, 2, 3]
            assert store.private
    assert len(made) == 3


def test_a_charge_that_was_measured_is_not_opened_too(folder: Folder) -> None:
    with folder.open() as store:
        door = folder.door(store)
        door.measure("sums", QUERY, Corpus())
        with pytest.raises(PrivacyError, match="no unused charge"):
            door.open("sums")


# -- public things ----------------------------------------------------------------------------------------------------


def test_what_is_public_is_kept_once_and_without_a_seal(folder: Folder) -> None:
    with folder.open() as store:
        door = folder.door(store)
        for number in (1, 2):
            assert door.keep("population", lambda number=number: {"x": np.array([number])})["x"].tolist() == [1]
        assert store.seals() == []


@pytest.mark.parametrize("name", ["sums", "sums/0", "tokens", "tokens/7/0"])
def test_a_noisy_value_is_not_kept_as_something_public(folder: Folder, name: str) -> None:
    with folder.open() as store:
        with pytest.raises(PrivacyError, match="a value that a charge pays for"):
            folder.door(store).keep(name, lambda: pytest.fail("it was made"))
        assert store.names() == []


# -- whom the noise protects ------------------------------------------------------------------------------------------


def secret_door(store: RunStore, unit: Unit, mechanism: NoisySum | SampledSum) -> Measurements:
    """Of a plan that is not composed: only who is protected matters here."""
    budget = SecretBudget("1e-4", "1e-1") if unit.kind == "secret" else Budget(30, "1e-2")
    plan = Plan("test", unit, budget, (Charge("sums", mechanism, "counts"),))
    return Measurements(plan, Receipt(store.run_id, plan), InsecureNoNoise(), store, None, "")


@pytest.mark.parametrize(
    ("unit", "records", "refused"),
    [(Unit("secret", 4), 1, True), (Unit("secret", 4), 4, False), (Unit("owner", 4, "who"), 1, False)],
    ids=["one record of a secret", "all records of a secret", "an owner"],
)
def test_noise_for_one_record_is_too_little_for_a_secret_of_four_and_enough_for_an_owner(
    tmp_path: Path, unit: Unit, records: int, refused: bool
) -> None:
    """An owner's records are averaged by the query; those of a secret are not."""
    corpus, mechanism = Corpus(), NoisySum("gaussian", 4.0, QUERY.sensitivity.times(records), (3,))
    with RunStore.open(tmp_path, noise="none") as store:
        if refused:
            with pytest.raises(PrivacyError, match="not the one that was planned"):
                secret_door(store, unit, mechanism).measure("sums", QUERY, corpus)
            assert (store.names(), corpus.reads) == ([], [])
        else:
            assert secret_door(store, unit, mechanism).measure("sums", QUERY, corpus).value.tolist() == [1, 0, 2]


def test_a_sampled_sum_is_planned_for_one_record_and_needs_its_rates(tmp_path: Path) -> None:
    mechanism = SampledSum(9.0, (((1.0, 4),),), QUERY.sensitivity, (3,))
    corpus = Corpus()
    with RunStore.open(tmp_path, noise="none") as store:
        with pytest.raises(PrivacyError, match="Sampling rates were given"):
            secret_door(store, Unit("secret", 4), mechanism).measure("sums", QUERY, corpus)
        assert corpus.reads == []
        value = secret_door(store, Unit("secret", 4), mechanism).measure("sums", QUERY, corpus, rates=1.0)
        assert value.value.tolist() == [1, 0, 2]


def test_a_query_that_was_not_planned_is_refused_and_nothing_is_kept(folder: Folder) -> None:
    @dataclass(frozen=True)
    class Twice(LabelCounts):
        @property
        def sensitivity(self) -> Sensitivity:
            return Sensitivity.of_counts(2)

    for query in (Twice(LabelCountsSpec(3)), LabelCounts(LabelCountsSpec(4))):
        with folder.open() as store:
            with pytest.raises(PrivacyError, match="not the one that was planned"):
                folder.door(store).measure("sums", query, Corpus())
            assert store.names() == []
