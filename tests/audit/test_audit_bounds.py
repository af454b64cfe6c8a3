"""Lower bounds: against references, against mechanisms whose loss is known in closed form, and how often they hold."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from understudy.audit.mechanisms import bounds as claimed
from understudy.audit.result import GuessRule, canaries_needed, guess_rules, judge, judge_groups, largest_bound
from understudy.evaluate.metrics.guesses import CEILING, lower_bound, p_value
from understudy.privacy.events import (
    Event,
    GaussianEvent,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
    SubsampledPureEvent,
    ZCDPEvent,
)
from understudy.privacy.guarantee import GDP, Budget

RUNS = 4_000


@pytest.mark.parametrize(("found", "trials"), [(0, 10), (1, 10), (9, 10), (10, 10), (37, 5_000), (4_999, 5_000)])
@pytest.mark.parametrize("alpha", [0.05, 1e-6])
def test_the_upper_limit_is_that_of_clopper_and_pearson(found: int, trials: int, alpha: float) -> None:
    reference = stats.binomtest(found, trials, alternative="less").proportion_ci(1 - alpha, method="exact").high
    assert claimed.upper_limit(found, trials, alpha=alpha) == pytest.approx(reference, rel=1e-9)


def exact(false_positive: float, false_negative: float) -> claimed.ErrorLimits:
    return claimed.ErrorLimits(np.array(false_positive), np.array(false_negative))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_exact_errors_of_randomised_response_give_its_epsilon(epsilon: float) -> None:
    wrong = 1 / (1 + math.exp(epsilon))
    assert exact(wrong, wrong).epsilon(0.0) == pytest.approx(epsilon)


def test_both_directions_follow_of_one_test() -> None:
    """Seldom a false alarm or seldom a missed one: either shows the same epsilon."""
    seldom, often = 0.001, 1 - 0.001 * math.e**3
    assert exact(seldom, often).epsilon(0.0) == pytest.approx(3)
    assert exact(often, seldom).epsilon(0.0) == pytest.approx(3)


def test_delta_is_taken_off_what_is_seen() -> None:
    assert exact(0.1, 0.4).epsilon(0.2) == pytest.approx(math.log(0.4 / 0.1))
    assert exact(0.1, 0.4).epsilon(0.7) == 0


@pytest.mark.parametrize("mu", [0.2, 1.0, 4.0])
def test_the_exact_errors_of_a_gaussian_give_its_mu_at_every_threshold(mu: float) -> None:
    for threshold in (-1.0, 0.3, 2.0):
        errors = exact(float(stats.norm.sf(threshold)), float(stats.norm.cdf(threshold - mu)))
        assert errors.mu() == pytest.approx(mu)
        assert errors.epsilon(1e-6) <= GDP(mu).epsilon(1e-6)


def test_the_best_of_all_thresholds_of_a_gaussian_gives_its_epsilon_at_delta() -> None:
    """The analytic Gaussian curve is the envelope of its tests."""
    thresholds = np.linspace(-6, 12, 20_000)
    errors = claimed.ErrorLimits(stats.norm.sf(thresholds), stats.norm.cdf(thresholds - 1.0))
    assert errors.epsilon(1e-3).max() == pytest.approx(GDP(1.0).epsilon(1e-3), rel=1e-4)


def test_a_test_no_better_than_a_coin_shows_nothing() -> None:
    errors = exact(0.5, 0.5)
    assert (errors.epsilon(0.0), errors.mu(), errors.posterior(0.1)) == (0, 0, pytest.approx(0.1))
    worse = exact(0.9, 0.9)
    assert (worse.epsilon(0.0), worse.mu()) == (0, 0)


def test_a_posterior_is_that_of_the_same_test_made_bolder_or_more_careful() -> None:
    assert exact(0.1, 0.2).posterior(0.1) == pytest.approx(0.8)
    assert exact(0.2, 0.2).posterior(0.1) == pytest.approx(0.4)  # says "present" half as often
    assert exact(0.1, 0.2).posterior(0.55) == pytest.approx(0.9)  # and to half of the others, too


# -- of runs ----------------------------------------------------------------------------------------------------------


def answers(epsilon: float, generator: np.random.Generator) -> list[np.ndarray]:
    """Randomised response to "is the unit there?": truth with probability e^epsilon / (1 + e^epsilon)."""
    truth = 1 / (1 + math.exp(-epsilon))
    return [(generator.random(RUNS) < share).astype(float) for share in (1 - truth, truth)]


def too_high(alpha: float, repetitions: int) -> int:
    """How often the bound on randomised response of epsilon 1 is above 1."""
    generator = np.random.default_rng(0)
    return sum(
        claimed.best_bound(*answers(1.0, generator), lambda of: of.epsilon(0.0), alpha=alpha) > 1.0
        for _ in range(repetitions)
    )


def test_a_bound_is_too_high_as_seldom_as_it_says() -> None:
    assert too_high(0.05, 1_000) <= 50
    assert too_high(0.999, 200) > 20  # the test above can fail


def test_a_bound_is_near_to_what_is_lost() -> None:
    generator = np.random.default_rng(1)
    for epsilon in (1.0, 3.0):
        found = claimed.best_bound(*answers(epsilon, generator), lambda of: of.epsilon(0.0), alpha=0.05)
        assert 0.85 * epsilon < found <= epsilon
    absent, present = generator.normal(0, 1, RUNS), generator.normal(1.5, 1, RUNS)
    assert 1.35 < claimed.best_bound(absent, present, lambda of: of.mu(), alpha=0.05) <= 1.5


def test_runs_that_choose_the_threshold_are_not_counted() -> None:
    """The best of many thresholds on pure noise looks like a find on the runs that chose it."""
    assert claimed.counted(RUNS) == 3_000
    generator = np.random.default_rng(2)
    first, others = generator.random(1_000), generator.random(3_000)
    absent = np.concatenate([first, others])
    present = np.concatenate([first + 1, others])  # told apart where it does not count
    assert claimed.best_bound(absent, present, lambda of: of.epsilon(0.0), alpha=0.05) == 0
    assert (
        claimed.best_bound(absent, np.concatenate([first + 1, others + 1]), lambda of: of.epsilon(0.0), alpha=0.05) > 5
    )


def test_limits_share_their_chance_of_error() -> None:
    both = claimed.limits(3, 7, 100, alpha=0.02)
    assert both.false_positive == claimed.upper_limit(3, 100, alpha=0.01)
    assert both.false_negative == claimed.upper_limit(7, 100, alpha=0.01)


# -- zCDP, and units that are drawn at a rate --------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.02, 0.5, 3.0])
def test_no_test_of_a_gaussian_shows_more_rho_than_it_has_and_the_best_not_much_less(rho: float) -> None:
    mu = math.sqrt(2 * rho)
    thresholds = np.linspace(-4, 4 + mu, 400)
    found = claimed.ErrorLimits(stats.norm.sf(thresholds), stats.norm.cdf(thresholds - mu)).rho
    assert 0.6 * rho < found.max() <= rho


def test_the_rho_of_randomised_response_is_its_largest_renyi_divergence_over_the_order() -> None:
    wrong, right = 0.2, 0.8
    orders = np.linspace(1.0001, 60, 200_000)
    moments = right**orders * wrong ** (1 - orders) + wrong**orders * right ** (1 - orders)
    reference = float((np.log(moments) / (orders - 1) / orders).max())
    assert exact(wrong, wrong).rho == pytest.approx(reference, rel=1e-3)
    assert exact(wrong, wrong).rho <= reference


def test_both_directions_count_for_rho_and_a_test_worse_than_a_coin_shows_none() -> None:
    assert exact(0.1, 0.4).rho == pytest.approx(float(exact(0.4, 0.1).rho))
    assert exact(0.5, 0.5).rho == exact(0.8, 0.7).rho == 0


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_the_exact_errors_of_a_unit_drawn_at_a_rate_give_its_mu(rate: float) -> None:
    for threshold in (-0.5, 1.0, 2.5):
        right = (1 - rate) * stats.norm.sf(threshold) + rate * stats.norm.sf(threshold - 1.5)
        assert exact(float(stats.norm.sf(threshold)), float(1 - right)).mu(rate) == pytest.approx(1.5)


def test_a_test_that_is_right_more_often_than_units_are_drawn_shows_a_mu_that_is_large_and_finite() -> None:
    assert 5 < exact(0.01, 0.4).mu(0.5) < 20


# -- the one-run bound ------------------------------------------------------------------------------------------------

SURE = 1 - 1e-6


def tail(correct: int, guesses: int, share: float) -> float:
    """P[Binomial(guesses, share) >= correct], term by term."""
    return sum(
        math.comb(guesses, k) * share**k * (1 - share) ** (guesses - k) for k in range(max(0, correct), guesses + 1)
    )


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


def epsilon(*events: Event, delta: float = 1e-6) -> claimed.Claim:
    return claimed.Claim(events, delta)


EVENTS = {
    "Gaussian": (GaussianEvent(1.2), GaussianEvent(2.0)),
    "Gaussian on everybody": (SubsampledGaussianEvent(1.2, 1.0, 3),),
    "sampled Gaussian": (SubsampledGaussianEvent(0.8, 0.3, 1),),
    "zCDP": (ZCDPEvent(0.3),),
    "pure": (PureEvent(1.0), PureEvent(0.5)),
    "sampled pure": (SubsampledPureEvent(1.0, 0.5, 1),),
    "sampled Gaussian, often": (SubsampledGaussianEvent(1.0, 0.3, 3),),
}
CURVES = ["Gaussian", "Gaussian", "sampled Gaussian", "zCDP", None, None, None]


def test_a_promise_has_the_curve_that_its_events_have() -> None:
    assert [epsilon(*events).curve for events in EVENTS.values()] == CURVES


@pytest.mark.parametrize("name", EVENTS)
def test_no_test_on_the_promised_curve_refutes_the_promise(name: str) -> None:
    events = EVENTS[name]
    pure = "pure" in name
    claim = epsilon(*events, delta=0.0 if pure else 1e-6)
    for false_positive in (0.001, 0.05, 0.3, 0.8):
        best = claimed.ErrorLimits(np.array(false_positive), np.array(1 - claim.power(false_positive)))
        assert claim.bound(best) <= claim.value * (1 + 1e-9)
        if claim.curve:
            found = claim.of_curve(float(claim.along_curve(best)))
            assert found == pytest.approx(claim.value, rel=2e-3)
            better = claimed.ErrorLimits(best.false_positive, 0.7 * best.false_negative)
            assert claim.of_curve(float(claim.along_curve(better))) > claim.value


def test_pure_privacy_is_refuted_where_its_best_test_is_beaten() -> None:
    claim = epsilon(PureEvent(1.0), delta=0.0)
    wrong = 1 / (1 + math.e)
    assert claim.bound(claimed.ErrorLimits(np.array(wrong), np.array(wrong))) == pytest.approx(claim.value)
    assert claim.bound(claimed.ErrorLimits(np.array(wrong), np.array(wrong * 0.9))) > claim.value


def test_the_epsilon_of_one_sampled_gaussian_is_that_of_its_privacy_loss_distribution() -> None:
    for noise, rate in ((0.8, 0.3), (2.0, 0.05)):
        claim = epsilon(SubsampledGaussianEvent(noise, rate, 1))
        assert claim.of_curve(1 / noise) == pytest.approx(claim.value, rel=2e-3)
        assert claim.of_curve(0.0) == 0


def test_the_numbers_are_named() -> None:
    assert epsilon(PureEvent(1.0), delta=0.0).words == "epsilon at delta 0"
    assert claimed.Claim((GaussianEvent(1.0),), prior=0.01).words == "posterior at prior 0.01"


def test_a_secret_that_is_always_drawn_has_a_gaussian_curve_and_one_that_is_drawn_sometimes_has_none() -> None:
    always, sometimes = MixtureEvent(1.5, (((1.0, 2),),)), MixtureEvent(1.5, (((0.5, 2),),))
    assert claimed.Claim((always, GaussianEvent(1.0)), prior=0.01).curve == "Gaussian"
    claim = claimed.Claim((always,), prior=0.01)
    assert claim.of_curve(2 / 1.5) == pytest.approx(claim.value, rel=1e-6)
    assert claimed.Claim((sometimes,), prior=0.01).curve is None


def test_secrets_are_promised_what_one_gaussian_release_of_the_same_epsilon_would() -> None:
    spend = claimed.secret_budget(Budget(4, "1e-6"))
    assert float(spend.prior) == claimed.PRIOR
    assert GDP(spend.mu).epsilon(1e-6) == pytest.approx(4, rel=1e-6)
    assert float(spend.posterior) == pytest.approx(stats.norm.sf(stats.norm.isf(claimed.PRIOR) - spend.mu))
