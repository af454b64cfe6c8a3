"""What a noisy value is stays with it: only the system's noise under a booked charge makes it private."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from understudy.base.errors import PrivacyError
from understudy.privacy.events import Event, GaussianEvent, MixtureEvent, PureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan, Receipt
from understudy.privacy.sealed import NoiseOrigin, Seal, SealedValue, charge_of
from understudy.privacy.unit import Unit

OWNER = Unit("owner", 3, "patient")
SEAL = Seal("sums", GaussianEvent(5 / 3), OWNER, "system", "1" * 32, "2" * 32, 7, rows="3" * 64)
PLAN = Plan("test", OWNER, Budget(2, 0), (Charge("sums", Declared(PureEvent(1.0)), "to test"),))


def test_a_value_is_private_if_its_noise_is_the_systems_and_its_charge_is_booked() -> None:
    assert SEAL.private
    assert replace(SEAL, rows="").private


@pytest.mark.parametrize("noise", ["seeded", "none"])
def test_a_value_of_insecure_noise_is_never_private_whatever_was_charged(noise: NoiseOrigin) -> None:
    assert not replace(SEAL, noise=noise).private


@pytest.mark.parametrize("change", [{"ledger_id": ""}, {"charge_number": 0}, {"charge_number": -1}], ids=str)
def test_a_value_that_no_ledger_has_booked_is_not_private(change: dict[str, object]) -> None:
    assert not replace(SEAL, **change).private  # type: ignore[arg-type]


@pytest.mark.parametrize("event", [GaussianEvent(0.1), PureEvent(1 / 3), MixtureEvent(2.5, (((0.5, 3), (0.25, 1)),))])
@pytest.mark.parametrize("unit", [Unit(), OWNER, Unit("secret", 5, recognised_by="detector email")])
def test_a_seal_survives_json_exactly(event: Event, unit: Unit) -> None:
    seal = replace(SEAL, event=event, unit=unit, noise="seeded")
    assert Seal.from_json(json.loads(json.dumps(seal.to_json()))) == seal
    assert set(seal.to_json()) == {field.name for field in fields(Seal)}


def test_neither_the_rows_that_were_read_nor_the_values_are_shown() -> None:
    value = SealedValue({"value": np.array([123456.0])}, SEAL)
    assert "3" * 64 not in repr(SEAL)
    assert repr(value) == "<SealedValue sums: Gaussian noise, noise multiplier 1.66667, system noise>"
    assert "123456" not in repr(value)
    assert value.value.tolist() == [123456.0]


def test_a_part_is_paid_for_by_what_stands_before_its_first_slash() -> None:
    assert [charge_of(name) for name in ("tokens", "tokens/0/3", "/tokens", "")] == ["tokens", "tokens", "", ""]


# -- the seals of a receipt -------------------------------------------------------------------------------------------


def test_a_receipt_seals_values_and_parts_with_what_was_booked() -> None:
    receipt = Receipt("run", PLAN, ledger_id="ledger", charge_number=4)
    for name in ("sums", "sums/0/17"):
        seal = receipt.seal(name, noise="system", rows="rows")
        assert seal == Seal(name, PureEvent(1.0), OWNER, "system", "run", "ledger", 4, "rows")
        assert seal.private
        assert not receipt.seal(name, noise="none", rows="rows").private


def test_a_receipt_without_a_ledger_seals_nothing_private() -> None:
    assert not Receipt("run", PLAN).seal("sums", noise="system", rows="").private


def test_a_receipt_seals_only_what_a_charge_pays_for() -> None:
    for name in ("other", "other/sums", "/sums", "sum", "Sums"):
        with pytest.raises(PrivacyError, match="No charge of the plan pays for"):
            Receipt("run", PLAN).seal(name, noise="system", rows="")


def test_sealing_uses_no_charge_up_and_a_used_one_still_seals_its_parts() -> None:
    receipt = Receipt("run", PLAN)
    receipt.seal("sums/0", noise="none", rows="")
    receipt.pay("sums")
    assert receipt.seal("sums/1", noise="none", rows="").name == "sums/1"
