"""Tokens chosen by subsets of a Poisson sample: sampler, noise and event agree, and the printed variants are caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from noise_tests import ALPHA
from numpy.typing import NDArray
from scipy import stats

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy import events
from understudy.privacy.accountant import DISCRETE_EXCESS, Composition
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.noise import InsecureNoNoise, NoiseKind, NoiseSource, SystemNoise
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.subsampled import LabelTokens, SubsampledTokens, subsampled_multiplier, votes_epsilon
from understudy.privacy.unit import Unit

GRID = SubsampledTokens.grid
GAUSSIAN = SubsampledTokens("gaussian", subsets=4, noise_multiplier=1.0, rate=0.1, tokens=20)
VOTES = replace(GAUSSIAN, noise="votes")


def opened(mechanism: SubsampledTokens, source: NoiseSource | None = None, *, spent: int = 0) -> LabelTokens:
    return mechanism.open(source or SystemNoise()).label(0, spent=spent)


# -- events -----------------------------------------------------------------------------------------------------------


def test_the_poisson_subsampled_gaussian_costs_what_the_design_says() -> None:
    event = events.SubsampledGaussianEvent(1.0, 0.01, 1000)
    assert event.to_pld().get_epsilon_for_delta(1e-6) == pytest.approx(2.1245, abs=5e-5)
    assert Composition((event,)).epsilon(1e-6) == pytest.approx(2.1245, abs=1e-3)  # the discrete excess
    assert Composition((event,)).epsilon(1e-6) > event.to_pld().get_epsilon_for_delta(1e-6)


def test_releases_of_one_event_equal_as_many_events() -> None:
    for one, many in (
        (events.SubsampledGaussianEvent(2.0, 0.05, 1), events.SubsampledGaussianEvent(2.0, 0.05, 6)),
        (events.SubsampledPureEvent(1.0, 0.05, 1), events.SubsampledPureEvent(1.0, 0.05, 6)),
    ):
        six = Composition((one,) * 6)
        assert six.epsilon(1e-6) == pytest.approx(Composition((many,)).epsilon(1e-6), rel=1e-6)
        assert math.fsum(event.rho for event in six.events) == pytest.approx(many.rho)


def test_at_rate_1_an_event_costs_what_it_costs_on_all_data() -> None:
    everyone = Composition((events.SubsampledGaussianEvent(4.0, 1.0, 9),)).epsilon(1e-6)
    assert everyone == pytest.approx(Composition((events.GaussianEvent(4.0),) * 9).epsilon(1e-6), rel=2e-3)
    assert events.SubsampledPureEvent(0.3, 1.0, 5).pure_epsilon == pytest.approx(events.PureEvent(0.3).pure_epsilon * 5)


def test_a_pure_mechanism_on_a_sample_is_as_private_as_the_formula_says() -> None:
    event = events.SubsampledPureEvent(1.0, 0.1, 3)
    assert event.each == pytest.approx(math.log(1 + 0.1 * (math.e - 1)))
    assert event.pure_epsilon == Composition((event,)).epsilon(0) == pytest.approx(3 * event.each)
    assert Composition((replace(event, count=500),)).epsilon(1e-6) < 500 * event.each
    assert events.SubsampledPureEvent(800.0, 0.1, 1).each == 800.0


def test_the_rho_of_a_sampled_event_bounds_its_renyi_divergence_in_both_directions() -> None:
    """By numerical integration, at several orders."""
    x = np.linspace(-60, 60, 400_001)
    for sigma, rate in ((0.7, 0.1), (1.0, 0.5), (3.0, 0.01)):
        rho = events.SubsampledGaussianEvent(sigma, rate, 1).rho
        without = stats.norm.logpdf(x, 0, sigma)
        with_it = np.logaddexp(math.log1p(-rate) + without, math.log(rate) + stats.norm.logpdf(x, 1, sigma))
        for order in (1.1, 2.0, 5.0, 20.0):
            for p, q in ((with_it, without), (without, with_it)):
                divergence = math.log(np.trapezoid(np.exp(order * p - (order - 1) * q), x)) / (order - 1)
                assert divergence <= order * rho * (1 + 1e-9)


@pytest.mark.parametrize(("sigma", "rate"), [(0.7, 0.1), (1.0, 0.5), (3.0, 0.01)])
def test_the_losses_of_a_sampled_event_bound_delta_in_both_directions(sigma: float, rate: float) -> None:
    """By numerical integration: a unit that leaves and one that joins have losses of their own."""
    x = np.linspace(-12 * sigma, 1 + 12 * sigma, 400_001)
    without = stats.norm.pdf(x, 0, sigma)
    with_it = (1 - rate) * without + rate * stats.norm.pdf(x, 1, sigma)
    losses = events.SubsampledGaussianEvent(sigma, rate, 1).to_pld()
    for half, p, q in ((losses._pmf_remove, with_it, without), (losses._pmf_add, without, with_it)):
        epsilon = 0.3 * float(np.log(p / q)[np.abs(x) < 4 * sigma].max())
        delta = float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x))
        assert delta * (1 - 1e-6) < half.get_delta_for_epsilon(epsilon) < delta * 1.001


def test_every_release_pays_for_the_excess_of_its_discrete_noise() -> None:
    event = events.SubsampledGaussianEvent(1.0, 0.02, 1000)
    smaller = 1e-6 / (1 + 1000 * DISCRETE_EXCESS)
    assert Composition((event,)).epsilon(1e-6) == events.epsilon_of(event.to_pld(), smaller)


def test_on_the_coarsest_grid_the_excess_on_a_sample_is_no_larger_than_on_all_data() -> None:
    """delta of a mixture is a constant times delta of its parts at another epsilon: here summed on the grid."""
    sigma, rate = 64.0, 0.1  # a grid so coarse that the excess can be seen
    x = np.arange(-2000, 2001)

    def deltas(here: NDArray[np.float64], there: NDArray[np.float64], epsilon: float) -> float:
        return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())

    def discrete(mean: float) -> NDArray[np.float64]:
        weight = np.exp(-((x - mean) ** 2) / (2 * sigma**2))
        return np.asarray(weight / weight.sum())

    a, b = discrete(0), discrete(64)
    mixture = (1 - rate) * a + rate * b
    for epsilon in (0.05, 0.5, 1.5):
        inner = math.log(1 + (math.exp(epsilon) - 1) / rate)
        assert deltas(mixture, a, epsilon) == pytest.approx(rate * deltas(b, a, inner), rel=1e-9)
    for epsilon in (0.02, 0.05, 0.1):
        outside = 1 - math.exp(epsilon) * (1 - rate)
        inner = math.log(math.exp(epsilon) * rate / outside)
        assert deltas(a, mixture, epsilon) == pytest.approx(outside * deltas(a, b, inner), rel=1e-9)


@pytest.mark.parametrize(
    "event", [events.SubsampledGaussianEvent(5 / 3, 0.01, 7), events.SubsampledPureEvent(1 / 3, 0.01, 7)]
)
def test_events_survive_json_exactly_with_a_whole_count(
    event: events.SubsampledGaussianEvent | events.SubsampledPureEvent,
) -> None:
    back = events.event_from_json(events.event_to_json(event))
    assert back == event
    assert isinstance(back, events.SubsampledGaussianEvent | events.SubsampledPureEvent)
    assert isinstance(back.count, int)
    assert "7 times on a Poisson sample of rate 0.01" in str(event)
    assert 0.01 < Composition((event,)).power(0.01) <= 1


@pytest.mark.parametrize(("rate", "count"), [(0.0, 1), (1.1, 1), (-0.1, 1), (0.1, 0), (0.1, 1.5), (math.nan, 1)])
@pytest.mark.parametrize("kind", [events.SubsampledGaussianEvent, events.SubsampledPureEvent])
def test_impossible_rates_are_refused(kind: Callable[[float, float, float], object], rate: float, count: float) -> None:
    with pytest.raises(ConfigError):
        kind(1.0, rate, count)


# -- what a budget buys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "rate", "tokens"),
    [(Budget(1, "1e-6"), 0.01, 100), (Budget(2, "1e-5"), 0.02, 500), (Budget("0.2", "1e-6"), 0.05, 50)],
)
def test_the_noise_for_a_budget_never_overshoots_and_wastes_little(budget: Budget, rate: float, tokens: int) -> None:
    delta = float(budget.delta)
    gaussian = events.SubsampledGaussianEvent(subsampled_multiplier(budget, rate=rate, count=tokens), rate, tokens)
    votes = events.SubsampledPureEvent(votes_epsilon(budget, rate=rate, count=tokens), rate, tokens)
    for event in (gaussian, votes):
        Plan("method", Unit(), budget, (Charge("tokens", Declared(event), "to test"),))  # checks that it is within
        assert Composition((event,)).epsilon(delta) == pytest.approx(float(budget.epsilon), rel=0.01)


def test_votes_need_no_delta_and_are_the_better_for_one() -> None:
    pure = votes_epsilon(Budget(1, 0), rate=0.1, count=100)
    event = events.SubsampledPureEvent(pure, 0.1, 100)
    assert Composition((event,)).epsilon(0) <= 1
    assert event.pure_epsilon == pytest.approx(1, rel=1e-6)
    assert votes_epsilon(Budget(1, "1e-6"), rate=0.1, count=100) > 1.2 * pure


def test_who_is_hardly_ever_drawn_has_noise_all_the_same() -> None:
    budget, rate, tokens = Budget(3, "1e-6"), 1e-12, 10
    assert subsampled_multiplier(budget, rate=rate, count=tokens) == 0.25
    assert votes_epsilon(budget, rate=rate, count=tokens) == pytest.approx(20, rel=1e-3)
    assert votes_epsilon(Budget(100_000, 0), rate=rate, count=tokens) == pytest.approx(20, rel=1e-3)


def test_gaussian_noise_without_a_delta_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="delta = 0"):
        subsampled_multiplier(Budget(1, 0), rate=0.1, count=10)


# -- paying, counting, scales -----------------------------------------------------------------------------------------


def test_the_event_and_the_scale_are_known_before_anything_is_drawn() -> None:
    assert GAUSSIAN.event == events.SubsampledGaussianEvent(1.0, 0.1, 20)
    assert VOTES.event == events.SubsampledPureEvent(1.0, 0.1, 20)
    assert GAUSSIAN.scale == pytest.approx(math.sqrt(2) * GRID)
    assert VOTES.scale == pytest.approx(2.0)


@pytest.mark.parametrize("mechanism", [GAUSSIAN, VOTES], ids=["gaussian", "votes"])
def test_a_paid_charge_counts_the_tokens_of_each_label_once(mechanism: SubsampledTokens) -> None:
    tokens = mechanism.open(SystemNoise())
    assert [tokens.label(number).left for number in (0, 1)] == [20, 20]
    with pytest.raises(PrivacyError, match="label 1 would be used twice"):
        tokens.label(1, spent=20)


def test_each_token_has_one_sample_of_its_own_and_is_counted() -> None:
    tokens = opened(replace(VOTES, tokens=3), spent=1)
    assert tokens.left == 2
    with pytest.raises(PrivacyError, match="without a sample"):
        tokens.choose(np.array([4, 0]))
    for left in (1, 0):
        tokens.sample(10)
        with pytest.raises(PrivacyError, match="last sample has not"):
            tokens.sample(10)
        assert tokens.choose(np.array([4, 0])) in (0, 1)
        assert tokens.left == left
    with pytest.raises(PrivacyError, match="no token is left"):
        tokens.sample(10)
    assert tokens.spent == 3


@pytest.mark.parametrize("spent", [-1, 21])
def test_more_stored_tokens_than_were_charged_are_refused(spent: int) -> None:
    with pytest.raises(PrivacyError, match="than were charged"):
        opened(GAUSSIAN, spent=spent)


@pytest.mark.parametrize(
    ("mechanism", "sums"), [(GAUSSIAN, [4 * GRID, 1]), (GAUSSIAN, [-1, 5]), (VOTES, [4, 1]), (VOTES, [-1, 5])]
)
def test_sums_that_the_subsets_cannot_have_are_refused(mechanism: SubsampledTokens, sums: list[int]) -> None:
    tokens = opened(mechanism)
    tokens.sample(3)
    with pytest.raises(PrivacyError, match="more than they may"):
        tokens.choose(np.array(sums, dtype=np.int64))


@pytest.mark.parametrize("change", [{"subsets": 0}, {"rate": 0}, {"rate": 1.5}, {"tokens": 0}, {"noise_multiplier": 0}])
def test_an_impossible_parameter_is_refused(change: dict[str, float]) -> None:
    for mechanism in (GAUSSIAN, VOTES):
        with pytest.raises(ConfigError):
            replace(mechanism, **change)  # type: ignore[arg-type]


def test_noise_that_does_not_fit_the_grid_is_refused() -> None:
    for multiplier in (0.01, 1e12):
        with pytest.raises(ConfigError, match="does not fit the integer grid"):
            replace(GAUSSIAN, noise_multiplier=multiplier)


def test_the_noise_lies_on_every_candidate_with_the_declared_scale() -> None:
    class Noted(InsecureNoNoise):
        asked: list[tuple[str, float, int]] = []  # noqa: RUF012

        def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
            self.asked.append((kind, scale, size))
            return np.array([0, 5, 0, 0, 0])

    tokens = opened(GAUSSIAN, Noted())
    tokens.sample(3)
    assert tokens.choose(np.array([3, 0, 2, 0, 0])) == 1
    assert Noted.asked == [("gaussian", GAUSSIAN.scale, 5)]


# -- sampling ---------------------------------------------------------------------------------------------------------


def test_units_are_drawn_at_the_rate_into_uniform_subsets_independently() -> None:
    sample = opened(replace(GAUSSIAN, subsets=5, rate=0.3)).sample(30_000)
    included, subset = sample.included, sample.subset
    assert included.dtype == np.bool_
    assert subset.dtype == np.int64
    assert stats.binomtest(int(included.sum()), 30_000, 0.3).pvalue > ALPHA
    assert stats.binomtest(int(included.sum()), 30_000, 0.3 * 1.5).pvalue < ALPHA
    assert stats.chisquare(np.bincount(subset, minlength=5)).pvalue > ALPHA
    table = np.array([np.bincount(subset[included == drawn], minlength=5) for drawn in (True, False)])
    assert stats.chi2_contingency(table).pvalue > ALPHA
    for one, other in ((subset[1:], subset[:-1]), (included[1:] * 1, included[:-1] * 1)):
        assert stats.chi2_contingency(stats.contingency.crosstab(one, other).count).pvalue > ALPHA


def test_every_token_samples_anew() -> None:
    tokens = opened(VOTES)
    samples = []
    for _ in range(2):
        samples.append(tokens.sample(200))
        tokens.choose(np.array([1]))
    for part in ("included", "subset", "priority"):
        assert not np.array_equal(getattr(samples[0], part), getattr(samples[1], part))


def said(groups: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """What subsets say together: each the first of two candidates if its members are alike, else the second."""
    alike = sum(len(set(group.tolist())) <= 1 for group in groups)
    return np.array([alike, len(groups) - alike], dtype=np.int64) * GRID


def test_one_more_unit_moves_one_subset_and_with_a_cut_of_an_ordered_sample_all_of_them() -> None:
    subsets, kinds = 8, np.arange(17) // 2 % 2  # a a b b a a ...: cut in twos all are alike, moved by one none is
    most = math.sqrt(2) * GRID
    moved = 0.0
    for _ in range(100):
        sample = opened(replace(GAUSSIAN, subsets=subsets, rate=0.8)).sample(len(kinds))
        included, subset = sample.included, sample.subset
        included[0] = True  # the unit that is there or not; all others have the same coins
        dealt = [np.flatnonzero(included & (subset == each)) for each in range(subsets)]
        with_it, without = said([kinds[each] for each in dealt]), said([kinds[each[each > 0]] for each in dealt])
        moved = max(moved, float(np.linalg.norm(with_it - without)))
    assert 0 < moved <= most
    cut = said(np.split(kinds[:16], subsets)) - said(np.split(kinds[1:], subsets))
    assert np.linalg.norm(cut) == pytest.approx(subsets * most)
