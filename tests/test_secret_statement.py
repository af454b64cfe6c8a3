"""The statement where secrets are protected: what it promises, what it does not, and no secret in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.privacy.events import GaussianEvent, MixtureEvent
from understudy.privacy.exact import round_up
from understudy.privacy.facts import Facts
from understudy.privacy.guarantee import Budget, SecretBudget, normal_quantile, phi_bar
from understudy.privacy.mechanisms import Declared, NoisySum, SampledSum, Sensitivity
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.release.statement import NOT_PRIVATE, PRIORS, Sealed, SecretPromise, Statement
from understudy.run.forecast import Forecast
from understudy.run.settings import RunConfig, run_config

BUDGET = SecretBudget("1e-4", "1e-3")
ALL_DRAWN = MixtureEvent(5 * 1.5905, (((1.0, 5),),))


def statement(
    event: GaussianEvent | MixtureEvent = ALL_DRAWN,
    *,
    budget: SecretBudget = BUDGET,
    m: int = 5,
    private: bool = True,
    **options: Any,
) -> Statement:
    incidence = "cd" * 32 if options.pop("incidence", "private") == "public" else None
    sensitivity = Sensitivity.of_counts(1)
    mechanism = (
        SampledSum(event.noise_multiplier, event.inclusion, sensitivity, (3,), incidence)
        if isinstance(event, MixtureEvent)
        else NoisySum("gaussian", event.noise_multiplier, sensitivity, (3,))
    )
    made = Statement.of(
        Plan("sec-pe", Unit("secret", m), budget, (Charge("centres", mechanism, "noisy sums"),)),
        public_inputs={"public corpus": {"source": "news.csv", "sha256": "ab" * 32}},
        labels_declared=options.pop("labels_declared", True),
        dataset="clinic",
        **options,
    )
    return replace(made, sealed=Sealed("system" if private else "none", "0" * 32, "1" * 32, 1))


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
    made = statement(**options)
    fields = json.loads(json.dumps(made.to_json(), allow_nan=False))
    again = Statement.from_json(fields)
    assert again == made
    assert again.to_markdown() == made.to_markdown()
    assert json.loads(json.dumps(again.to_json())) == fields
    assert fields["budget"] == {"prior": "1/10000", "posterior": "1/1000"}
    assert fields["epsilon_at_delta"] == []
    assert fields["neighbours"] == "remove all records that hold one secret"


def test_the_posterior_is_stated_at_the_booked_prior_and_at_several_others() -> None:
    """All records drawn is mu-GDP: r(p) = Phi(Phi^-1(p) + mu)."""
    made = statement(budget=SecretBudget("3e-4", "3e-3"))
    assert list(made.posterior_at) == sorted([*PRIORS, 3e-4])
    assert made.posterior_at[3e-4] <= 3e-3
    for prior, posterior in made.posterior_at.items():
        exact = phi_bar(-normal_quantile(prior) - 1 / 1.5905)
        assert exact <= posterior * (1 + 1e-9)
        assert posterior <= exact * 1.01
        assert f"| {prior:g} | {round_up(posterior)} |" in made.to_markdown()
    assert [entry["prior"] for entry in made.to_json()["posterior_at"]] == list(made.posterior_at)


def test_the_power_at_one_percent_is_the_posterior_at_that_prior() -> None:
    made = statement()
    assert made.power == made.posterior_at[1e-2]
    assert f"is right about at most {round_up(100 * made.power)} in 100" in made.to_markdown()


def test_the_promise_says_the_prior_the_posterior_their_ratio_and_the_test() -> None:
    text = statement().to_markdown()
    for part in (
        "Protected: **one secret: all records that hold it, at most 5 of them**",
        "with a probability of at most 0.0001 (the prior, p)",
        "with at most 0.001 (the posterior, r) after",
        "r/p is 10, for a guesser at p itself",
        "with probability 0.0001 where it is not says so with probability at most 0.001 where it is",
        "not how sure one lucky sample of the noise may make them",
        "**This is not differential privacy of a record or of an owner:** it implies no epsilon and no delta",
        "for each secret that stands in at most 5 records",
        "Booked in the ledger of dataset `clinic`: (p=0.0001, r=0.001).",
        "Secrets are known here by number only",
    ):
        assert part in text
    for item in SecretPromise.not_covered:
        assert f"- {item}" in text
    assert "-differential privacy" not in text
    assert "at delta" not in text
    assert "in at most 1 record;" in statement(GaussianEvent(1.6), m=1).to_markdown()


def test_a_ratio_is_never_understated() -> None:
    assert "r/p is 3.334" in statement(GaussianEvent(3), budget=SecretBudget("3e-4", "1e-3")).to_markdown()


def test_public_incidence_is_said_to_leave_records_without_secrets_unprotected() -> None:
    private, public = statement().to_markdown(), statement(incidence="public").to_markdown()
    for part in ("Which records hold which secret is taken as public", "for the record unit epsilon is infinite"):
        assert part in public
        assert part not in private


def test_a_label_set_read_from_the_data_is_said_to_be_unprotected() -> None:
    made = statement(labels_declared=False)
    assert "The label set is not covered: it was read from the data." in made.to_markdown()
    assert "label set is not covered" not in statement().to_markdown()


def test_a_run_without_noise_is_stamped_and_promises_nothing() -> None:
    text = statement(private=False).to_markdown()
    assert f"**{NOT_PRIVATE}.**" in text
    for promise in ("Protected:", "guesses it rightly", "Booked in the ledger"):
        assert promise in statement().to_markdown()
        assert promise not in text


def test_one_secret_among_many_that_is_drawn_more_often_sets_the_posterior() -> None:
    rare, both = MixtureEvent(8, (((0.1, 5),),)), MixtureEvent(8, (((0.1, 5),), ((1.0, 5),)))
    assert statement(rare).posterior_at[1e-4] < 0.5e-3
    assert statement(both).posterior_at[1e-4] == pytest.approx(1e-3, rel=0.02)


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
        ({**SECRETS, "epsilon": 3}, "budget", r"Two budgets given.*epsilon and delta, or"),
        ({**SECRETS, "delta": 0}, "budget", r"Two budgets given.*epsilon and delta, or"),
        ({**SECRETS, "owner": "patient"}, "unit", "owners or secrets, not both"),
        ({**SECRETS, "max_records_per_secret": None}, "unit", "max_records_per_secret=M"),
        ({**EPSILON, "max_records_per_secret": 5}, "unit", "no protection of them is chosen"),
        ({**EPSILON, "secrets": "name"}, "unit", "no protection of them is chosen"),
        ({**EPSILON, "secrets_file": "names.txt"}, "unit", "no protection of them is chosen"),
        ({**EPSILON, "secret_detectors": "email"}, "unit", "no protection of them is chosen"),
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
    assert "budget (p=0.0001, r=0.001), protecting one secret: all records that hold it" in text
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
