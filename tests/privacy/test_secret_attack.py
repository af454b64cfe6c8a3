"""Simulated attacks on secrets: the best test on what is released, with and without the secret's records.

The records' vectors point one way, which is the worst case, so one number is what the attacker sees. What SecPE prints
but does not keep to (p, r) is caught: both statistics at one sigma, T rounds at the noise of one, a single Gaussian in
place of the mixture, one draw reused.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from understudy.privacy.events import Inclusion
from understudy.privacy.guarantee import SecretBudget
from understudy.privacy.secrets.bounds import poisson_binomial
from understudy.privacy.secrets.composition import calibrate

BUDGET = SecretBudget("0.01", "0.1")
# Draws that show five releases at the noise of one: they exceed the promise twice or more.
FIVE = 60_000
CHANCE = 1e-6
OFTEN: Inclusion = ((0.5, 5),)
MANY: Inclusion = ((0.05, 80),)
RARE: Inclusion = ((0.05, 5),)
SECRETS = {"always": ((1.0, 1),), "often": OFTEN, "many": MANY, "rare": RARE}


def draw(inclusion: Inclusion, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many records of the secret are drawn, record by record."""
    return sum((rng.binomial(records, rate, draws) for rate, records in inclusion), np.zeros(draws, dtype=np.int64))


@cache
def noise_for_five(inclusion: Inclusion) -> float:
    return calibrate(BUDGET, [inclusion], releases=5)


def caught(
    sigma: float,
    inclusion: Inclusion,
    *,
    rounds: int = 1,
    statistics: int = 1,
    fresh: bool = True,
    draws: int = 150_000,
) -> float:
    """By how much, at least, the best test exceeds (p, r): a factor that is above 1 only if the promise is broken.

    Releases are ``rounds`` draws of records, each seen in ``statistics`` noisy sums at ``sigma``; with ``fresh`` False
    all rounds have one draw. Half of the draws without the secret place the threshold, the others count.
    """
    rng = np.random.default_rng(2025)
    law = poisson_binomial(inclusion)
    records = np.flatnonzero(law > 1e-12)
    per_draw = statistics if fresh else statistics * rounds
    ratios = np.zeros((2, draws))
    for _ in range(rounds if fresh else 1):
        drawn = draw(inclusion, draws, rng)
        for ratio, shift in zip(ratios, (drawn, 0), strict=True):
            # the mean of several looks at one draw says all that they say
            x = shift + rng.normal(size=draws) * sigma / math.sqrt(per_draw)
            ratio += np.logaddexp.reduce([math.log(law[k]) + per_draw * k * (x - k / 2) / sigma**2 for k in records])
    threshold = np.quantile(ratios[1][: draws // 2], 1 - float(BUDGET.prior))
    wrong, right = int(np.sum(ratios[1][draws // 2 :] > threshold)), int(np.sum(ratios[0] > threshold))
    most_wrong = stats.beta.isf(CHANCE / 2, wrong + 1, draws // 2 - wrong)
    least_right = stats.beta.ppf(CHANCE / 2, right, draws - right + 1)
    # the best test's curve is concave: one that is wrong x times as often may be right x times as often at most
    return float(least_right / (float(BUDGET.posterior) * max(1.0, most_wrong / float(BUDGET.prior))))


@pytest.mark.parametrize("inclusion", SECRETS.values(), ids=SECRETS.keys())
def test_one_release_keeps_the_promise_and_a_fifth_less_noise_does_not(inclusion: Inclusion) -> None:
    sigma = calibrate(BUDGET, [inclusion])
    assert caught(sigma, inclusion) <= 1
    assert caught(sigma * 0.8, inclusion) > 1


@pytest.mark.parametrize("inclusion", SECRETS.values(), ids=SECRETS.keys())
def test_five_releases_with_fresh_draws_keep_the_promise_and_at_the_noise_of_one_do_not(inclusion: Inclusion) -> None:
    """The printed algorithm releases again in every round."""
    assert caught(noise_for_five(inclusion), inclusion, rounds=5, draws=FIVE) <= 1
    assert caught(calibrate(BUDGET, [inclusion]), inclusion, rounds=5, draws=FIVE) > 1


@pytest.mark.parametrize("inclusion", SECRETS.values(), ids=SECRETS.keys())
def test_two_statistics_of_one_draw_need_the_square_root_of_two(inclusion: Inclusion) -> None:
    """Sizes and centres leave the building together."""
    sigma = calibrate(BUDGET, [inclusion])
    assert caught(sigma * math.sqrt(2), inclusion, statistics=2) <= 1
    assert caught(sigma, inclusion, statistics=2) > 1


@pytest.mark.parametrize("inclusion", [MANY, RARE], ids=["many", "rare"])
def test_a_single_gaussian_at_the_mean_in_place_of_the_mixture_is_caught(inclusion: Inclusion) -> None:
    mean = math.fsum(rate * records for rate, records in inclusion)
    assert caught(mean / BUDGET.mu, inclusion) > 1


def test_one_draw_reused_is_caught_where_fresh_ones_are_paid_for() -> None:
    assert caught(noise_for_five(RARE), RARE, rounds=5, fresh=False) > 1
