"""The plan of a method with a guide: both together spend the budget, and not more."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.stats import norm

from understudy.base.errors import ConfigError
from understudy.methods.additions.guide import addition as guide_addition
from understudy.methods.additions.guide.plan import GUIDE, VECTOR_WEIGHT, embedding_rate, plan_with_guide, why_no_guide
from understudy.methods.dp_kps.method import DPKPS
from understudy.methods.facts import PublicFacts
from understudy.privacy.events import GaussianEvent, SubsampledGaussianEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import LEAST_NOISE
from understudy.privacy.plan import Plan
from understudy.privacy.unit import Unit
from understudy.run.forecast import Forecast, forecast
from understudy.run.job import Job
from understudy.run.settings import run_config
from understudy.schema.labels import LabelSet

COMMON: dict[str, Any] = {"label": "ward", "labels": "a,b,c", "llm": "fake", "guide": True}
BUDGETS = (Budget(3, "1e-6"), Budget("0.5", "1e-8"), Budget(20, "1e-5"))
METHODS: dict[str, dict[str, Any]] = {
    "dp-kps gaussian": {},
    "dp-kps laplace": {"noise": "laplace"},
    "aug-pe": {"rounds": 3, "population": 4, "variations": 2},
    "aug-pe noisy": {"rounds": 2, "population": 4, "variations": 2, "label_sizes": "noisy", "private_keywords": True},
    "few-shot": {"sampling_rate": 0.1, "exemplars": 2, "exemplar_tokens": 4, "tokens": 16},
    "private-prediction": {"batches": 2, "batch_size": 200, "tokens_per_batch": 6, "max_tokens": 6},
    "dp-finetune": {"declared_records": 1000, "sampling_rate": 0.05, "steps": 20},
    "seq-pate": {"declared_records": 1000, "teachers": 50, "queries": 4, "rounds": 2},
    "seq-pate laplace": {
        **{"declared_records": 1000, "teachers": 50, "queries": 4, "rounds": 2},
        **{"answers": "votes", "noise": "laplace"},
    },
}
GAUSSIAN = ("dp-kps gaussian", "aug-pe", "aug-pe noisy", "seq-pate")
# Their calibration composes privacy loss distributions.
SLOW = ("few-shot", "dp-finetune")


def plan_of(values: dict[str, Any]) -> Plan:
    return Job(run_config(values)).plan()


def configured(name: str, budget: Budget, **changes: Any) -> dict[str, Any]:
    method = name.split()[0]
    own = {**METHODS[name], "epsilon": str(budget.epsilon), "delta": str(budget.delta), "method": method}
    return {**COMMON, **own, **changes}


def planned(name: str, budget: Budget, **changes: Any) -> Plan:
    return plan_of(configured(name, budget, **changes))


def gaussian_delta(epsilon: float, multipliers: list[float]) -> float:
    """Of Gaussian releases with these noise multipliers, all together (Balle and Wang 2018, Theorem 8)."""
    mu = math.sqrt(sum(1 / each**2 for each in multipliers))
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-epsilon / mu - mu / 2)))


@pytest.mark.parametrize(
    ("name", "budget"),
    [(name, budget) for name in METHODS for budget in (BUDGETS[:1] if name in SLOW else BUDGETS)],
    ids=lambda each: str(each),
)
def test_method_and_guide_together_are_within_the_budget(name: str, budget: Budget) -> None:
    try:
        alone = planned(name, budget, guide=False)
    except ConfigError:
        pytest.skip("the method itself has no such plan")
    plan = planned(name, budget)
    assert plan.budget == budget, "the ledger is charged all of it"
    assert [charge.name for charge in plan.charges] == [*(charge.name for charge in alone.charges), GUIDE]
    assert plan.total <= float(budget.epsilon)
    assert plan.total >= 0.9 * float(budget.epsilon)
    assert isinstance(plan.charges[-1].event, GaussianEvent)


@pytest.mark.parametrize("name", GAUSSIAN)
@pytest.mark.parametrize("budget", BUDGETS[1:], ids=str)
@pytest.mark.parametrize("share", [0.01, 0.9])
def test_gaussian_methods_and_guide_spend_the_budget_to_the_last_digit(
    monkeypatch: pytest.MonkeyPatch, name: str, budget: Budget, share: float
) -> None:
    monkeypatch.setattr(guide_addition, "GUIDE_SHARE", share)
    plan = planned(name, budget)
    events = [charge.event for charge in plan.charges]
    multipliers = [event.noise_multiplier for event in events if isinstance(event, GaussianEvent)]
    assert len(multipliers) == len(events)
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    assert gaussian_delta(epsilon, multipliers) <= delta
    assert gaussian_delta(0.999 * epsilon, multipliers) > delta
    mu_squared = [1 / each**2 for each in multipliers]
    assert mu_squared[-1] / sum(mu_squared) == pytest.approx(share, rel=1e-3)


def test_a_plan_that_is_calibrated_to_the_whole_budget_is_over_it_with_a_guide() -> None:
    """The independent formula notices it."""
    budget = BUDGETS[0]
    whole = [charge.event for charge in planned("dp-kps gaussian", budget, guide=False).charges]
    guide = planned("dp-kps gaussian", budget).charges[-1].event
    multipliers = [event.noise_multiplier for event in (*whole, guide) if isinstance(event, GaussianEvent)]
    assert gaussian_delta(float(budget.epsilon), multipliers) > float(budget.delta)


def facts() -> PublicFacts:
    return PublicFacts(Unit(), LabelSet(()))


def test_pure_differential_privacy_and_secrets_have_no_guide() -> None:
    with pytest.raises(ConfigError, match="is Gaussian, which needs a delta"):
        planned("dp-kps laplace", Budget(3, 0))
    secret = {"secret_prior": "1e-4", "secret_posterior": "1e-3", "secret_detectors": "email"}
    values = configured("aug-pe", BUDGETS[0], **secret, max_records_per_secret=2)
    with pytest.raises(ConfigError, match="protects records or owners, not secrets") as caught:
        plan_of({name: value for name, value in values.items() if name not in ("epsilon", "delta")})
    assert "--guide" in caught.value.cure
    with pytest.raises(ConfigError, match="not secrets"):
        plan_with_guide(
            lambda budget: pytest.fail("it was planned"),
            SecretBudget("1e-4", "1e-3"),
            share=0.3,
            labels=1,
            expected_records=None,
            unit=Unit(),
        )


def test_a_method_whose_plan_never_fits_is_given_up() -> None:
    def stubborn(budget: Budget) -> Plan:
        return DPKPS().plan(Budget(2, budget.delta), facts())

    with pytest.raises(ConfigError, match="would leave no budget for the method"):
        plan_with_guide(stubborn, Budget(2, "1e-6"), share=0.5, labels=1, expected_records=None, unit=Unit())


def test_a_method_that_is_a_guide_gets_no_second_one() -> None:
    values = {**COMMON, "method": "guided-evolution", "epsilon": "3", "delta": "1e-6"}
    with pytest.raises(ConfigError, match="releases a guide by itself"):
        plan_of(values)
    plan = plan_of({**values, "guide": False})
    assert [charge.name for charge in plan.charges] == [GUIDE]
    assert isinstance(plan.charges[0].event, GaussianEvent)
    multiplier = plan.charges[0].event.noise_multiplier
    assert gaussian_delta(3, [multiplier]) <= 1e-6 < gaussian_delta(0.999 * 3, [multiplier])


def value(facts: Any, name: str) -> Any:
    return next((entry.value for entry in facts.entries if entry.name == name), None)


def test_the_forecast_says_the_noise_and_warns_where_it_is_most() -> None:
    budget = BUDGETS[0]
    plan = planned("dp-kps gaussian", budget)
    multiplier = plan.mechanism(GUIDE).noise_multiplier
    assert value(plan.forecast, "guide_noise") == pytest.approx(multiplier / VECTOR_WEIGHT)
    assert value(plan.forecast, "guide_signal_to_noise") is None
    ratios = {}
    for records in (100, 10_000):
        plan = planned("dp-kps gaussian", budget, expected_records=records)
        ratios[records] = value(plan.forecast, "guide_signal_to_noise")
        warned = any("The guide would be mostly noise" in warning for warning in plan.forecast.warnings)
        assert warned == (ratios[records] < 0.35) == (records == 100)
    assert ratios[10_000] == pytest.approx(100 * ratios[100])


def test_a_guide_pays_where_its_sums_would_stand_above_the_noise() -> None:
    def why(records: int | None, labels: int, epsilon: int) -> str:
        return why_no_guide(Budget(epsilon, "1e-6"), labels=labels, expected_records=records, unit=Unit())

    assert not why(10_000, 5, 3)
    assert "100 records" in why(100, 5, 3)
    assert "100 labels" in why(2_000, 100, 3)
    assert not why(None, 5, 3)
    assert not why(50_000, 5, 3)
    assert not why(1_000_000, 5, 3)
    assert "of which 3.12% are embedded" in why(1_000_000, 1_000, 1)


# -- large tables ------------------------------------------------------------------------------------------------------


def test_about_fifty_thousand_records_are_embedded_of_those_declared_and_all_of_fewer() -> None:
    for records in (None, 1, 50_000):
        assert embedding_rate(records, Unit()) == 1
    assert embedding_rate(50_001, Unit()) == embedding_rate(100_000, Unit()) == 1 / 2
    assert embedding_rate(1_000_000, Unit()) == embedding_rate(1_001_234, Unit()) == 1 / 32, "the number is not told"
    assert embedding_rate(10**12, Unit()) == 1 / 8192
    assert embedding_rate(100_000, Unit("owner", 5)) == 1 / 16, "of at most five records each"


@pytest.mark.parametrize("name", ["dp-kps gaussian", "dp-kps laplace", "aug-pe", "private-prediction"])
def test_a_sample_has_the_noise_of_all_records_and_the_method_gets_what_is_saved(name: str) -> None:
    budget = BUDGETS[0]
    small, large = (planned(name, budget, expected_records=records) for records in (50_000, 1_000_000))
    assert small.charges == planned(name, budget).charges, "with rate 1 it is as it was"
    guide = small.charges[-1].event
    assert isinstance(guide, GaussianEvent)
    assert large.charges[-1].event == SubsampledGaussianEvent(guide.noise_multiplier, 1 / 32, 1)
    assert "Poisson sample of the records" in large.charges[-1].why
    assert 0.97 * 3 <= large.total <= 3
    rho = [sum(charge.event.rho for charge in plan.charges[:-1]) for plan in (small, large)]
    assert (rho[1] > 1.1 * rho[0]) == (name != "private-prediction"), "zCDP knows no sampling"
    assert value(large.forecast, "guide_rate") == 1 / 32
    assert value(large.forecast, "guide_signal_to_noise") == pytest.approx(
        value(small.forecast, "guide_signal_to_noise") * 20 / 32
    )


def test_a_sampled_record_keeps_the_least_noise_and_a_guide_alone_keeps_its_own() -> None:
    def alone(epsilon: str, records: int) -> Plan:
        own = {"guide": False, "method": "guided-evolution", "epsilon": epsilon, "expected_records": records}
        return plan_of({**COMMON, "delta": "1e-6", **own})

    whole, part = alone("3", 50_000), alone("3", 100_000)
    assert part.mechanism(GUIDE).noise_multiplier == whole.mechanism(GUIDE).noise_multiplier
    assert part.total < 0.8 * whole.total
    assert alone("40", 50_000).mechanism(GUIDE).noise_multiplier < LEAST_NOISE
    assert alone("40", 100_000).mechanism(GUIDE).noise_multiplier == LEAST_NOISE


def foretold(name: str, budget: Budget, **changes: Any) -> Forecast:
    return forecast(run_config(configured(name, budget, **changes)))


def test_the_calls_of_a_run_with_a_guide_are_as_many_times_more() -> None:
    def calls(name: str, **changes: Any) -> Any:
        made = foretold(name, BUDGETS[0], records=30, **changes)
        return value(made.calls, "records"), value(made.calls, "calls")

    assert calls("dp-kps gaussian", guide=False) == (30, 30)
    assert calls("dp-kps gaussian") == (30, 30)
    assert calls("dp-kps gaussian", guide_candidates=7) == (30, 210)
    assert calls("dp-kps gaussian", guide_candidates=0) == (30, 30)
    assert calls("dp-kps gaussian", llm="none") == (30, 0)
