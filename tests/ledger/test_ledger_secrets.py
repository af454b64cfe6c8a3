"""Datasets that protect secrets: caps, charges and what is left, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ledger_plans import CAP, RECORD, SECRET, SECRET_CAP, pure_plan, secret_plan

from understudy.base.errors import BudgetExceeded, ConfigError, LedgerError
from understudy.ledger import Ledger
from understudy.privacy.events import event_from_json
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.unit import Unit


def test_a_cap_and_a_charge_for_secrets_are_kept_exactly(location: str) -> None:
    plan = secret_plan()
    with Ledger.create(location) as ledger:
        opened = ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET)
        assert ledger.remaining("clinic") == SECRET_CAP
        ledger.charge("clinic", plan, run_id="r1", note="first try").pay("sums")
    with Ledger(location) as ledger:
        assert ledger.dataset("clinic") == opened
        assert (opened.cap, opened.unit, opened.rule) == (SECRET_CAP, SECRET, "rdp")
        (entry,) = ledger.history("clinic")
        assert (entry.cost, entry.cap, entry.unit, entry.note) == (SECRET_CAP, None, SECRET, "first try")
        assert event_from_json(entry.charges[0]["event"]) == plan.charges[0].event
        assert json.loads(json.dumps(entry.to_json()))["cost"] == {"prior": "1/10000", "posterior": "1/1000"}


def test_the_first_run_may_spend_the_cap_to_the_last(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET)
    ledger.charge("clinic", secret_plan(), run_id="r1")
    spent = ledger.spent("clinic")
    assert isinstance(spent, SecretBudget)
    assert spent.prior == SECRET_CAP.prior
    assert 0.9e-3 < spent.posterior <= SECRET_CAP.posterior
    assert ledger.remaining("clinic") is None


def test_runs_are_composed_until_the_next_would_exceed_the_cap(ledger: Ledger) -> None:
    """Ten of mu = 0.058 are one of 0.058 sqrt(10); their posteriors add up to more than the cap, and mean nothing."""
    ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET)
    plan, posteriors = secret_plan(posterior="1.25e-4"), []
    for number in range(10):
        ledger.charge("clinic", plan, run_id=f"r{number}")
        spent = ledger.spent("clinic")
        assert isinstance(spent, SecretBudget)
        posteriors.append(spent.posterior)
    assert posteriors == sorted(posteriors)
    assert posteriors[-1] <= SECRET_CAP.posterior
    with pytest.raises(BudgetExceeded):
        ledger.check("clinic", secret_plan())


def test_overspending_says_what_is_asked_capped_and_spent_and_the_cures(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.charge("clinic", secret_plan(posterior="1e-2"), run_id="r1")
    for part in (
        "asks for (p=0.0001, r=0.01)",
        "cap of dataset 'clinic' is (p=0.0001, r=0.001)",
        "with this run, the ledger's bound for all of them comes to",
        "understudy ledger open clinic --secret-prior P --secret-posterior R --raise",
    ):
        assert part in str(caught.value)
    ledger.charge("clinic", secret_plan(), run_id="r2")
    with pytest.raises(
        BudgetExceeded, match=r"comes to \(p=0.0001, r=0.003267\) \(the runs so far to \(p=0.0001, r=0.001\)\)"
    ):
        ledger.charge("clinic", secret_plan(), run_id="r3")
    assert len(ledger.history("clinic")) == 1


def test_a_run_at_another_prior_counts_by_its_noise(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET)
    with pytest.raises(BudgetExceeded):
        ledger.check("clinic", secret_plan("1e-2", "0.2"))  # mu is greater than the cap's
    ledger.charge("clinic", secret_plan("1e-2", "0.04"), run_id="r1")  # and here less


def test_secrets_are_never_charged_with_records_or_owners(ledger: Ledger) -> None:
    ledger.open_dataset("secrets", cap=SECRET_CAP, unit=SECRET)
    ledger.open_dataset("records", cap=CAP, unit=RECORD)
    ledger.open_dataset("owners", cap=CAP, unit=Unit("owner", 5))
    with pytest.raises(LedgerError, match=r"protects one secret .*, this run one record.*cannot be added"):
        ledger.charge("secrets", pure_plan("0.1"), run_id="r1")
    for name in ("records", "owners"):
        with pytest.raises(LedgerError, match=r"this run one secret .*cannot be added"):
            ledger.charge(name, secret_plan(), run_id="r1")
    ledger.check("secrets", secret_plan(unit=replace(SECRET, max_records=9)))  # another bound is the run's own choice


def test_runs_that_recognise_other_secrets_are_not_added(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET)
    for told in ("detector phone", "column who; detector email", None):
        with pytest.raises(LedgerError, match=r"recognised by detector email.*cannot be added"):
            ledger.check("clinic", secret_plan(unit=replace(SECRET, recognised_by=told)))


def test_a_cap_of_one_kind_opens_no_dataset_of_another(ledger: Ledger) -> None:
    for cap, unit in ((SECRET_CAP, RECORD), (SECRET_CAP, Unit("owner", 5)), (CAP, SECRET)):
        with pytest.raises(ConfigError, match=r"no budget for one.*secret_prior"):
            ledger.open_dataset("clinic", cap=cap, unit=unit)
    with pytest.raises(ConfigError, match=r"do not add up over runs.*rdp"):
        ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET, rule="basic")
    assert ledger.datasets() == []
    assert ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET, rule="rdp").rule == "rdp"
    assert ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET).rule == "rdp"
    with pytest.raises(LedgerError, match=r"already open with cap \(p=.*--secret-prior P --secret-posterior R --raise"):
        ledger.open_dataset("clinic", cap=SecretBudget("1e-4", "1e-2"), unit=SECRET)


def test_a_raised_cap_for_secrets_is_recorded_and_lets_more_in(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET)
    ledger.charge("clinic", secret_plan(), run_id="r1")
    higher = SecretBudget("1e-4", "1e-1")
    assert ledger.raise_cap("clinic", cap=higher, note="agreed").cap == higher
    ledger.raise_cap("clinic", cap=higher)  # changes nothing
    ledger.charge("clinic", secret_plan(), run_id="r2")
    runs = ledger.history("clinic")
    assert [(entry.run_id, entry.cap) for entry in runs] == [("r1", None), (None, higher), ("r2", None)]


def test_a_cap_for_secrets_is_never_lowered_nor_moved_to_another_prior(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET)
    with pytest.raises(LedgerError, match="only be raised: give at least its posterior"):
        ledger.raise_cap("clinic", cap=SecretBudget("1e-4", "9e-4"))
    with pytest.raises(LedgerError, match=r"another prior.*neither is the higher.*Keep the prior"):
        ledger.raise_cap("clinic", cap=SecretBudget("1e-5", "1e-2"))
    with pytest.raises(LedgerError, match=r"another kind.*--secret-prior P --secret-posterior R --raise"):
        ledger.raise_cap("clinic", cap=Budget(100, "1e-6"))
    ledger.open_dataset("records", cap=CAP, unit=RECORD)
    with pytest.raises(LedgerError, match=r"another kind.*--epsilon E --delta D --raise"):
        ledger.raise_cap("records", cap=SECRET_CAP)
    assert ledger.history("clinic") == ledger.history("records") == []
