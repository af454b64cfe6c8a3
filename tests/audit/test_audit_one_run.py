"""The one-run bound: against closed forms, by exact enumeration of small mechanisms, and by simulation."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.audit.result import (
    CEILING,
    GuessRule,
    canaries_needed,
    guess_rules,
    judge,
    judge_groups,
    largest_bound,
    lower_bound,
    p_value,
)

SURE = 1 - 1e-6


def tail(correct: int, guesses: int, share: float) -> float:
    """P[Binomial(guesses, share) >= correct], term by term."""
    return sum(
        math.comb(guesses, k) * share**k * (1 - share) ** (guesses - k) for k in range(max(0, correct), guesses + 1)
    )


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_without_delta_the_chance_is_a_binomial_tail(epsilon: float) -> None:
    share = math.exp(epsilon) / (math.exp(epsilon) + 1)
    for guesses, correct in [(1, 1), (7, 0), (7, 4), (7, 7), (30, 22)]:
        found = p_value(correct, guesses, canaries=40, epsilon=epsilon, delta=0)
        assert found == pytest.approx(tail(correct, guesses, share), rel=1e-9)


def test_the_term_in_delta_is_that_of_the_theorem() -> None:
    canaries, guesses, epsilon, delta = 12, 9, 0.7, 1e-3
    share = math.exp(epsilon) / (math.exp(epsilon) + 1)
    for correct in range(1, guesses + 1):
        worst = max(
            (tail(correct - i, guesses, share) - tail(correct, guesses, share)) / i for i in range(1, canaries + 1)
        )
        expected = tail(correct, guesses, share) + 2 * canaries * delta * worst
        found = p_value(correct, guesses, canaries=canaries, epsilon=epsilon, delta=delta)
        assert found == pytest.approx(min(1.0, expected), rel=1e-9)


def test_the_chance_is_exactly_that_of_randomised_response() -> None:
    canaries, epsilon = 5, 1.3
    truth = math.exp(epsilon) / (math.exp(epsilon) + 1)
    chances = [0.0] * (canaries + 1)
    for coins in product([0, 1], repeat=canaries):
        for answers in product([0, 1], repeat=canaries):
            right = sum(coin == answer for coin, answer in zip(coins, answers, strict=True))
            chances[right] += truth**right * (1 - truth) ** (canaries - right) / 2**canaries
    for correct in range(canaries + 1):
        found = p_value(correct, canaries, canaries=canaries, epsilon=epsilon, delta=0)
        assert found == pytest.approx(sum(chances[correct:]), rel=1e-9)


def test_a_run_that_tells_all_with_chance_delta_is_within_the_bound_and_not_without_its_term() -> None:
    """With chance delta all coins are published, else nothing: (0, delta)-private, and not (0, 0)-private."""
    delta = 0.01
    for canaries in (1, 4, 10):
        for correct in range(1, canaries + 1):
            chance = (1 - delta) * tail(correct, canaries, 0.5) + delta
            allowed = p_value(correct, canaries, canaries=canaries, epsilon=0, delta=delta)
            assert chance <= allowed * (1 + 1e-12)
            assert chance > p_value(correct, canaries, canaries=canaries, epsilon=0, delta=0)


@pytest.mark.parametrize("guesses", [1, 20, 1000])
def test_the_bound_of_all_right_guesses_has_a_closed_form(guesses: int) -> None:
    found = lower_bound(guesses, guesses, canaries=guesses, delta=0, confidence=0.95)
    share = 0.05 ** (1 / guesses)
    assert found == pytest.approx(max(0.0, math.log(share / (1 - share))), abs=1e-6)


def test_half_right_guesses_show_nothing() -> None:
    assert lower_bound(50, 100, canaries=100, delta=0, confidence=0.95) == 0
    assert lower_bound(0, 0, canaries=100, delta=0, confidence=0.95) == 0


def test_the_bound_grows_with_the_right_guesses_and_shrinks_with_delta() -> None:
    bounds = [lower_bound(correct, 100, canaries=200, delta=1e-6, confidence=0.95) for correct in range(60, 101)]
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0] > 0
    by_delta = [lower_bound(95, 100, canaries=200, delta=delta, confidence=0.95) for delta in (0, 1e-6, 1e-4, 1e-2)]
    assert by_delta == sorted(by_delta, reverse=True)
    assert by_delta[0] > by_delta[-1]


def test_no_bound_is_above_the_ceiling() -> None:
    assert lower_bound(10, 10, canaries=10, delta=0, confidence=1e-30) <= CEILING


def responses(epsilon: float, canaries: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Randomised response of every coin as a score, and the coins."""
    generator = np.random.default_rng(seed)
    planted = generator.random(canaries) < 0.5
    truthful = generator.random(canaries) < math.exp(epsilon) / (math.exp(epsilon) + 1)
    return np.where(planted == truthful, 1.0, 0.0) + generator.random(canaries) / 10, planted


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_randomised_response_is_bounded_by_its_epsilon_and_nearly_reached(epsilon: float) -> None:
    scores, planted = responses(epsilon, 40_000, seed=7)
    for rule in guess_rules(40_000):
        correct = rule.correct(scores, planted)
        found = lower_bound(correct, rule.guesses, canaries=40_000, delta=0, confidence=SURE)
        assert found <= epsilon
        if rule.absent > 10_000:
            assert found > 0.85 * epsilon


def test_randomised_response_of_another_epsilon_breaks_the_promise() -> None:
    scores, planted = responses(4.0, 40_000, seed=7)
    rule = guess_rules(40_000)[0]
    assert lower_bound(rule.correct(scores, planted), rule.guesses, canaries=40_000, delta=0, confidence=SURE) > 3


def test_guesses_are_made_of_the_highest_and_the_lowest_scores() -> None:
    scores = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    planted = np.array([True, False, False, True, True])
    assert GuessRule("both", 2, 2).correct(scores, planted) == 2  # 5 right, 4 wrong, 2 wrong, 1 right
    assert GuessRule("highest", 1, 0).correct(scores, planted) == 1
    assert GuessRule("lowest", 0, 3).correct(scores, planted) == 1


def test_equal_scores_are_told_apart_by_order() -> None:
    planted = np.array([True, True, False, False])
    assert GuessRule("both", 2, 2).correct(np.zeros(4), planted) == 4
    assert GuessRule("both", 2, 2).correct(np.zeros(4), ~planted) == 0


def test_perfect_scores_make_perfect_guesses_however_many_are_planted() -> None:
    canaries = 1000
    for surplus in (-75, 0, 75):  # nearly five standard deviations
        planted = np.arange(canaries) < canaries // 2 + surplus
        for rule in guess_rules(canaries):
            assert rule.correct(planted.astype(float), planted) == rule.guesses


def test_rules_never_guess_a_canary_twice() -> None:
    for canaries in (50, 51, 100, 3000):
        assert all(0 < rule.guesses <= canaries for rule in guess_rules(canaries))


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 0), (2, 1e-6), (6, 1e-6)])
def test_as_many_canaries_as_are_needed_can_show_a_violation_and_one_less_cannot(epsilon: float, delta: float) -> None:
    needed = canaries_needed(epsilon, delta=delta, confidence=0.99)
    assert needed is not None
    for canaries, enough in ((needed, True), (needed - 1, False)):
        power = largest_bound(guess_rules(canaries), canaries=canaries, delta=delta, confidence=0.99)
        assert (power > epsilon) is enough


def test_where_delta_covers_everything_no_number_of_canaries_is_enough() -> None:
    assert canaries_needed(6, delta=0.1, confidence=0.95) is None


def randomised(epsilons: NDArray[np.float64], generator: np.random.Generator) -> tuple[NDArray[np.float64], ...]:
    """Coins, and scores that tell each with what its own epsilon allows."""
    planted = generator.random(len(epsilons)) < 0.5
    right = generator.random(len(epsilons)) < 1 / (1 + np.exp(-epsilons))
    return planted, (planted == right) + generator.random(len(epsilons)) / 2


def test_a_group_whose_records_leak_more_is_found_where_all_together_hide_it() -> None:
    few = np.arange(3000) < 300
    planted, scores = randomised(np.where(few, 20.0, 0.0), np.random.default_rng(0))
    whole = judge("own", scores, planted, guess_rules(3000), delta=1e-6, confidence=0.95)
    found = judge_groups({"own": scores}, planted, {"few": few, "many": ~few}, delta=1e-6, confidence=0.95)
    bounds = {each.name: each.epsilon for each in found}
    assert bounds["few"] > 2 > whole.epsilon
    assert bounds["many"] < 0.5
    assert found[0].epsilon <= found[0].largest_bound


def test_bounds_of_many_groups_are_too_high_no_more_often_than_is_said() -> None:
    generator, groups = np.random.default_rng(1), {str(place): np.arange(2000) // 100 == place for place in range(20)}

    def too_high(confidence: float) -> int:
        return sum(
            any(
                each.epsilon > 1
                for each in judge_groups({"own": scores}, planted, groups, delta=0.0, confidence=confidence)
            )
            for planted, scores in (randomised(np.ones(2000), generator) for _ in range(60))
        )

    assert too_high(0.9) <= 12, "6 are expected at most"
    uncorrected = 1 - (1 - 0.9) * len(groups) * len(guess_rules(100))
    assert too_high(uncorrected) >= 30, "far more would be"
