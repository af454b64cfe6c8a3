"""The plan: what the budget buys, by hand; a function of public input alone; what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tiny_corpora import OWNER, RECORD

from understudy.base.errors import ConfigError
from understudy.methods.facts import PublicFacts
from understudy.methods.private_prediction.method import PrivatePrediction
from understudy.methods.private_prediction.plan import mechanism_of, recommended_batches
from understudy.privacy.accountant import zcdp_within
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.tokens import PrivateTokens, TokenTest
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet

BUDGET = Budget(4, "1e-6")


def plan(chosen: PrivatePrediction, *, budget: Budget = BUDGET, unit: Unit = RECORD, **facts: Any) -> Plan:
    labels = LabelSet(tuple("abcd"[: facts.pop("labels", 4)]))
    return chosen.plan(budget, PublicFacts(unit, labels, **facts))


def test_the_figures_of_a_plan_by_hand() -> None:
    found = plan(PrivatePrediction(clip="recenter"), budget=Budget(1, "1e-6"), expected_records=100_000).forecast
    rho = zcdp_within(Budget(1, "1e-6"))
    tokens = math.floor(rho / ((10 / (255 * 2)) ** 2 / 2))
    assert tokens == 126, "mechanisms.md"
    assert found["tokens_per_batch"] == tokens
    assert found["clip_range"] == 10
    assert found["batch_size"] == 255
    assert found["log_odds_per_record"] == pytest.approx(2 * 10 / (255 * 2))
    assert found["texts_per_batch"] == pytest.approx(126 / 50)
    assert found["recommended_batches"] == 100_000 // (4 * 255) == 98
    assert found["texts_in_a_batch"] == pytest.approx(100_000 / (4 * 98))
    assert found["texts_per_label"] == pytest.approx(98 * 126 / 50)
    rows = 4 * 98 * (255 + 1)
    assert found["private_model_tokens"] == rows * 128
    assert found["private_model_work"] == rows * 126
    assert str(found["with_batches_of_510"]).startswith("49 batches per label, 50")


@pytest.mark.parametrize(("size", "tokens"), [(255, 126), (511, 508), (1023, 2039), (2047, 8164)])
def test_private_tokens_at_epsilon_one_are_those_of_the_paper_s_accounting(size: int, tokens: int) -> None:
    chosen = PrivatePrediction(clip="recenter", batch_size=size)
    assert mechanism_of(chosen, Budget(1, "1e-6")).tokens == tokens


def test_differences_are_clipped_as_little_as_the_budget_allows() -> None:
    made = plan(PrivatePrediction())
    clip = 31 * math.sqrt(2 * zcdp_within(BUDGET) / 256)
    (charge,) = made.charges
    assert isinstance(charge.mechanism, PrivateTokens)
    assert charge.mechanism.clip == pytest.approx(clip)
    assert charge.mechanism.tokens == 256
    assert charge.event.rho == pytest.approx(zcdp_within(BUDGET))
    assert made.total <= BUDGET.epsilon


def test_the_plan_is_of_public_input_alone_and_the_declared_size_changes_the_forecast_only() -> None:
    for chosen in (PrivatePrediction(), PrivatePrediction(clip="recenter", batches=3)):
        plain, again = plan(chosen), plan(chosen)
        assert plain == again
        declared = plan(chosen, expected_records=9_000)
        assert declared.charges == plain.charges
        assert declared.total == plain.total
        assert declared.forecast != plain.forecast
        assert plan(chosen, unit=OWNER).charges == plain.charges, "the statement tells the units apart"
        assert plan(chosen, labels=1).charges == plain.charges, "labels are parallel"
    twice = [plan(PrivatePrediction(batches=batches)).charges for batches in (1, 500)]
    assert twice[0] == twice[1], "so are batches"


def test_batches_that_are_declared_are_forecast_with() -> None:
    made = plan(PrivatePrediction(batches=7), expected_records=8_680).forecast
    assert made["batches"] == 7
    assert made["recommended_batches"] == 70
    assert made["texts_in_a_batch"] == pytest.approx(310)
    without = plan(PrivatePrediction()).forecast
    assert "batches" not in without
    assert recommended_batches(3, 4, 255) == 1


@pytest.mark.parametrize(("noise", "times"), [(0.1, 17), (0.2, 5), (0.3, 1 + 16 / 9)])
def test_a_plan_with_the_sparse_vector_tells_what_it_costs_and_if_it_does_not_pay(noise: float, times: float) -> None:
    off = plan(PrivatePrediction(clip="recenter"))
    made = plan(PrivatePrediction(clip="recenter", sparse_vector=True, threshold_noise=noise))
    assert made.forecast["sparse_vector_cost"] == pytest.approx(times)
    assert made.forecast["sparse_vector_break_even"] == pytest.approx(1 / times)
    assert ("sparse vector costs too much" in "".join(made.forecast.warnings)) == (noise < 0.3)
    (charge,) = made.charges
    assert charge.mechanism.test == TokenTest(0.5, noise)
    assert charge.mechanism.runs == charge.mechanism.tokens + 1
    assert f"{charge.mechanism.runs} runs of the sparse vector for each" in charge.why
    tokens = off.forecast["tokens_per_batch"] / times
    assert tokens - 2 <= charge.mechanism.tokens <= tokens
    assert charge.event.rho <= zcdp_within(BUDGET)
    assert "sparse_vector_cost" not in off.forecast
    assert not off.forecast.warnings


@pytest.mark.parametrize(
    ("chosen", "budget", "message"),
    [
        ({"clip": "recenter", "batch_size": 2}, BUDGET, "buys 0 private tokens per batch, but 1 are requested"),
        ({"clip_range": 3.0, "tokens_per_batch": 9_999}, BUDGET, "but 9999 are requested"),
        ({"sparse_vector": True}, BUDGET, "257 times costs more than the budget"),
        ({"sparse_vector": True, "clip": "recenter", "batch_size": 10}, BUDGET, "buys 0 private tokens"),
        ({"sparse_vector": True, "threshold_noise": 1e6, "batch_size": 1_000_000}, BUDGET, "64-bit"),
        ({"clip_range": 1e-7}, BUDGET, "out of range"),
        ({}, Budget(4, 0), "needs a delta"),
    ],
)
def test_what_the_budget_does_not_buy_is_refused(chosen: dict[str, Any], budget: Budget, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(PrivatePrediction(**chosen), budget=budget)


def test_clip_range_and_tokens_that_are_both_given_are_charged_as_they_are() -> None:
    (charge,) = plan(PrivatePrediction(clip_range=1.0, tokens_per_batch=100)).charges
    assert charge.event.rho == pytest.approx(100 * (1 / 31) ** 2 / 2)
    assert charge.event.rho < zcdp_within(BUDGET), "the rest of the budget is not spent"


def test_a_plan_warns_of_batches_of_another_size_and_of_a_clip_range_that_lets_nothing_through() -> None:
    fine = plan(PrivatePrediction(), expected_records=4 * 31 * 10).forecast
    assert not fine.warnings
    fuller = plan(PrivatePrediction(batches=2), expected_records=4 * 31 * 10).forecast
    assert "155 texts on average, not the 31" in fuller.warnings[0]
    assert "texts on average" in plan(PrivatePrediction(), expected_records=20).forecast.warnings[0]
    weak = plan(PrivatePrediction(), budget=Budget("0.01", "1e-6")).forecast
    assert weak.verdict.sentence().startswith(
        "Noise: the result would be mostly chance; do not spend this budget. Larger batches"
    )
    assert plan(PrivatePrediction(batches=100), expected_records=20).usefulness.startswith("Noise")
