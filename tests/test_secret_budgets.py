"""A run's budget and unit as configured, and its forecast, where secrets are protected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.privacy.events import GaussianEvent
from understudy.privacy.facts import Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.run.forecast import Forecast
from understudy.run.settings import RunConfig, run_config

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
