"""Secret protection of several releases: against closed forms, an independent accountant and simulated tests."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from understudy.base.errors import ConfigError
from understudy.privacy.events import Event, GaussianEvent, Inclusion, MixtureEvent, PureEvent, ZCDPEvent
from understudy.privacy.guarantee import SecretBudget, normal_quantile, phi_bar
from understudy.privacy.secrets.bounds import Draws, best_test, poisson_binomial
from understudy.privacy.secrets.composition import calibrate, in_parts, posterior, secret_split

TEN_TIMES = SecretBudget("1e-4", "1e-3")
ALWAYS: Inclusion = ((1.0, 1),)
OFTEN: Inclusion = ((0.5, 5),)
MANY: Inclusion = ((0.05, 80),)
RARE: Inclusion = ((0.05, 5),)
TWO_RATES: Inclusion = ((0.2, 3), (0.1, 10))
PRIORS = (1e-6, 1e-4, 1e-2)


def mixture(noise_multiplier: float, *secrets: Inclusion) -> MixtureEvent:
    return MixtureEvent(noise_multiplier, secrets)


def test_the_cost_of_several_secrets_is_that_of_the_dearest_with_all_its_records() -> None:
    event = mixture(2.0, ((0.5, 1),), ((0.1, 2), (0.2, 1)), ())
    assert event.rho == 3**2 / (2 * 2.0**2)


def accountant_bounds(events: Sequence[Event]) -> list[float]:
    """By dp_accounting: the least of delta + e^epsilon p over its curve where the secret is removed, for each prior."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    losses = []
    for event, releases in Counter(events).items():
        law = poisson_binomial(event.inclusion[0] if isinstance(event, MixtureEvent) else ALWAYS)
        records = np.flatnonzero(law > 1e-18)
        chances = law[records] / law[records].sum()
        losses.append(
            pld.from_mixture_gaussian_mechanism(
                event.noise_multiplier,  # type: ignore[union-attr]
                [float(k) for k in records],
                list(chances),
                value_discretization_interval=1e-2,
            ).self_compose(releases)
        )
    together = functools.reduce(lambda a, b: a.compose(b), losses)._pmf_remove
    epsilons = np.linspace(-5, 20, 2501)
    deltas = np.asarray(together.get_delta_for_epsilon(epsilons))
    return [float(np.min(deltas + np.exp(epsilons) * prior)) for prior in PRIORS]


LISTS: dict[str, list[Event]] = {
    "ten with many records": [mixture(20.5854, MANY)] * 10,
    "ten with rare records": [mixture(1.78859, RARE)] * 10,
    "ten with frequent records": [mixture(12.8164, OFTEN)] * 10,
    "two rates": [mixture(3.0, ((0.3, 2), (0.1, 3)))] * 3,
    "mixed with Gaussian noise": [mixture(4.0, OFTEN), GaussianEvent(3.0), mixture(2.0, RARE), GaussianEvent(2.5)],
}


@pytest.mark.parametrize("events", LISTS.values(), ids=LISTS.keys())
def test_an_independent_accountant_finds_the_same(events: list[Event]) -> None:
    for prior, bound in zip(PRIORS, accountant_bounds(events), strict=True):
        assert bound == pytest.approx(posterior(events, prior), rel=1e-3)


@pytest.mark.parametrize("events", LISTS.values(), ids=LISTS.keys())
def test_parts_of_the_events_bound_the_posterior_from_below(events: list[Event]) -> None:
    for prior in PRIORS:
        found = max(posterior(part, prior) for part in in_parts(events))
        assert found <= posterior(events, prior) * (1 + 1e-6)
        assert found > (0.7 if len(set(events)) == 1 else 0.1) * posterior(events, prior)


def test_parts_of_many_secrets_or_records_are_few() -> None:
    many = mixture(3.0, *(((0.5, 10**6 - number),) for number in range(3000)), ((0.5, 2), (1.0, 10**6)))
    ((), (part,)) = in_parts([many] * 5)
    assert isinstance(part, MixtureEvent)
    assert len(part.inclusion) == 1000
    assert {sum(records for _, records in secret) for secret in part.inclusion} == {1000}
    assert part.inclusion[-1] == ((0.5, 2), (1.0, 998))
    assert part.noise_multiplier == 3.0
    ((), *parts) = in_parts([mixture(3.0 + number, *many.inclusion) for number in range(100)])
    assert sum(len(part.inclusion) for (part,) in parts if isinstance(part, MixtureEvent)) == 1000


@pytest.mark.parametrize(("releases", "mu"), [(1, 0.1), (1, 4.0), (3, 1.0), (100, 0.1), (100, 4.0)])
@pytest.mark.parametrize("prior", [1e-12, 0.01, 0.99])
def test_losses_of_gaussian_releases_have_the_closed_form_at_any_prior(releases: int, mu: float, prior: float) -> None:
    found = best_test([Draws(math.sqrt(releases) / mu, poisson_binomial(ALWAYS), releases)], prior)
    exact = phi_bar(-normal_quantile(prior) - mu)
    assert exact <= found <= exact * (1 + 1e-4)


@settings(deadline=None, max_examples=10)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1), st.integers(1, 20)), min_size=1, max_size=3).map(tuple),
    st.floats(1e-8, 0.9),
    st.floats(0.3, 60),
)
def test_losses_of_one_mixture_come_to_its_blow_up(inclusion: Inclusion, prior: float, noise: float) -> None:
    found = best_test([Draws(noise, poisson_binomial(inclusion), 1)], prior)
    exact = posterior([MixtureEvent(noise, (inclusion,))], prior) / (1 + 1e-7)
    assert min(exact, 1 - 1e-12) <= found * (1 + 1e-12)
    assert found <= exact * (1 + 2e-3)


@pytest.mark.parametrize(
    ("inclusion", "sigma", "shared"), [(MANY, 20.5854, 15.4), (RARE, 1.78859, 155)], ids=["many", "rare"]
)
def test_one_draw_used_ten_times_is_worse_than_ten_draws(inclusion: Inclusion, sigma: float, shared: float) -> None:
    """Ten releases of one draw are one release at sigma / sqrt(10)."""
    assert posterior([mixture(sigma, inclusion)] * 10, 1e-4) / 1e-4 == pytest.approx(10, rel=1e-4)
    assert posterior([mixture(sigma / math.sqrt(10), inclusion)], 1e-4) / 1e-4 == pytest.approx(shared, rel=0.005)


def test_ten_releases_at_the_noise_of_one_blow_up_418_times() -> None:
    sigma = calibrate(TEN_TIMES, [ALWAYS])
    for events in ([GaussianEvent(sigma)] * 10, [mixture(sigma, ALWAYS)] * 10):
        assert posterior(events, 1e-4) / 1e-4 == pytest.approx(418, abs=0.5)


@pytest.mark.parametrize(
    ("inclusion", "releases"),
    [
        *((inclusion, 1) for inclusion in (ALWAYS, ((1.0, 5),), OFTEN, MANY, RARE, TWO_RATES)),
        *((inclusion, 4) for inclusion in (ALWAYS, RARE, TWO_RATES)),
    ],
)
def test_calibration_never_overshoots_and_wastes_nothing(inclusion: Inclusion, releases: int) -> None:
    sigma = calibrate([TEN_TIMES], (inclusion,), releases=releases)
    assert posterior([mixture(sigma, inclusion)] * releases, 1e-4) <= 1e-3
    assert posterior([mixture(sigma * (1 - 1e-5), inclusion)] * releases, 1e-4) > 1e-3


def test_every_secret_keeps_its_own_budget() -> None:
    strict, loose = SecretBudget("1e-4", "2e-4"), SecretBudget("1e-2", "0.3")
    secrets = (MANY, ALWAYS, ((0.05, 80),))
    sigma = calibrate([loose, strict, TEN_TIMES], secrets)
    for budget, secret in zip((loose, strict, TEN_TIMES), secrets, strict=True):
        assert posterior([mixture(sigma, secret)], budget.prior) <= budget.posterior
    alone = (calibrate(budget, [secret]) for budget, secret in zip((loose, strict, TEN_TIMES), secrets, strict=True))
    assert sigma == pytest.approx(max(alone), rel=1e-7)


@pytest.mark.parametrize(
    ("budgets", "secrets", "releases"),
    [([], [ALWAYS], 1), ([TEN_TIMES] * 2, [ALWAYS] * 3, 1), ([TEN_TIMES], [], 1), ([TEN_TIMES], [ALWAYS], 0)],
)
def test_budgets_that_fit_no_secrets_are_one_clear_error(
    budgets: list[SecretBudget], secrets: list[Inclusion], releases: int
) -> None:
    with pytest.raises(ConfigError, match="differs from that of the secrets"):
        calibrate(budgets, secrets, releases=releases)


@pytest.mark.parametrize("shares", [[1.0], [1.0, 2.0, 3.0], [0.1] * 10])
def test_a_split_over_gaussian_releases_spends_the_budget_and_no_more(shares: list[float]) -> None:
    multipliers = secret_split(TEN_TIMES, shares)
    assert posterior(list(map(GaussianEvent, multipliers)), 1e-4) == pytest.approx(1e-3, rel=1e-6)
    assert posterior(list(map(GaussianEvent, multipliers)), 1e-4) <= 1e-3
    for multiplier, share in zip(multipliers, shares, strict=True):
        assert multipliers[0] ** 2 * shares[0] == pytest.approx(multiplier**2 * share, rel=1e-9)


def test_gaussian_events_compose_by_their_mu() -> None:
    events = [GaussianEvent(2.0), GaussianEvent(3.0), mixture(8.0, ((1.0, 2),))]
    mu = math.sqrt(1 / 4 + 1 / 9 + 1 / 16)
    assert posterior(events, 1e-3) == pytest.approx(phi_bar(-normal_quantile(1e-3) - mu), rel=1e-6)


def test_counting_n_equals_composing_n_and_one_gaussian_equals_its_parts() -> None:
    parts = [mixture(3.0, OFTEN), *[GaussianEvent(4.0)] * 4]
    assert posterior(parts, 1e-3) == pytest.approx(posterior([mixture(3.0, OFTEN), GaussianEvent(2.0)], 1e-3), rel=1e-5)


def test_the_order_of_events_does_not_matter() -> None:
    events = [mixture(3.0, OFTEN), GaussianEvent(4.0), mixture(2.0, RARE)]
    found = [posterior(order, 1e-3) for order in itertools.permutations(events)]
    assert max(found) == pytest.approx(min(found), rel=1e-9)


def test_one_more_event_never_lowers_the_posterior() -> None:
    before, events = 1e-3, []
    for event in (mixture(3.0, RARE), GaussianEvent(5.0), mixture(3.0, RARE), mixture(20.0, MANY)):
        events.append(event)
        after = posterior(events, 1e-3)
        assert after > before
        before = after


def test_two_releases_come_to_more_than_the_sum_of_their_posteriors() -> None:
    """SecPE's Theorem 3 says r1 + r2."""
    for inclusion in (ALWAYS, OFTEN):
        release = mixture(calibrate(TEN_TIMES, [inclusion]), inclusion)
        assert posterior([release, release], 1e-4) > 2 * 1e-3


def test_the_secret_where_it_is_highest_counts() -> None:
    alone = [posterior([mixture(3.0, secret)] * 3, 1e-3) for secret in (ALWAYS, OFTEN, RARE)]
    assert posterior([mixture(3.0, ALWAYS, OFTEN, RARE)] * 3, 1e-3) == max(alone)
    assert posterior([mixture(3.0, ALWAYS, OFTEN), mixture(4.0, RARE, ALWAYS)], 1e-3) == max(
        posterior([mixture(3.0, ALWAYS), mixture(4.0, RARE)], 1e-3),
        posterior([mixture(3.0, OFTEN), mixture(4.0, ALWAYS)], 1e-3),
    )


def test_one_secret_stands_for_all() -> None:
    assert posterior([mixture(3.0, ALWAYS, OFTEN), mixture(4.0, RARE)], 1e-3) == posterior(
        [mixture(3.0, ALWAYS, OFTEN), mixture(4.0, RARE, RARE)], 1e-3
    )


def test_releases_with_different_secrets_are_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="different secrets"):
        posterior([mixture(3.0, ALWAYS, OFTEN), mixture(3.0, ALWAYS, OFTEN, RARE)], 1e-3)


@pytest.mark.parametrize("event", [PureEvent(1.0), ZCDPEvent(0.1)])
def test_noise_that_is_not_gaussian_is_one_clear_error(event: Event) -> None:
    with pytest.raises(ConfigError, match="Gaussian noise"):
        posterior([GaussianEvent(1.0), event], 1e-3)


def test_nothing_released_and_nothing_drawn_leave_the_prior() -> None:
    assert posterior([], 1e-3) == pytest.approx(1e-3)
    assert posterior([mixture(1.0)], 1e-3) == pytest.approx(1e-3, rel=1e-6)
    assert posterior([mixture(1.0)] * 2, 1e-3) == 1e-3
    assert posterior([mixture(1.0, ())], 1e-3) == pytest.approx(1e-3, rel=1e-6)
    assert posterior([mixture(1.0, ((0.0, 5),))] * 10, 1e-3) == pytest.approx(1e-3, rel=1e-5)


def test_hardly_any_noise_gives_everything_away_and_no_error() -> None:
    assert posterior([mixture(1e-2, ((0.5, 20),))] * 10, 1e-4) == pytest.approx(1, abs=1e-3)
    assert posterior([mixture(1e-3, ((0.001, 1),))] * 2, 1e-4) == pytest.approx(2e-3, rel=0.1)


def test_of_many_secrets_similar_ones_share_a_bound_that_is_no_less_and_hardly_more() -> None:
    rng = np.random.default_rng(1)
    secrets = [
        tuple((float(rate), int(rng.integers(1, 6))) for rate in sorted(rng.uniform(0.01, 1, 2), reverse=True))
        for _ in range(40)
    ]
    alone = max(posterior([mixture(12.0, secret)] * 3, 1e-4) for secret in secrets)
    together = posterior([mixture(12.0, *secrets)] * 3, 1e-4)
    assert alone <= together * (1 + 1e-9)
    assert together <= alone * 1.1


@pytest.mark.parametrize("events", LISTS.values(), ids=LISTS.keys())
def test_no_simulated_test_beats_the_bound_and_the_best_one_reaches_it(events: list[Event]) -> None:
    """The likelihood ratio itself, on 200,000 draws with and without the secret."""
    prior, draws, rng = 1e-2, 200_000, np.random.default_rng(7)
    ratios = np.zeros((2, draws))
    for event in events:
        sigma = event.noise_multiplier  # type: ignore[union-attr]
        law = poisson_binomial(event.inclusion[0] if isinstance(event, MixtureEvent) else ALWAYS)
        records = np.flatnonzero(law > 1e-12)
        drawn = rng.choice(records, p=law[records] / law[records].sum(), size=draws)
        for here, shift in zip(ratios, (drawn, 0), strict=True):
            x = rng.normal(size=draws) + shift / sigma
            here += np.log(sum(law[k] * np.exp(k / sigma * (x - k / sigma / 2)) for k in records))
    threshold = np.quantile(ratios[1][: draws // 2], 1 - prior)
    wrong = int(np.sum(ratios[1][draws // 2 :] > threshold))
    right = int(np.sum(ratios[0] > threshold))
    least_right = stats.beta.ppf(1e-6, right, draws - right + 1)
    most_wrong = stats.beta.isf(1e-6, wrong + 1, draws // 2 - wrong)
    assert least_right <= posterior(events, most_wrong)
    most_right = stats.beta.isf(1e-6, right + 1, draws - right)
    least_wrong = stats.beta.ppf(1e-6, wrong, draws // 2 - wrong + 1)
    assert most_right >= posterior(events, least_wrong)
