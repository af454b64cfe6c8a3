"""The plan of DP-KPS: its charges compose to the budget, and nothing private decides them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import ConfigError
from understudy.methods.dp_kps.method import DPKPS
from understudy.methods.dp_kps.plan import DPKPSParameters, make_plan, planned_sums, score_noise
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.queries.counts import TermHistogram
from understudy.privacy.guarantee import GDP, Budget
from understudy.privacy.mechanisms import NoisySum, Sensitivity
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.schema.labels import LabelSet
from understudy.text.vocabulary.words import TermMatcher

BUDGET = Budget(6, "1e-6")


def parameters_of(**parameters: Any) -> DPKPSParameters:
    return DPKPSParameters(**parameters)


def plan(budget: Budget = BUDGET, **parameters: Any) -> Plan:
    chosen = parameters_of(**parameters)
    facts = PublicFacts(Unit(), LabelSet(tuple("abcd")), expected_records=10_000)
    return make_plan(chosen, budget, facts, vocabulary_size=50_000)


def noise_multipliers(parameters: DPKPSParameters) -> dict[str, float]:
    charges: Any = planned_sums(parameters, BUDGET, labels=4, vocabulary_size=50_000)
    return {charge.name: charge.mechanism.noise_multiplier for charge in charges}


def labels_of(count: int) -> PublicFacts:
    return PublicFacts(Unit(), LabelSet(tuple(f"label {number}" for number in range(count))))


@given(
    epsilon=st.floats(0.05, 100),
    delta=st.floats(1e-12, 1e-2),
    noise=st.sampled_from(["gaussian", "laplace"]),
    length=st.integers(1, 20),
)
def test_the_charges_compose_to_the_budget_and_no_more(epsilon: float, delta: float, noise: str, length: int) -> None:
    made = plan(Budget(epsilon, delta), noise=noise, length=length, terms_per_record=20)
    spent = made.composition.epsilon(float(made.budget.delta))
    assert spent <= made.budget.epsilon
    assert spent == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize(
    ("parameters", "budget", "problem"),
    [
        ({"top_terms": 50_001}, BUDGET, "larger than the public one"),
        ({"top_terms": 5, "length": 6}, BUDGET, "distinct terms"),
    ],
)
def test_what_cannot_be_released_is_refused_by_plan(parameters: dict[str, Any], budget: Budget, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plan(budget, **parameters)


def test_what_can_just_be_released_is_planned() -> None:
    assert plan(length=4, terms_per_record=3), "sequences of the independent mode are drawn term by term"
    assert plan(top_terms=50_000).charges
    assert make_plan(parameters_of(length=5), BUDGET, labels_of(2), vocabulary_size=5).charges
    with pytest.raises(ConfigError, match="distinct terms"):
        make_plan(parameters_of(length=6), BUDGET, labels_of(2), vocabulary_size=5)


@pytest.mark.parametrize(
    ("parameters", "labels", "fewer"), [({"top_terms": 50_000}, 2_001, "top_terms"), ({}, 20_001, "top_terms")]
)
def test_a_sum_too_large_to_store_is_refused_in_the_plan(parameters: dict[str, Any], labels: int, fewer: str) -> None:
    with pytest.raises(ConfigError, match="would have 1e\\+08 numbers") as caught:
        make_plan(parameters_of(**parameters), BUDGET, labels_of(labels), vocabulary_size=50_000)
    assert f"Lower {fewer}" in caught.value.cure
    assert make_plan(parameters_of(**parameters), BUDGET, labels_of(labels - 1), vocabulary_size=50_000)


def test_laplace_noise_is_pure_and_books_no_delta() -> None:
    made = plan(noise="laplace")
    assert made.budget == Budget(6, 0)
    assert made.composition.pure_epsilon <= 6
    assert made.composition.pure_epsilon == pytest.approx(6, rel=1e-9)


def test_the_share_of_the_vocabulary_is_a_share_of_mu_squared_or_of_epsilon() -> None:
    gaussian = noise_multipliers(parameters_of())
    mu = GDP(math.sqrt(sum(m**-2 for m in gaussian.values())))
    assert gaussian["vocabulary"] ** -2 == pytest.approx(0.2 * mu.mu**2)
    assert mu.epsilon(1e-6) == pytest.approx(6, rel=1e-6)
    laplace = noise_multipliers(parameters_of(noise="laplace"))
    assert 1 / laplace["vocabulary"] == pytest.approx(0.2 * 6)
    assert 1 / laplace["density"] == pytest.approx(0.8 * 6)


def test_a_privatised_vocabulary_of_unknown_size_is_planned_for_as_one() -> None:
    histogram, small = plan(), parameters_of()
    assert histogram.mechanism("density").shape == (4, None)
    assert "the likeliest stay" in histogram.charges[0].why
    assert Charge.from_json(histogram.charges[1].to_json()) == histogram.charges[1]
    assert make_plan(small, BUDGET, labels_of(2), vocabulary_size=7).charges


def test_the_forecast_says_noise_in_records_and_signal_against_it() -> None:
    forecast = plan(noise="gaussian").forecast
    multipliers = noise_multipliers(parameters_of())
    assert forecast["vocabulary_count_noise"] == pytest.approx(multipliers["vocabulary"])
    assert forecast["density_score_noise"] == pytest.approx(multipliers["density"])
    assert forecast["expected_records"] == 10_000
    assert forecast["signal_to_noise_at_5_percent"] == pytest.approx(
        2_500 * 0.05 / math.sqrt(10) / multipliers["density"]
    )


def test_the_noise_of_a_score_is_as_derived() -> None:
    assert score_noise(parameters_of(noise="gaussian"), 2.0) == pytest.approx(2)
    assert score_noise(parameters_of(noise="laplace"), 2.0) == pytest.approx(2 * math.sqrt(2))


def test_the_noise_of_a_count_is_as_derived() -> None:
    """Of weighted counts: however many terms of a record count."""
    for noise, std in (("gaussian", 2.0), ("laplace", 2 * math.sqrt(2))):
        weights = Sensitivity.of_shared_weight(noise, 10)  # type: ignore[arg-type]
        assert NoisySum(noise, 2.0, weights, (5,)).noise_std == pytest.approx(std)  # type: ignore[arg-type]
        assert plan(noise=noise).mechanism("vocabulary").sensitivity == weights
    made = plan(terms_per_record=100).mechanism("vocabulary")
    assert made.noise_std == plan().mechanism("vocabulary").noise_std
    assert plan().forecast["vocabulary_count_noise"] == made.noise_std


def test_a_vocabulary_or_stop_words_of_your_own_need_your_word_that_they_are_public(tmp_path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("heart\nknee\n")
    for own in ({"vocabulary": str(path)}, {"stop_words": str(path)}):
        with pytest.raises(ConfigError, match="vocabulary_is_public"):
            DPKPS(**own).plan(BUDGET, PublicFacts(Unit()))
    DPKPS(vocabulary=str(path), vocabulary_is_public=True, top_terms=2, length=2).plan(BUDGET, PublicFacts(Unit()))
    DPKPS(stop_words="none").plan(BUDGET, PublicFacts(Unit()))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_every_charge_has_the_sensitivity_that_its_query_states(noise: Any) -> None:
    """Or the release would be refused after its charge."""
    parameters = parameters_of(noise=noise, length=2, top_terms=3, terms_per_record=4)
    made = make_plan(parameters, BUDGET, labels_of(2), vocabulary_size=3)
    matcher, names = TermMatcher(["a", "b", "c"]), ["vocabulary", "density"]
    queries = {name: TermHistogram(made.query(name), matcher) for name in names}
    assert [charge.name for charge in made.charges] == list(queries)
    assert {name: query.shape for name, query in queries.items()} == {"vocabulary": (3,), "density": (2, 3)}
    assert {query.sensitivity for query in queries.values()} == {Sensitivity.of_shared_weight(noise, 4)}
    for name, query in queries.items():
        assert (query.sensitivity, query.shape) == (made.mechanism(name).sensitivity, made.mechanism(name).shape)
