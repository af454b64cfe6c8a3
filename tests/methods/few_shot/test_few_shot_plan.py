"""What few-shot will spend, from public parameters alone."""

from __future__ import annotations

from typing import Any

import pytest
from few_shots import BUDGET, method, plan_of
from tiny_corpora import LABELS, OWNER

from understudy.base.errors import ConfigError
from understudy.methods.facts import PublicFacts
from understudy.methods.few_shot.method import FewShot
from understudy.methods.few_shot.plan import mechanism_of
from understudy.privacy.events import SubsampledGaussianEvent, SubsampledPureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.unit import Unit
from understudy.run.job import Job
from understudy.run.settings import run_config
from understudy.schema.labels import LabelSet

TWO = LabelSet(("a", "b"))


def configured_plan(values: dict[str, Any]) -> Plan:
    return Job(run_config(values)).plan()


def test_one_charge_pays_for_the_tokens_of_all_labels() -> None:
    plan = plan_of(method())
    (charge,) = plan.charges
    assert isinstance(charge.event, SubsampledGaussianEvent)
    assert (charge.event.rate, charge.event.count) == (0.5, 24)
    assert 0.99 * 6 < plan.total <= 6


def test_a_plan_whose_release_could_not_be_read_again_is_refused() -> None:
    settings = {"method": "few-shot", "text": "t", "noise": "votes", "tokens": 10, "sampling_rate": 1.0}
    with pytest.raises(ConfigError, match="could not be loaded"):
        configured_plan({**settings, "epsilon": "1e-9", "delta": "1e-12"})
    with pytest.raises(ConfigError, match="sampling_rate"):
        method(sampling_rate=5e-10)


def test_votes_can_be_paid_for_without_delta() -> None:
    (charge,) = plan_of(method(noise="votes"), budget=Budget(6, 0)).charges
    assert isinstance(charge.event, SubsampledPureEvent)
    with pytest.raises(ConfigError, match="delta"):
        plan_of(method(), budget=Budget(6, 0))


def test_the_planned_mechanism_is_that_of_the_charge() -> None:
    for noise in ("gaussian", "votes"):
        chosen = method(noise=noise)
        plan = plan_of(chosen)
        assert plan.mechanism("tokens") == mechanism_of(chosen, BUDGET)
        assert plan.mechanism("tokens").event == plan.charges[0].event


def test_the_plan_stays_the_same_where_more_exemplars_are_asked_for_later() -> None:
    assert plan_of(method(exemplars=2)).charges == plan_of(method(exemplars=9)).charges
    assert method().stopping_parameters == {"exemplars"}


def test_the_plan_depends_on_the_declared_corpus_size_in_its_forecast_only() -> None:
    facts = [PublicFacts(Unit(), TWO, expected) for expected in (None, 1000, 90_000)]
    plans = [method().plan(BUDGET, each) for each in facts]
    assert len({str(plan.charges) for plan in plans}) == 1
    assert plans[1].forecast["expected_sample"] == 250
    assert plans[2].forecast["fitting_rate"] == pytest.approx(12 / 90_000)


def test_the_work_of_the_release_model_is_forecast() -> None:
    forecast = plan_of(method()).forecast
    prompts = LABELS * 24 * (3 + 1)
    assert forecast["private_model_prompts"] == prompts
    assert forecast["private_model_tokens"] == prompts * (2 * 12 + 6)


@pytest.mark.parametrize("noise", ["gaussian", "votes"])
def test_too_much_noise_is_told(noise: str) -> None:
    def level(chosen: FewShot, epsilon: int, records: int | None) -> str | None:
        facts = PublicFacts(Unit(), TWO, records)
        found = chosen.plan(Budget(epsilon, "1e-6"), facts).forecast.verdict
        assert found is not None
        return found.level

    quiet = method(noise=noise, sampling_rate=0.001, subsets=40, tokens=10)
    assert level(quiet, 8, None) is None
    assert next(level(quiet, 8, records) for records in (3, 10**6)) == "noise"
    assert level(quiet, 8, 10**6) != "noise"
    assert level(method(noise=noise, subsets=2), 1, None) == "noise"


def test_a_sampling_rate_is_given_or_follows_from_the_declared_size() -> None:
    chosen = method(sampling_rate=None)
    with pytest.raises(ConfigError, match="expected_records"):
        chosen.plan(BUDGET, PublicFacts(Unit(), TWO))
    assert chosen.fitted(1000, TWO.size) == {"sampling_rate": 0.012}
    assert method(sampling_rate=0.5).fitted(1000, TWO.size) == {}


def test_owners_are_sampled_with_one_record_each() -> None:
    plan = plan_of(method(), unit=OWNER)
    assert plan.unit == Unit("owner", 1)
    assert "owners" in " ".join(method().plan(BUDGET, PublicFacts(OWNER, LabelSet(), 50)).forecast.lines())


def test_secrets_are_not_protected() -> None:
    assert not method().protects_secrets
    secrets = {"secret_prior": "0.01", "secret_posterior": "0.1", "max_records_per_secret": 2, "secrets": "t"}
    with pytest.raises(ConfigError, match="secret"):
        configured_plan({"method": "few-shot", "text": "t", "sampling_rate": 1.0, **secrets})
