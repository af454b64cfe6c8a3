"""The statement: nothing rounded down, nothing promised where nothing holds, the same after a round trip."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import Composition, gaussian_split, pure_split
from understudy.privacy.events import Event, GaussianEvent, MixtureEvent, PureEvent, SubsampledGaussianEvent
from understudy.privacy.exact import round_up
from understudy.privacy.facts import Facts
from understudy.privacy.guarantee import GDP, Budget, SecretBudget, normal_quantile, phi_bar
from understudy.privacy.mechanisms import Declared, NoisySum, SampledSum, Sensitivity
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sealed import NoiseOrigin, Seal
from understudy.privacy.unit import Unit
from understudy.release import statement as statements
from understudy.run.forecast import Forecast
from understudy.run.settings import RunConfig, run_config

PUBLIC = {"vocabulary": {"source": "built-in", "sha256": "ab" * 32}, "prompt": {"source": "general"}}


def statement(*events: Event, budget: Budget, private: bool = True, **options: Any) -> statements.Statement:
    charges = tuple(Charge(f"release {number}", Declared(event), "noisy counts") for number, event in enumerate(events))
    made = statements.Statement.of(
        Plan("dp-kps", options.pop("unit", Unit()), budget, charges),
        public_inputs=PUBLIC,
        labels_declared=options.pop("labels_declared", True),
        dataset="clinic",
        **options,
    )
    return made.with_seals(seals(made, noise="system" if private else "none"))


def seals(made: statements.Statement, *, noise: NoiseOrigin = "system") -> list[Seal]:
    """Of one value per charge, as a run's store has them."""
    return [
        Seal(charge.name, charge.event, made.unit, noise, "0" * 32, "1" * 32, 1, rows="2" * 64)
        for charge in made.charges
    ]


def gaussian(epsilon: float = 6, delta: str = "1e-6", **options: Any) -> statements.Statement:
    budget = Budget(epsilon, delta)
    return statement(*map(GaussianEvent, gaussian_split(budget, [1, 4])), budget=budget, **options)


def laplace(epsilon: float = 3, **options: Any) -> statements.Statement:
    budget = Budget(epsilon, 0)
    return statement(*map(PureEvent, pure_split(budget, [1, 4])), budget=budget, **options)


@pytest.mark.parametrize(
    "made",
    [
        gaussian(),
        laplace(),
        gaussian(private=False),
        gaussian(unit=Unit("owner", 5), labels_declared=False, notes=("One.", "Two.")),
    ],
)
def test_a_statement_survives_json(made: statements.Statement) -> None:
    again = statements.Statement.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert again.to_json() == made.to_json()
    assert again.to_markdown() == made.to_markdown()


def test_epsilon_is_stated_at_the_booked_delta_and_at_several_others() -> None:
    made = gaussian(6, "3e-7")
    assert sorted(made.epsilon_at) == sorted([*statements.DELTAS, 3e-7])
    assert made.epsilon_at[3e-7] <= 6
    assert made.epsilon_at[3e-7] == pytest.approx(6, rel=1e-6)
    mu = math.sqrt(sum(2 * charge.event.rho for charge in made.charges))
    for delta, epsilon in made.epsilon_at.items():
        assert epsilon == pytest.approx(GDP(mu).epsilon(delta), rel=1e-6)
        assert epsilon >= GDP(mu).epsilon(delta)
        assert f"| {delta:g} | {round_up(epsilon)} |" in made.to_markdown()
    assert list(made.epsilon_at.values()) == sorted(made.epsilon_at.values())


def test_a_pure_statement_has_one_epsilon_at_every_delta_0_included() -> None:
    made = laplace(3)
    pure = Composition(tuple(charge.event for charge in made.charges)).pure_epsilon
    assert made.epsilon_at[0.0] == pure <= 3
    assert max(made.epsilon_at.values()) <= pure
    assert "(3, 0)-differential privacy" in made.to_markdown()
    assert ", plus" not in made.to_markdown()


@given(st.floats(1e-9, 1e12))
def test_a_rounded_epsilon_is_never_less_than_the_value(epsilon: float) -> None:
    assert epsilon <= float(round_up(epsilon)) <= epsilon * 1.0011


@pytest.mark.parametrize(
    ("epsilon", "text"), [(0, "0"), (0.1, "0.1"), (6, "6"), (5.99991, "6"), (1.00001, "1.001"), (12345.6, "12350")]
)
def test_a_rounded_epsilon_has_four_digits(epsilon: float, text: str) -> None:
    assert round_up(epsilon) == text


@pytest.mark.parametrize(("epsilon", "odds"), [(1, "2.719"), (6, "403.5"), (100, "2.689e+43"), (800, "e^800")])
def test_the_promise_names_the_odds_and_never_understates_them(epsilon: float, odds: str) -> None:
    made = laplace(epsilon)
    assert f"is at most {odds} times the probability without it, and the reverse. This is (" in (made.to_markdown())


def test_a_run_without_noise_is_stamped_and_promises_nothing() -> None:
    made = gaussian(private=False)
    text = made.to_markdown()
    assert f"**{statements.NOT_PRIVATE}.**" in text
    assert text.index(statements.NOT_PRIVATE) < text.index("epsilon")
    for promise in ("It protects", "times the probability without it", "-differential privacy", "Booked in the ledger"):
        assert promise in gaussian().to_markdown()
        assert promise not in text
    assert made.to_json()["stamp"] == statements.NOT_PRIVATE
    assert made.to_json()["private"] is False
    assert gaussian().to_json()["stamp"] == ""
    assert statements.NOT_PRIVATE not in gaussian().to_markdown()


def test_the_statement_for_people_says_what_was_protected_released_public_and_not_covered() -> None:
    text = gaussian(unit=Unit("owner", 5), notes=("A remark.",)).to_markdown()
    assert "each owner as a whole: all records together, of which at most 5 are used" in text
    assert "**release 0**: noisy counts (Gaussian noise, noise multiplier" in text
    assert "dataset `clinic`: (epsilon=6, delta=1e-06)" in text
    assert f"- vocabulary: built-in (SHA-256 `{'ab' * 32}`)" in text
    assert "- prompt: general\n" in text
    assert "- label set: declared\n" in text
    assert "- A remark." in text
    for item in statements.EpsilonPromise.not_covered:
        assert item in text


def test_a_label_set_read_from_the_data_is_said_to_be_unprotected() -> None:
    made = gaussian(labels_declared=False)
    assert "read from the data: not protected" in made.to_markdown()
    assert made.to_json()["label_set"] == "read from the data, not protected"


def test_the_statement_for_machines_is_plain_json_without_infinities() -> None:
    for made in (gaussian(), laplace(), gaussian(0.01, "1e-12")):
        json.dumps(made.to_json(), allow_nan=False)


# -- a promise is a property of the values ----------------------------------------------------------------------------


def test_a_statement_without_values_promises_nothing() -> None:
    made = replace(gaussian(), sealed=None)
    assert not made.private
    assert statements.NOT_PRIVATE in made.to_markdown()
    assert statements.Statement.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_the_seals_of_all_values_make_a_statement_private_and_only_what_may_be_shown_is_in_it() -> None:
    made = gaussian()
    assert made.private
    assert made.sealed == statements.Sealed("system", "0" * 32, "1" * 32, 1)
    assert "2" * 64 not in json.dumps(made.to_json())  # the keyed hash of the rows stays in private/


@pytest.mark.parametrize("noise", ["seeded", "none"])
def test_values_of_insecure_noise_make_no_statement_private(noise: NoiseOrigin) -> None:
    made = gaussian()
    assert not made.with_seals(seals(made, noise=noise)).private


@pytest.mark.parametrize(("change", "value"), [("ledger_id", ""), ("charge_number", 0)])
def test_values_that_no_ledger_booked_make_no_statement_private(change: str, value: object) -> None:
    made = gaussian()
    assert not made.with_seals([replace(seal, **{change: value}) for seal in seals(made)]).private  # type: ignore[arg-type]


ALTERED: dict[str, Callable[[list[Seal]], list[Seal]]] = {
    "no value": lambda seals: [],
    "a charge without a value": lambda seals: seals[:1],
    "a value of no charge": lambda seals: [*seals, replace(seals[0], name="other")],
    "one of another run": lambda seals: [seals[0], replace(seals[1], run_id="9" * 32)],
    "one of another ledger": lambda seals: [seals[0], replace(seals[1], ledger_id="9" * 32)],
    "one of another charge": lambda seals: [seals[0], replace(seals[1], charge_number=2)],
    "one without noise": lambda seals: [seals[0], replace(seals[1], noise="none")],
    "one of another event": lambda seals: [seals[0], replace(seals[1], event=GaussianEvent(100.0))],
    "one of another unit": lambda seals: [seals[0], replace(seals[1], unit=Unit("owner", 3))],
}


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_values_that_are_not_those_of_the_charges_make_no_statement(alter: Callable[[list[Seal]], list[Seal]]) -> None:
    made = gaussian()
    with pytest.raises(PrivacyError, match="do not match the charges of the plan"):
        made.with_seals(alter(seals(made)))


def test_parts_of_a_charge_are_its_values() -> None:
    made = gaussian()
    first, second = seals(made)
    parts = [first, *(replace(second, name=f"{second.name}/{number}") for number in range(3))]
    assert made.with_seals(parts) == made


@pytest.mark.parametrize(
    "lie",
    [
        {"private": True, "sealed": None},
        {"private": False},
        {"sealed": {"noise": "none", "run_id": "0" * 32, "ledger_id": "1" * 32, "charge_number": 1}},
        {"sealed": {"noise": "system", "run_id": "0" * 32, "ledger_id": "", "charge_number": 1}},
        {"sealed": {"noise": "system", "run_id": "0" * 32, "ledger_id": "1" * 32, "charge_number": 0}},
        {"sealed": {"noise": "system", "run_id": "0" * 32, "ledger_id": "1" * 32, "charge_number": -1}},
        {"sealed": {"noise": "system", "run_id": "0" * 32, "ledger_id": "1" * 32, "charge_number": 1, "x": 1}},
        {"sealed": {"noise": "dice", "run_id": "0" * 32, "ledger_id": "1" * 32, "charge_number": 1}},
        {"sealed": {"noise": "system", "run_id": "0" * 32, "ledger_id": "<b>", "charge_number": 1}},
    ],
    ids=str,
)
def test_a_statement_that_is_private_where_its_seal_is_not_is_refused(tmp_path: Path, lie: dict[str, Any]) -> None:
    fields = gaussian().to_json()
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(fields), "utf-8")
    assert statements.load_statement(path) == gaussian()
    path.write_text(json.dumps({**fields, **lie}), "utf-8")
    with pytest.raises(ConfigError, match="not a privacy statement"):
        statements.load_statement(path)


@pytest.mark.parametrize(
    "unit",
    [None, "record", [], ["kind", "max_records"], {"kind": "record"}, {"kind": "record", "max_records": 1, "x": 1}],
)
def test_a_unit_is_read_with_its_kind_and_bound_and_no_other_field(unit: Any) -> None:
    with pytest.raises(ValueError, match="no kind or no bound"):
        Unit.from_json(unit)
    with pytest.raises(ValueError, match="no kind or no bound"):
        statements.Statement.from_json({**gaussian().to_json(), "unit": unit})


def test_a_public_input_has_a_source_and_may_say_more() -> None:
    fields = gaussian().to_json()
    entry = {"source": "", "sha256": None, "pages": 7}
    assert statements.Statement.from_json({**fields, "public_inputs": {"a": entry}}).public_inputs == {"a": entry}
    for wrong in ({}, {"source": None}, {"source": 1}, {"source": "a", "sha256": 1}):
        with pytest.raises(ValueError, match="no source"):
            statements.Statement.from_json({**fields, "public_inputs": {"a": wrong}})


def test_a_charge_whose_event_is_not_that_of_its_mechanism_is_no_statement() -> None:
    made = gaussian()
    charge = Charge("sums", NoisySum("gaussian", 50.0, Sensitivity.of_counts(3), (3,)), "noisy counts")
    fields = replace(made, charges=(charge,)).to_json()
    statements.Statement.from_json(fields)
    for mechanism in (
        {**fields["charges"][0]["mechanism"], "noise_multiplier": 60.0},
        {**fields["charges"][0]["mechanism"], "noise": "laplace"},
        {**fields["charges"][0]["mechanism"], "shape": [True]},
        {"kind": "noisy-sum"},
        {"kind": "other"},
        {},
    ):
        with pytest.raises(ValueError, match="charges"):
            statements.Statement.from_json({**fields, "charges": [{**fields["charges"][0], "mechanism": mechanism}]})


@pytest.mark.parametrize("rate", [1.0, 0.5, 1 / 32, 1 / 8192])
@pytest.mark.parametrize("multiplier", [0.25, 1.5, 8.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_what_one_sampled_sum_costs_at_least_is_no_more_than_it_is_accounted_for(
    multiplier: float, rate: float, delta: float
) -> None:
    event = SubsampledGaussianEvent(multiplier, rate, 1)
    epsilon = Composition((event,)).epsilon(delta)
    assert statements.sampled_at(event, epsilon) <= delta
    if rate == 1 or epsilon > 0.5:
        assert statements.sampled_at(event, epsilon / 2) > delta, "half of it is refused"


BUDGET = SecretBudget("1e-4", "1e-3")
ALL_DRAWN = MixtureEvent(5 * 1.5905, (((1.0, 5),),))


def secret_statement(
    event: GaussianEvent | MixtureEvent = ALL_DRAWN,
    *,
    budget: SecretBudget = BUDGET,
    m: int = 5,
    private: bool = True,
    **options: Any,
) -> statements.Statement:
    incidence = "cd" * 32 if options.pop("incidence", "private") == "public" else None
    sensitivity = Sensitivity.of_counts(1)
    mechanism = (
        SampledSum(event.noise_multiplier, event.inclusion, sensitivity, (3,), incidence)
        if isinstance(event, MixtureEvent)
        else NoisySum("gaussian", event.noise_multiplier, sensitivity, (3,))
    )
    made = statements.Statement.of(
        Plan("sec-pe", Unit("secret", m), budget, (Charge("centres", mechanism, "noisy sums"),)),
        public_inputs={"public corpus": {"source": "news.csv", "sha256": "ab" * 32}},
        labels_declared=options.pop("labels_declared", True),
        dataset="clinic",
        **options,
    )
    return replace(made, sealed=statements.Sealed("system" if private else "none", "0" * 32, "1" * 32, 1))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"private": False},
        {"event": MixtureEvent(20, (((1.0, 5),), ((0.25, 3), (0.125, 2)))), "incidence": "public", "notes": ("One.",)},
        {"event": GaussianEvent(1.6), "m": 1, "labels_declared": False},
    ],
)
def test_a_statement_on_secrets_survives_json(options: dict[str, Any]) -> None:
    made = secret_statement(**options)
    fields = json.loads(json.dumps(made.to_json(), allow_nan=False))
    again = statements.Statement.from_json(fields)
    assert again == made
    assert again.to_markdown() == made.to_markdown()
    assert json.loads(json.dumps(again.to_json())) == fields
    assert fields["budget"] == {"prior": "1/10000", "posterior": "1/1000"}
    assert fields["epsilon_at_delta"] == []
    assert fields["neighbours"] == "remove all records that contain one secret"


HALF = MixtureEvent(2.5, (((0.5, 3),),))
SECRET_LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "budget": lambda fields: fields.update(budget={"prior": "1/100", "posterior": "101/10000"}),
    "posterior": lambda fields: fields["posterior_at"][4].update(posterior=0.0101),
    "power": lambda fields: fields.update(power_at_1_percent_false_alarms=0.0101),
    "a little less power": lambda fields: fields.update(
        power_at_1_percent_false_alarms=0.98 * fields["power_at_1_percent_false_alarms"]
    ),
}


@pytest.mark.parametrize("releases", [1, 3, 40])
@pytest.mark.parametrize("event", [GaussianEvent(4.0), HALF, MixtureEvent(9.0, (((1.0, 3),), ((0.25, 3),)))])
@pytest.mark.parametrize("lie", SECRET_LIES.values(), ids=SECRET_LIES)
def test_a_statement_on_secrets_is_not_stronger_than_its_charges(
    event: GaussianEvent | MixtureEvent, releases: int, lie: Callable[[dict[str, Any]], object]
) -> None:
    charges = tuple(Charge(f"sums-{number}", Declared(event), "noisy sums") for number in range(releases))
    plan = Plan("sec-pe", Unit("secret", 3), SecretBudget("1e-2", "0.9999"), charges)
    made = statements.Statement.of(plan, public_inputs={}, labels_declared=True, dataset="clinic")
    fields = made.to_json()
    assert statements.Statement.from_json(fields) == made
    lie(fields)
    with pytest.raises(statements.Overstated, match="compose to more"):
        statements.Statement.from_json(fields)


def test_a_secret_is_in_no_more_records_than_its_charges_allow_for() -> None:
    for m, event in (
        (6, ALL_DRAWN),
        (500, ALL_DRAWN),
        (1, MixtureEvent(9.0, ())),
        (1, MixtureEvent(9.0, (((0.5, 0),),))),
    ):
        with pytest.raises(statements.Overstated, match="more records"):
            statements.Statement.from_json(secret_statement(event, m=m).to_json())
    statements.Statement.from_json(secret_statement(ALL_DRAWN, m=6, incidence="public").to_json())  # fewer are there


def test_the_posterior_is_stated_at_the_booked_prior_and_at_several_others() -> None:
    """All records drawn is mu-GDP: r(p) = Phi(Phi^-1(p) + mu)."""
    made = secret_statement(budget=SecretBudget("3e-4", "3e-3"))
    assert list(made.posterior_at) == sorted([*statements.PRIORS, 3e-4])
    assert made.posterior_at[3e-4] <= 3e-3
    for prior, posterior in made.posterior_at.items():
        exact = phi_bar(-normal_quantile(prior) - 1 / 1.5905)
        assert exact <= posterior * (1 + 1e-9)
        assert posterior <= exact * 1.01
        assert f"| {prior:g} | {round_up(posterior)} |" in made.to_markdown()
    assert [entry["prior"] for entry in made.to_json()["posterior_at"]] == list(made.posterior_at)


def test_the_power_at_one_percent_is_the_posterior_at_that_prior() -> None:
    made = secret_statement()
    assert made.power == made.posterior_at[1e-2]
    assert f"can identify at most {round_up(100 * made.power)} in 100" in made.to_markdown()


def test_the_promise_says_the_prior_the_posterior_their_ratio_and_the_test() -> None:
    text = secret_statement().to_markdown()
    for part in (
        "It protects **each secret: all records that contain it, at most 5 of them**",
        "with a probability of at most 0.0001 (the prior, p)",
        "with a probability of at most 0.001 (the posterior, r) afterwards",
        "For a prior of exactly p this is a factor of 10",
        "with probability 0.0001 when it is absent reports it with probability at most 0.001 when it is present",
        "not how certain one lucky sample of the noise can make them",
        "**This is not differential privacy of a record or of an owner.** It implies no epsilon and no delta",
        "for each secret that occurs in at most 5 records",
        "Booked in the ledger of dataset `clinic`: (p=0.0001, r=0.001).",
        "refers to secrets by number only",
    ):
        assert part in text
    for item in statements.SecretPromise.not_covered:
        assert f"- {item}" in text
    assert "-differential privacy" not in text
    assert "at delta" not in text
    assert "in at most 1 record;" in secret_statement(GaussianEvent(1.6), m=1).to_markdown()


def test_a_ratio_is_never_understated() -> None:
    assert "a factor of 3.334" in secret_statement(GaussianEvent(3), budget=SecretBudget("3e-4", "1e-3")).to_markdown()


def test_public_incidence_is_said_to_leave_records_without_secrets_unprotected() -> None:
    private, public = secret_statement().to_markdown(), secret_statement(incidence="public").to_markdown()
    for part in ("treats as public which records contain which secret", "their epsilon is infinite"):
        assert part in public
        assert part not in private


def test_a_label_set_read_from_the_data_is_no_secret() -> None:
    made = secret_statement(labels_declared=False)
    assert "The label set is not covered: it was read from the data." in made.to_markdown()
    assert "label set is not covered" not in secret_statement().to_markdown()


def test_a_run_for_secrets_without_noise_is_stamped_and_promises_nothing() -> None:
    text = secret_statement(private=False).to_markdown()
    assert f"**{statements.NOT_PRIVATE}.**" in text
    for promise in ("It protects", "guesses it correctly", "Booked in the ledger"):
        assert promise in secret_statement().to_markdown()
        assert promise not in text


def test_one_secret_among_many_that_is_drawn_more_often_sets_the_posterior() -> None:
    rare, both = MixtureEvent(8, (((0.1, 5),),)), MixtureEvent(8, (((0.1, 5),), ((1.0, 5),)))
    assert secret_statement(rare).posterior_at[1e-4] < 0.5e-3
    assert secret_statement(both).posterior_at[1e-4] == pytest.approx(1e-3, rel=0.02)


# -- budget, unit and forecast as configured --------------------------------------------------------------------------

EPSILON = {"epsilon": 3, "delta": "1e-6"}
SECRETS = {"secret_prior": "1e-4", "secret_posterior": "1e-3", "max_records_per_secret": 5}


def config(**values: Any) -> RunConfig:
    return run_config({"text": "note", **values})


def test_a_prior_and_a_posterior_are_a_budget_for_secrets() -> None:
    made = config(**SECRETS, secrets="name,phone", secrets_file="names.txt", secret_detectors="email")
    assert made.budget == SecretBudget("1e-4", "1e-3")
    told = "columns name, phone; file names.txt; detector email"
    assert made.unit == Unit("secret", 5, recognised_by=told)
    assert made.unit.name == f"secret (recognised by {told})"
    plain = config(**EPSILON)
    assert (plain.budget, plain.unit) == (Budget(3, "1e-6"), Unit())
    assert config(**EPSILON, owner="patient").unit == Unit("owner", 5, "patient")


@pytest.mark.parametrize(
    ("values", "part", "message"),
    [
        ({"secret_prior": "1e-4"}, "budget", "secret_posterior is missing"),
        ({"secret_posterior": "1e-3"}, "budget", "secret_prior is missing"),
        ({"secret_prior": "1e-3", "secret_posterior": "1e-4"}, "budget", "secret_prior < secret_posterior < 1"),
        ({"secret_prior": "one", "secret_posterior": "1e-4"}, "budget", "number for secret_prior, got one"),
        ({**SECRETS, "epsilon": 3}, "budget", r"Two kinds of budget are given.*epsilon and delta, or"),
        ({**SECRETS, "delta": 0}, "budget", r"Two kinds of budget are given.*epsilon and delta, or"),
        ({**SECRETS, "owner": "patient"}, "unit", "owners or secrets, not both"),
        ({**SECRETS, "max_records_per_secret": None}, "unit", "max_records_per_secret=M"),
        ({**EPSILON, "max_records_per_secret": 5}, "unit", "but no budget for secrets"),
        ({**EPSILON, "secrets": "name"}, "unit", "but no budget for secrets"),
        ({**EPSILON, "secrets_file": "names.txt"}, "unit", "but no budget for secrets"),
        ({**EPSILON, "secret_detectors": "email"}, "unit", "but no budget for secrets"),
        ({}, "budget", "No privacy budget given"),
    ],
)
def test_a_budget_or_a_unit_that_makes_no_sense_is_one_error(values: dict[str, Any], part: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        getattr(config(**values), part)


def test_what_lasts_holds_the_budget_exactly_and_the_file_of_secrets_by_name_only(tmp_path: Any) -> None:
    file = tmp_path / "names.txt"
    file.write_text("Ada Lovelace\n", "utf-8")
    typed = {**SECRETS, "secret_prior": 0.0001, "secret_posterior": "1/1000"}
    first = config(**SECRETS, secrets_file=str(file)).lasting
    assert first == config(**typed, secrets_file=str(file)).lasting
    assert (first["secret_prior"], first["secret_posterior"]) == ("1/10000", "1/1000")
    assert first["secrets_file"] == str(file)
    file.write_text("Grace Hopper\n", "utf-8")
    assert first == config(**SECRETS, secrets_file=str(file)).lasting
    assert first != config(**{**SECRETS, "max_records_per_secret": 6}, secrets_file=str(file)).lasting
    assert first != config(**{**SECRETS, "secret_posterior": "2e-3"}, secrets_file=str(file)).lasting


@pytest.fixture
def made() -> Forecast:
    budget = SecretBudget("1e-4", "1e-3")
    charge = Charge("centres", Declared(GaussianEvent(1 / budget.mu * 1.001)), "noisy sums")
    return Forecast(Plan("sec-pe", Unit("secret", 5), budget, (charge,)), Facts())


def test_a_forecast_for_secrets_has_a_posterior_and_no_epsilon(made: Forecast) -> None:
    assert made.epsilon is None
    assert made.posterior == pytest.approx(1e-3, rel=0.01)
    fields = json.loads(json.dumps(made.to_json()))
    assert fields["posterior"] == made.posterior
    assert fields["budget"] == {"prior": "1/10000", "posterior": "1/1000"}
    assert "epsilon" not in fields


def test_the_table_for_secrets_says_the_posterior_at_the_prior(made: Forecast) -> None:
    text = made.words
    assert "budget (p=0.0001, r=0.001), protecting each secret: all records that contain it" in text
    assert f"together: posterior {made.posterior:.6g} at prior 0.0001" in text


def test_a_forecast_for_records_has_an_epsilon_and_no_posterior() -> None:
    plan = Plan("dp-kps", Unit(), Budget(3, "1e-6"), (Charge("sums", Declared(GaussianEvent(2)), "noisy sums"),))
    made = Forecast(plan, Facts())
    assert made.posterior is None
    assert made.epsilon == plan.total == made.to_json()["epsilon"]
    assert f"together: epsilon {made.epsilon:.6g} at delta 1e-06" in made.words


def test_what_is_secret_is_part_of_what_a_resumed_run_shares_with_the_first() -> None:
    assert config(**SECRETS, secret_detectors="email").lasting["secret_detectors"] == ["email"]
    assert not config(**EPSILON).lasting["secret_detectors"]
