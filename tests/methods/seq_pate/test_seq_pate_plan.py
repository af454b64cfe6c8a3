"""The plan of seq-pate: the noise that answers get, that the budget is met, and what is refused before anything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from understudy.base.errors import ConfigError
from understudy.methods.facts import PublicFacts
from understudy.methods.seq_pate import plan as seq_pate
from understudy.methods.seq_pate.method import SeqPATE
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum
from understudy.privacy.plan import Plan
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet

BUDGET, PURE = Budget("3", "1e-6"), Budget("3", 0)
FACTS = PublicFacts(Unit(), LabelSet(("a", "b")))


def parameters(**given: Any) -> SeqPATE:
    return SeqPATE(**{"declared_records": 10_000, "rounds": 4, **given})


def planned(budget: Budget = BUDGET, facts: PublicFacts = FACTS, **given: Any) -> Plan:
    return parameters(**given).plan(budget, facts)


def sums(plan: Plan, rounds: int) -> list[NoisySum]:
    return [plan.mechanism(seq_pate.answers_name(number + 1)) for number in range(rounds)]


@pytest.mark.parametrize(("queries", "std"), [(100, 0.011), (1000, 0.035), (4000, 0.069), (20_000, 0.154)])
def test_the_noise_on_an_averaged_probability_is_that_of_the_paper(queries: int, std: float) -> None:
    plan = planned(queries=queries, teachers=2000)
    assert float(plan.forecast["answer_noise"]) == pytest.approx(std, abs=5e-4)  # type: ignore[arg-type]
    assert float(plan.forecast[f"answer_noise_at_{queries}"]) == pytest.approx(std, abs=5e-4)  # type: ignore[arg-type]
    assert [each.noise_std / 2000 for each in sums(plan, 4)] == pytest.approx([std] * 4, abs=5e-4)


@pytest.mark.parametrize("labels", ["uniform", "a=3,b=1", "noisy"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(("queries", "rounds"), [(1, 1), (7, 3), (1000, 4), (999, 1)])
@pytest.mark.parametrize("epsilon", ["0.5", "3", "10"])
def test_the_budget_is_met_not_overspent(labels: str, noise: str, queries: int, rounds: int, epsilon: str) -> None:
    given = {"label_sizes": labels, "noise": noise, "queries": queries, "rounds": rounds}
    plan = planned(Budget(epsilon, "1e-6" if noise == "gaussian" else 0), **given)
    assert [charge.name for charge in plan.charges] == [
        *(["labels"] if labels == "noisy" else []),
        *(seq_pate.answers_name(number + 1) for number in range(rounds)),
    ]
    assert float(epsilon) - 1e-3 < plan.total <= float(epsilon)


@pytest.mark.parametrize(("noise", "budget"), [("gaussian", BUDGET), ("laplace", PURE)])
@pytest.mark.parametrize("labels", ["uniform", "noisy"])
def test_rounds_of_unequal_size_put_the_same_noise_on_every_answer(noise: str, budget: Budget, labels: str) -> None:
    given = {"queries": 11, "rounds": 4, "noise": noise, "label_sizes": labels}
    found = sums(planned(budget, **given), 4)
    assert [each.shape for each in found] == [(2, 50), (3, 50), (3, 50), (3, 50)]
    expected = seq_pate.noise_of(parameters(**given), budget).on_mean(11, 1)
    assert [each.noise_std for each in found] == pytest.approx([expected] * 4, rel=1e-6)


def test_rounds_are_as_even_as_may_be_and_none_is_empty() -> None:
    for queries in range(1, 40):
        for rounds in range(1, queries + 1):
            sizes = seq_pate.round_sizes(queries, rounds)
            assert sum(sizes) == queries
            assert len(sizes) == rounds
            assert max(sizes) - min(sizes) <= 1
            assert min(sizes) >= 1


def test_two_distributions_are_the_square_root_of_two_apart() -> None:
    for queries in (1, 2, 17, 100_000):
        found = seq_pate.AnswersSpec(queries, 50).sensitivity
        assert found.l1 == 2 * queries * COUNT_GRID
        assert found.l2**2 >= 2 * queries * COUNT_GRID**2
        assert found.l2 == pytest.approx(math.sqrt(2 * queries) * COUNT_GRID)
        assert found.grid == COUNT_GRID


def delta_of(epsilon: float, mu: float) -> float:
    """Of mu-GDP (Dong, Roth and Su 2022, Corollary 2.13)."""
    first, second = norm.logcdf(mu / 2 - epsilon / mu), epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
    return float(np.exp(first) - np.exp(second))


@pytest.mark.parametrize(("shards", "epsilon"), [(1, 3.0), (2, 6.58), (3, 10.62), (5, 20.03)])
def test_the_promise_for_phrases_is_for_their_cap(shards: int, epsilon: float) -> None:
    given = parameters(phrases="phrases.txt", phrase_shards=shards)
    mu = brentq(lambda mu: delta_of(3.0, mu) - 1e-6, 0.1, 10)
    exact = brentq(lambda epsilon: delta_of(epsilon, shards * mu) - 1e-6, 0.1, 100)
    assert seq_pate.phrase_epsilon(given, BUDGET) == pytest.approx(exact, rel=1e-4)
    assert exact == pytest.approx(epsilon, abs=0.005)
    plan = given.plan(BUDGET, FACTS)
    assert plan.forecast["phrase_epsilon"] == seq_pate.phrase_epsilon(given, BUDGET)
    (note,) = plan.notes
    assert f"more than {shards} record" in note
    stated = float(note.partition("release is (")[2].partition(",")[0])
    assert seq_pate.phrase_epsilon(given, BUDGET) <= stated <= seq_pate.phrase_epsilon(given, BUDGET) * 1.001


def test_the_promise_for_phrases_is_no_smaller_than_what_its_rounds_give() -> None:
    """Each round's noise multiplier divided by the number of shards, composed."""
    from understudy.privacy.accountant import Composition
    from understudy.privacy.events import GaussianEvent

    given = parameters(phrases="phrases.txt", phrase_shards=3, queries=11, rounds=4)
    events = tuple(GaussianEvent(each.noise_multiplier / 3) for each in sums(given.plan(BUDGET, FACTS), 4))
    assert Composition(events).epsilon(1e-6) == pytest.approx(seq_pate.phrase_epsilon(given, BUDGET), rel=1e-6)


@pytest.mark.parametrize(("declared", "teachers"), [(4, 2), (101, 50), (4000, 2000), (10**6, 2000)])
def test_teachers_are_half_the_declared_records_and_two_thousand_at_most(declared: int, teachers: int) -> None:
    assert seq_pate.teacher_count(parameters(declared_records=declared)) == teachers


@pytest.mark.parametrize(("noise", "budget"), [("gaussian", BUDGET), ("laplace", PURE)])
def test_as_many_questions_are_asked_as_leave_the_noise_that_answers_bear(noise: str, budget: Budget) -> None:
    given = parameters(noise=noise, declared_records=10**5, rounds=1)
    found = seq_pate.query_count(given, budget)
    expected = seq_pate.noise_of(given, budget)
    assert expected.on_mean(found, 2000) <= 0.035 < expected.on_mean(found + 1, 2000)
    assert seq_pate.query_count(parameters(noise=noise, declared_records=10, rounds=4), budget) == 4, (
        "one per round at least"
    )


def test_the_noise_is_said_to_be_large_where_it_is() -> None:
    assert "fewer --queries" not in planned(queries=1000).usefulness
    assert planned(queries=100_000).usefulness.startswith(
        "Noise: the result would be mostly chance; do not spend this budget. Fewer --queries"
    )
    few = planned(declared_records=200, queries=10).forecast
    assert few.verdict.sentence().startswith("Noise"), "ten answers are clear, and teach nothing"


def test_owners_are_counted_in_place_of_records() -> None:
    plan = planned(facts=PublicFacts(Unit("owner", 5, "who"), LabelSet(("a", "b"))))
    assert plan.unit.max_records == 5
    assert "owners per teacher" in " ".join(plan.forecast.lines())
    assert [each.noise_multiplier for each in sums(plan, 4)] == [each.noise_multiplier for each in sums(planned(), 4)]


@pytest.mark.parametrize(
    ("budget", "given", "problem"),
    [
        (BUDGET, {"declared_records": None}, "size of the corpus is not declared"),
        (BUDGET, {"declared_records": 3}, "1 teachers cannot share 3 records"),
        (BUDGET, {"declared_records": 10, "teachers": 11}, "11 teachers cannot share 10 records"),
        (BUDGET, {"queries": 3}, "3 questions are too few for 4 rounds"),
        (BUDGET, {"label_sizes": "a=1"}, "do not fit the declared labels"),
        (BUDGET, {"phrase_shards": 2}, "needs both the phrases"),
        (BUDGET, {"phrases": "file"}, "needs both the phrases"),
        (BUDGET, {"phrases": "file", "phrase_shards": 2, "label_sizes": "noisy"}, "would not cover them"),
        (PURE, {}, "Gaussian noise needs a delta"),
        (Budget("1e-9", 0), {"noise": "laplace", "queries": 10**6}, "out of range"),
    ],
)
def test_what_cannot_be_planned_is_refused(budget: Budget, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        planned(budget, **given)


def test_pure_noise_promises_phrases_a_multiple() -> None:
    given = parameters(phrases="phrases.txt", phrase_shards=4, noise="laplace")
    assert seq_pate.phrase_epsilon(given, PURE) == 12
