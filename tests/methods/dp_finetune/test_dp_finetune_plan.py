"""The plan of dp-finetune: what follows from what, that the budget is met, and what is refused before anything."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.base.errors import ConfigError
from understudy.methods.dp_finetune.method import DPFinetune
from understudy.methods.dp_finetune.plan import TRAINING, checkpoint_ends, work
from understudy.methods.facts import PublicFacts
from understudy.models.training import Cost
from understudy.privacy.accountant import Composition
from understudy.privacy.gradients import DPSGD
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.unit import Unit
from understudy.schema.columns import declared_columns
from understudy.schema.labels import LabelSet

BUDGET = Budget("3", "1e-6")
FACTS = PublicFacts(Unit(), LabelSet(("a", "b")))


def planned(budget: Budget = BUDGET, facts: PublicFacts = FACTS, **parameters: Any) -> Plan:
    return DPFinetune(**{"declared_records": 10_000, **parameters}).plan(budget, facts)


def mechanism(plan: Plan) -> DPSGD:
    found: DPSGD = plan.mechanism(TRAINING)
    return found


@pytest.mark.parametrize(("given", "rate", "steps"), [({"steps": 20}, 0.0256, 20), ({"sampling_rate": 0.05}, 0.05, 10)])
def test_noise_follows_from_rate_and_steps(given: dict[str, Any], rate: float, steps: int) -> None:
    plan = planned(**given)
    found = mechanism(plan)
    assert (found.rate, found.steps) == (pytest.approx(rate), steps)
    assert plan.total <= 3
    less = DPSGD(found.noise_multiplier * 0.995, found.rate, found.steps, 1.0)
    assert Composition((less.event,)).epsilon(1e-6) > 3


def test_noisy_label_counts_are_paid_for_beside_the_training() -> None:
    plan = planned(label_sizes="noisy")
    assert [charge.name for charge in plan.charges] == ["labels", "training"]
    assert 2.97 < plan.total <= 3
    assert mechanism(plan).noise_multiplier > mechanism(planned()).noise_multiplier


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"declared_records": None}, "size of the corpus is not declared"),
        ({"label_sizes": "a=1"}, "do not fit the declared labels"),
    ],
)
def test_what_cannot_be_planned_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        planned(**given)


def test_pure_privacy_cannot_be_had() -> None:
    with pytest.raises(ConfigError, match="needs a delta"):
        planned(Budget("3", 0))


def test_owners_show_one_record_in_a_step() -> None:
    plan = planned(facts=PublicFacts(Unit("owner", 5, "who"), LabelSet(("a", "b"))))
    assert plan.unit.max_records == 5
    assert "one record of each owner" in plan.charges[-1].why
    assert mechanism(plan) == mechanism(planned())


def test_a_batch_too_small_for_its_noise_is_warned_of() -> None:
    assert "raise --sampling-rate" in planned(declared_records=50, sampling_rate=0.02, steps=5).forecast.warnings[0]
    assert not planned().forecast.warnings


def test_noise_that_outweighs_the_largest_signal_is_warned_of() -> None:
    def facts(numbers: int) -> tuple[float, str]:
        found = work(
            DPSGD(1.0, 0.01, 100, 1.0), 100, numbers=numbers, model_bytes=0, cost=Cost(0.1, 1000), workers=2, rows=8
        )
        return float(found["noise_to_signal"]), found.verdict.sentence().split(":")[0]  # type: ignore[arg-type]

    assert facts(10_000) == (pytest.approx(0.1), "Good")
    assert facts(4_000_000) == (pytest.approx(2.0), "Noise")


def test_checkpoints_are_even_and_end_with_the_last_step() -> None:
    assert checkpoint_ends(12) == [2, 4, 7, 9, 12]
    assert checkpoint_ends(3) == [1, 2, 3]


def test_rows_that_fill_the_tokens_of_their_texts_are_warned_of() -> None:
    columns = declared_columns("; ".join(f"a rather long name of column {number}=1..9" for number in range(12)))
    few, many = (PublicFacts(Unit(), FACTS.labels, columns=columns[:count]) for count in (1, 12))
    assert not planned(facts=few).forecast.warnings
    (warning,) = planned(facts=many).forecast.warnings
    assert "raise --private-text-tokens" in warning
    assert not planned(facts=many, private_text_tokens=512).forecast.warnings
    assert [entry for entry in planned(facts=few).forecast.entries if entry.name == "row_tokens"]
    assert not [entry for entry in planned().forecast.entries if entry.name == "row_tokens"]
