"""What the ledger books and refuses, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from ledger_plans import CAP, RECORD, SECRET, SECRET_CAP, gaussian_plan, pure_plan, seal_of, secret_plan

from understudy.base.errors import BudgetExceeded, ConfigError, LedgerError, PrivacyError
from understudy.ledger import Ledger, rows
from understudy.ledger.values import Sketch
from understudy.privacy.events import PureEvent, event_from_json
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.unit import Unit


def test_a_charge_is_booked_with_its_exact_cost_and_its_events(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    plan = pure_plan("0.1", "1e-7")
    ledger.charge("clinic", plan, run_id="r1", note="first try")
    (entry,) = ledger.history("clinic")
    assert entry.cost == Budget(Fraction(1, 10), Fraction(1, 10**7))
    assert entry.charges == tuple(charge.to_json() for charge in plan.charges)
    assert (entry.run_id, entry.method, entry.unit, entry.note) == ("r1", "test", RECORD, "first try")
    assert ledger.spent("clinic") == entry.cost
    assert ledger.remaining("clinic") == Budget("0.9", "9e-7")


def test_a_receipt_pays_for_each_release_once(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    plan = pure_plan("0.1")
    receipt = ledger.charge("clinic", plan, run_id="r1")
    assert receipt.pay("sums") == plan.charges[0].mechanism
    with pytest.raises(PrivacyError, match="no unused charge"):
        receipt.pay("sums")


def test_ten_times_a_tenth_fits_into_one_exactly(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=Budget(1, 0), unit=RECORD)
    for number in range(10):
        ledger.charge("clinic", pure_plan(0.1), run_id=f"r{number}")
    assert ledger.remaining("clinic") is None
    with pytest.raises(BudgetExceeded):
        ledger.charge("clinic", pure_plan("1e-9"), run_id="one too many")
    assert len(ledger.history("clinic")) == 10


def test_overspending_says_what_is_asked_spent_and_left_and_the_cures(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    ledger.charge("clinic", pure_plan("0.7", "1e-6"), run_id="r1")
    with pytest.raises(BudgetExceeded) as caught:
        ledger.check("clinic", pure_plan("0.5"), run_id="r2")
    for part in (
        "asks for (epsilon=0.5, delta=0)",
        "cap of dataset 'clinic' is (epsilon=1, delta=1e-06)",
        "(epsilon=0.7, delta=1e-06) is spent",
        "(epsilon=0.3, delta=0) remains",
        "smaller epsilon",
        'raise the cap with: us.ledger.raise_cap("clinic", epsilon=1.2, delta=1e-06)',
    ):
        assert part in str(caught.value)
    with pytest.raises(BudgetExceeded):
        ledger.check("clinic", pure_plan("0.1", "1e-9"))  # the delta alone is too much


def test_a_check_writes_nothing(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    ledger.check("clinic", pure_plan(1), run_id="r1")
    assert ledger.history("clinic") == []
    assert ledger.spent("clinic") is None
    assert ledger.remaining("clinic") == CAP


def test_the_same_run_is_booked_once_and_counts_as_paid(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    plan = pure_plan(1)
    ledger.charge("clinic", plan, run_id="r1")
    ledger.check("clinic", plan, run_id="r1")
    again = ledger.charge("clinic", plan, run_id="r1")
    again.pay("sums")
    ledger.charge("clinic", pure_plan(1, why="the same, in other words"), run_id="r1")
    assert len(ledger.history("clinic")) == 1


def test_a_run_is_made_durable_before_its_charge_is_booked_or_nothing_is(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    begun = []
    ledger.charge("clinic", pure_plan("0.5"), run_id="r1", begin=lambda: begun.append("r1"))
    with pytest.raises(BudgetExceeded):
        ledger.charge("clinic", pure_plan("0.6"), run_id="r2", begin=lambda: begun.append("r2"))

    def full() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        ledger.charge("clinic", pure_plan("0.1"), run_id="r3", begin=full)
    assert begun == [entry.run_id for entry in ledger.history("clinic")] == ["r1"]


def test_the_same_run_with_other_charges_is_refused(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    ledger.open_dataset("other", cap=CAP, unit=RECORD)
    ledger.charge("clinic", pure_plan("0.5"), run_id="r1")
    same = pure_plan("0.5")
    other_noise = replace(same, charges=pure_plan("0.4").charges)
    promised_more, other_method = replace(same, budget=Budget("0.6", 0)), replace(same, method="other")
    for method in (ledger.check, ledger.charge):
        for other in (promised_more, other_method):
            with pytest.raises(LedgerError, match=r"charged before.*fresh"):
                method("clinic", other, run_id="r1")
        with pytest.raises(LedgerError, match=r"charged before.*fresh"):
            method("clinic", pure_plan("0.4"), run_id="r1")
        with pytest.raises(LedgerError, match=r"charged before.*fresh"):
            method("clinic", other_noise, run_id="r1")
        with pytest.raises(LedgerError, match=r"'clinic' before.*'other'.*dataset clinic.*fresh"):
            method("other", pure_plan("0.5"), run_id="r1")
    assert ledger.spent("other") is None


def test_another_unit_is_refused_and_another_bound_of_the_same_unit_is_not(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=Unit("owner", 3))
    with pytest.raises(
        LedgerError, match=r"protects one owner, but this run one record.*Protect one owner.*open another:"
    ):
        ledger.charge("clinic", pure_plan("0.1"), run_id="r1")
    ledger.charge("clinic", pure_plan("0.1", unit=Unit("owner", 5)), run_id="r2")
    (entry,) = ledger.history("clinic")
    assert entry.unit == Unit("owner", 5)
    with pytest.raises(LedgerError) as refused:
        ledger.charge("clinic", pure_plan("0.1"), run_id="r3")
    assert "open another" not in refused.value.cure  # another name would be a second budget for the same data


def test_owners_by_another_column_are_another_unit(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=Unit("owner", 3, "clinician"))
    for other in (Unit("owner", 3, "patient"), Unit("owner", 3)):
        with pytest.raises(
            LedgerError, match=r"one owner \(column 'clinician'\), but this run one owner.*Run with owner clinician"
        ):
            ledger.charge("clinic", pure_plan("0.1", unit=other), run_id="r1")
        with pytest.raises(LedgerError, match=r"already open with cap .* unit owner \(column 'clinician'\)"):
            ledger.open_dataset("clinic", cap=CAP, unit=other)
    ledger.charge("clinic", pure_plan("0.1", unit=Unit("owner", 5, "clinician")), run_id="r2")
    (entry,) = ledger.history("clinic")
    assert entry.unit == Unit("owner", 5, "clinician")


def test_a_dataset_that_is_not_open_is_an_error_that_says_how_to_open_it(ledger: Ledger) -> None:
    assert ledger.dataset("clinic") is None
    ledger.check("clinic", pure_plan(1))  # a run may open it
    for call in (
        lambda: ledger.charge("clinic", pure_plan(1), run_id="r1"),
        lambda: ledger.identify("clinic", "f"),
        lambda: ledger.history("clinic"),
        lambda: ledger.spent("clinic"),
        lambda: ledger.remaining("clinic"),
        lambda: ledger.raise_cap("clinic", cap=CAP),
    ):
        with pytest.raises(LedgerError, match=r'us\.ledger\.open\("clinic"'):
            call()


def test_opening_again_with_the_same_values_changes_nothing(location: str) -> None:
    with Ledger.create(location) as ledger:
        first = ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
        key = ledger.fingerprint_key
    with Ledger(location) as ledger:
        assert ledger.open_dataset("clinic", cap=CAP, unit=RECORD) == first == ledger.dataset("clinic")
        assert ledger.fingerprint_key == key
        assert ledger.datasets() == [first]
    assert len(first.hash_key) == len(key) == 32
    assert str(first.hash_key) not in repr(first)


@pytest.mark.parametrize(
    ("cap", "unit", "rule"), [(Budget(2, "1e-6"), RECORD, "basic"), (CAP, Unit("owner"), "basic"), (CAP, RECORD, "rdp")]
)
def test_opening_again_with_other_values_is_an_error(ledger: Ledger, cap: Budget, unit: Unit, rule: str) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    with pytest.raises(LedgerError, match=r"already open with cap.*raise_cap.*epsilon=E, delta=D"):
        ledger.open_dataset("clinic", cap=cap, unit=unit, rule=rule)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65, "é", "x\n"])
def test_an_impossible_name_is_refused(ledger: Ledger, name: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        ledger.open_dataset(name, cap=CAP, unit=RECORD)
    with pytest.raises(ConfigError):
        ledger.check(name, pure_plan(1))


def test_impossible_rules_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match="basic or rdp"):
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD, rule="pld")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="delta greater than 0"):
        ledger.open_dataset("clinic", cap=Budget(1, 0), unit=RECORD, rule="rdp")


def test_a_raised_cap_is_recorded_and_lets_more_in(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    ledger.charge("clinic", pure_plan(1), run_id="r1")
    raised = ledger.raise_cap("clinic", cap=Budget(2, "1e-6"), note="agreed by the board")
    assert raised.cap == Budget(2, "1e-6")
    ledger.raise_cap("clinic", cap=Budget(2, "1e-6"))  # changes nothing
    ledger.charge("clinic", pure_plan(1), run_id="r2")
    runs = ledger.history("clinic")
    assert [entry.run_id for entry in runs] == ["r1", None, "r2"]
    assert (runs[1].cap, runs[1].cost, runs[1].note) == (Budget(2, "1e-6"), None, "agreed by the board")
    assert ledger.spent("clinic") == Budget(2, 0)


def test_a_cap_is_never_lowered(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    for lower in (Budget("0.9", "1e-6"), Budget(2, "1e-7")):
        with pytest.raises(LedgerError, match="only be raised"):
            ledger.raise_cap("clinic", cap=lower)
    assert ledger.history("clinic") == []


def test_rule_rdp_composes_events_and_admits_more_runs_than_the_sum(ledger: Ledger) -> None:
    cap = Budget(3, "1e-6")
    plan = gaussian_plan("0.5")
    admitted = {}
    for rule in ("basic", "rdp"):
        ledger.open_dataset(rule, cap=cap, unit=RECORD, rule=rule)
        admitted[rule] = 0
        while admitted[rule] < 30:
            try:
                ledger.charge(rule, plan, run_id=f"{rule}-{admitted[rule]}")
            except BudgetExceeded:
                break
            admitted[rule] += 1
    assert admitted["basic"] == 1  # each states delta 1e-6, and the cap has one
    assert 20 <= admitted["rdp"] < 30
    spent, left = ledger.spent("rdp"), ledger.remaining("rdp")
    assert spent is not None
    assert left is not None
    assert spent.epsilon + left.epsilon == 3
    assert spent.delta == left.delta == cap.delta


def test_a_renamed_copy_is_noticed_and_grown_data_are_added(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    ledger.open_dataset("copy", cap=CAP, unit=RECORD)
    ledger.identify("clinic", "aa")
    ledger.identify("clinic", "aa")
    ledger.identify("clinic", "bb")
    assert [ledger.known_as(content) for content in ("aa", "bb", "cc")] == ["clinic", "clinic", None]
    for content in ("aa", "bb"):
        with pytest.raises(LedgerError, match=r"as the dataset 'clinic'. Use dataset clinic"):
            ledger.identify("copy", content)
    ledger.identify("copy", "cc")
    assert ledger.known_as("cc") == "copy"


def test_a_value_is_confirmed_once_and_another_of_the_same_charge_is_refused(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    plan = pure_plan("0.1")
    ledger.charge("clinic", plan, run_id="r1")
    ledger.charge("clinic", plan, run_id="r1", kept={"sums": "not used yet"})
    seal = seal_of(ledger, "r1")
    for _ in range(2):
        ledger.confirm(seal, "aa")
    for call in (
        lambda: ledger.confirm(seal, "bb"),
        lambda: ledger.charge("clinic", plan, run_id="r1"),
        lambda: ledger.charge("clinic", plan, run_id="r1", kept={"sums": "bb"}),
    ):
        with pytest.raises(LedgerError, match=r"Another copy of this output folder.*fresh"):
            call()
    ledger.charge("clinic", plan, run_id="r1", kept={"sums": "aa", "later": "cc"})
    ledger.charge("clinic", plan, run_id="r2", kept={})
    ledger.confirm(seal_of(ledger, "r2"), "bb")


def test_the_receipt_of_a_charge_seals_private_values_of_its_entry(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    plan = pure_plan("0.1")
    first, second = (ledger.charge("clinic", plan, run_id=run_id) for run_id in ("r1", "r2"))
    again = ledger.charge("clinic", plan, run_id="r1")
    seals = [each.seal("sums", noise="system", rows="rows") for each in (first, second, again)]
    assert all(seal.private for seal in seals)
    assert [(seal.run_id, seal.ledger_id) for seal in seals[:2]] == [("r1", ledger.id), ("r2", ledger.id)]
    assert seals[0] == seals[2]
    assert seals[0].charge_number != seals[1].charge_number
    for seal in seals:
        ledger.confirm(seal, f"digest of {seal.run_id}")


FORGED: dict[str, dict[str, object]] = {
    "seeded": {"noise": "seeded"},
    "without noise": {"noise": "none"},
    "of no ledger": {"ledger_id": ""},
    "of another ledger": {"ledger_id": "f" * 32},
    "of no charge": {"charge_number": 0},
    "of the entry of another run": {"charge_number": 2},
    "of an entry that is not there": {"charge_number": 99},
    "of another run": {"run_id": "r2"},
    "of a run that was never charged": {"run_id": "r3"},
    "of another charge": {"name": "other"},
    "of a part of another charge": {"name": "other/sums"},
    "of another event": {"event": PureEvent(0.01)},
    "of another kind of unit": {"unit": Unit("owner", 3, "patient")},
}


def test_a_seal_that_is_not_that_of_a_booked_charge_is_not_confirmed(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    for run_id in ("r1", "r2"):
        ledger.charge("clinic", pure_plan("0.1"), run_id=run_id)
    seal = replace(seal_of(ledger, "r1"), charge_number=1)
    assert seal == seal_of(ledger, "r1")
    for change in FORGED.values():
        with pytest.raises(PrivacyError, match="no charge for the noisy value"):
            ledger.confirm(replace(seal, **change), "aa")  # type: ignore[arg-type]
    with ledger._database.read() as connection:
        assert not any(rows.drawn(connection, run_id) for run_id in ("r1", "r2", "r3"))
    ledger.confirm(seal, "aa")


def test_a_contribution_bound_other_than_the_charged_one_is_not_confirmed(ledger: Ledger) -> None:
    owner = Unit("owner", 3, "patient")
    ledger.open_dataset("clinic", cap=CAP, unit=owner)
    ledger.charge("clinic", pure_plan("0.1", unit=owner), run_id="r1")
    seal = seal_of(ledger, "r1")
    with pytest.raises(PrivacyError, match="no charge for the noisy value"):
        ledger.confirm(replace(seal, unit=Unit("owner", 4, "patient")), "aa")
    ledger.confirm(seal, "aa")


# -- datasets that protect secrets: caps, charges and what is left, on SQLite and on PostgreSQL -----------------------


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
        'raise the cap to that bound with: us.ledger.raise_cap("clinic", secret_prior=0.0001, secret_posterior=0.01)',
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
    with pytest.raises(LedgerError, match=r"protects one secret .*, but this run one record.*cannot be added"):
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
        with pytest.raises(ConfigError, match=r"not a budget for one.*secret_prior"):
            ledger.open_dataset("clinic", cap=cap, unit=unit)
    with pytest.raises(ConfigError, match=r"do not add up over runs.*rdp"):
        ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET, rule="basic")
    assert ledger.datasets() == []
    assert ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET, rule="rdp").rule == "rdp"
    assert ledger.open_dataset("clinic", cap=SECRET_CAP, unit=SECRET).rule == "rdp"
    with pytest.raises(LedgerError, match=r"open with cap \(p=.*raise_cap.*secret_prior=0.0001, secret_posterior=R"):
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
    with pytest.raises(LedgerError, match=r"different prior.*neither is higher.*Keep the prior"):
        ledger.raise_cap("clinic", cap=SecretBudget("1e-5", "1e-2"))
    with pytest.raises(LedgerError, match=r"not of the kind.*raise_cap.*secret_prior=0.0001, secret_posterior=R"):
        ledger.raise_cap("clinic", cap=Budget(100, "1e-6"))
    ledger.open_dataset("records", cap=CAP, unit=RECORD)
    with pytest.raises(LedgerError, match=r"not of the kind.*raise_cap.*epsilon=E, delta=D"):
        ledger.raise_cap("records", cap=SECRET_CAP)
    assert ledger.history("clinic") == ledger.history("records") == []


def test_a_table_that_grew_fourfold_is_known_from_before() -> None:
    before, grown = Sketch(tuple(range(1, 101))), Sketch(tuple(range(1, 401)))
    assert before.is_near(grown)
    assert grown.is_near(before)
    assert not before.is_near(Sketch(tuple(range(60, 460))))
