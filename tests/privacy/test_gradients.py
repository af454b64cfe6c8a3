"""DP-SGD's mechanism: sampler, noise and event agree; each step is taken once; solvers keep within the budget."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting
import numpy as np
import pytest
from noise_tests import ALPHA, dependence_p_value, mean_p_value, scale_p_value
from numpy.typing import NDArray
from scipy import stats

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import Composition
from understudy.privacy.events import GaussianEvent
from understudy.privacy.gradients import DPSGD, MOST_STEPS, Steps
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Query
from understudy.privacy.mechanisms import Sensitivity
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise
from understudy.privacy.plan import mechanism_from_json, mechanism_to_json
from understudy.privacy.subsampled import subsampled_multiplier

MECHANISM = DPSGD(noise_multiplier=1.0, rate=0.1, steps=5, clipping_norm=2.0)
SIZE = 4_000


@dataclass(frozen=True)
class Vectors(Query[NDArray[np.int64]]):
    """Integer vectors as they are."""

    size: int
    moves: Sensitivity

    @property
    def sensitivity(self) -> Sensitivity:
        return self.moves

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def of_batch(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        return batch.sum(axis=0)


@dataclass(frozen=True)
class Data:
    vectors: NDArray[np.int64]

    def batches(self) -> Iterator[NDArray[np.int64]]:
        if len(self.vectors):
            yield self.vectors


NOBODY = Data(np.zeros((0, SIZE), dtype=np.int64))
QUERY = Vectors(SIZE, MECHANISM.sensitivity)


def opened(mechanism: DPSGD = MECHANISM, source: NoiseSource | None = None) -> Steps:
    return mechanism.open(source or SystemNoise()).between(0, mechanism.steps)


def noise_of(mechanism: DPSGD = MECHANISM, source: NoiseSource | None = None) -> NDArray[np.float64]:
    """Of one empty sample, in grid units."""
    steps = opened(mechanism, source)
    steps.sample(3)
    noise = steps.noisy_sum(replace(QUERY, moves=mechanism.sensitivity), NOBODY)
    return noise * mechanism.sensitivity.grid


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_a_thousand_steps_cost_what_the_design_says_and_dp_accounting_too() -> None:
    event = DPSGD(1.0, 0.01, 1000, 1.0).event
    accountant = dp_accounting.pld.PLDAccountant()
    sampled = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    accountant.compose(dp_accounting.SelfComposedDpEvent(sampled, 1000))
    assert round(float(event.to_pld().get_epsilon_for_delta(1e-6)), 4) == 2.1245
    assert round(float(accountant.get_epsilon(1e-6)), 4) == 2.1245
    assert Composition((event,)).epsilon(1e-6) == pytest.approx(2.1245, abs=1e-3)
    assert Composition((event,)).epsilon(1e-6) >= accountant.get_epsilon(1e-6) - 1e-9


def test_its_epsilon_is_that_of_the_two_points_by_monte_carlo() -> None:
    """delta = E max(0, 1 - e^(epsilon - loss)) of the canary's steps, with it and without it first."""
    rate, steps, runs, delta = 0.01, 1000, 20_000, 0.01
    epsilon = Composition((DPSGD(1.0, rate, steps, 1.0).event,)).epsilon(delta)
    generator = np.random.default_rng(0)
    found = []
    for present in (True, False):
        exceeds = []
        for _ in range(20):
            x = generator.standard_normal((runs // 20, steps))
            x += present * (generator.random(x.shape) < rate)
            loss = np.log1p(rate * np.expm1(x - 0.5)).sum(axis=1) * (1 if present else -1)
            exceeds.append(np.maximum(-np.expm1(epsilon - loss), 0))
        whole = np.concatenate(exceeds)
        found.append((whole.mean(), whole.std() / math.sqrt(runs)))
    worst, error = max(found)
    assert worst == pytest.approx(delta, abs=5 * error)
    assert error < delta / 10
    assert all(mean < delta + 5 * error for mean, error in found)


# -- noise ------------------------------------------------------------------------------------------------------------


def test_normal_noise_is_standard_normal_on_both_sides() -> None:
    noise: Any = SystemNoise().normal(SIZE)
    assert scale_p_value("gaussian", noise, scale=1.0) > ALPHA
    assert mean_p_value("gaussian", noise, scale=1.0) > ALPHA
    assert stats.kstest(SystemNoise().normal(100_000), "norm").pvalue > ALPHA
    for wrong in (2 / 3, 3 / 2):
        assert scale_p_value("gaussian", noise * wrong, scale=1.0) < ALPHA
    assert mean_p_value("gaussian", noise + 0.2, scale=1.0) < ALPHA


def test_normal_noise_has_coordinates_that_are_independent() -> None:
    noise: Any = SystemNoise().normal(SIZE)
    for lag in (1, 2, SIZE // 2):
        assert dependence_p_value(noise[:-lag], noise[lag:]) > ALPHA
    assert np.unique(np.abs(noise)).size == SIZE


def test_normal_noise_in_parts_has_its_size_and_no_number_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.privacy.noise._AT_ONCE", 1_000)
    for size in (0, 1, 999, 1_000, 1_001, SIZE + 1):
        noise = SystemNoise().normal(size)
        assert noise.shape == (size,)
        assert np.unique(noise).size == size
    assert scale_p_value("gaussian", noise, scale=1.0) > ALPHA


def test_normal_noise_ends_where_its_docstring_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bits 0: the longest radius; all bits 1: a radius of nearly 0. Never infinite."""
    for byte, most in ((b"\0", math.sqrt(2 * 106 * math.log(2))), (b"\xff", 1e-7)):
        monkeypatch.setattr("secrets.token_bytes", lambda size, byte=byte: byte * size)
        assert np.abs(SystemNoise().normal(6)).max() == pytest.approx(most, abs=1e-7)


def test_no_two_numbers_of_the_noise_come_from_one_radius() -> None:
    """Both halves of a pair would tell it: their squares would sum to a number that few others are near to."""
    noise: Any = SystemNoise().normal(SIZE)
    assert len(noise) == SIZE
    squares, half = noise**2, SIZE // 2
    for one, other in (
        (squares[::2], squares[1::2]),
        (squares[1:-1:2], squares[2::2]),
        (squares[:half], squares[half:]),
    ):
        assert stats.kstest((one + other) / 2, "expon").pvalue > ALPHA  # no square is in two pairs


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 50.0])
def test_a_step_has_the_noise_that_is_charged_on_every_coordinate(noise_multiplier: float) -> None:
    mechanism = replace(MECHANISM, noise_multiplier=noise_multiplier)
    noise: Any = noise_of(mechanism)
    assert np.array_equal(noise, np.rint(noise))
    scale = noise_multiplier * mechanism.grid
    assert scale_p_value("gaussian", noise, scale=scale) > ALPHA
    assert mean_p_value("gaussian", noise, scale=scale) > ALPHA
    for wrong in (2 / 3, 3 / 2):
        other: Any = noise_of(replace(mechanism, noise_multiplier=noise_multiplier * wrong))
        assert scale_p_value("gaussian", other, scale=scale) < ALPHA


class FromTorch(SystemNoise):
    """A broken twin: torch's own generator."""

    def normal(self, size: int) -> NDArray[np.float64]:
        import torch

        return np.asarray(torch.randn(size, dtype=torch.float64))


def repeats(source: NoiseSource) -> bool:
    """Whether two runs from the same seeds share any number."""
    torch = pytest.importorskip("torch")

    def seeded() -> set[float]:
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002 - the global state is what must not matter
        torch.manual_seed(7)
        return set(noise_of(source=source).tolist())

    return len(seeded() & seeded()) > SIZE / 2


def test_no_seed_repeats_the_noise_of_a_step_and_torchs_noise_is_caught() -> None:
    assert not repeats(SystemNoise())
    assert repeats(FromTorch())


def test_two_steps_have_noise_that_is_independent() -> None:
    steps = opened()
    found: list[Any] = []
    for _ in range(2):
        steps.sample(3)
        found.append(steps.noisy_sum(QUERY, NOBODY))
    assert dependence_p_value(found[0], found[1]) > ALPHA
    assert not set(found[0].tolist()) & set(found[1].tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_other_noise_than_its_parent() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        os.write(write, SystemNoise().normal(4).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read())
    os.waitpid(child, 0)
    assert theirs.size == 4
    assert not set(SystemNoise().normal(4).tolist()) & set(theirs.tolist())


class Fixed(InsecureNoNoise):
    """Noise of one number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def normal(self, size: int) -> NDArray[np.float64]:
        return np.full(size, self.number)


def test_sums_beyond_the_whole_numbers_of_floating_point_are_exact_before_the_noise() -> None:
    mechanism = replace(MECHANISM, noise_multiplier=2.0**17)
    steps = opened(mechanism, Fixed(-16.0))  # -2^53 grid units
    steps.sample(1)
    found = steps.noisy_sum(replace(QUERY, size=2), Data(np.array([[2**53 + 1, 2**53 + 3]])))
    assert (found * MECHANISM.sensitivity.grid).tolist() == [1.0, 3.0]


def test_the_sum_is_in_units_of_the_gradient() -> None:
    steps = opened(source=InsecureNoNoise())
    steps.sample(2)
    whole = Data(np.array([[2**32, 0], [-(2**31), 2**30]]))
    assert steps.noisy_sum(replace(QUERY, size=2), whole).tolist() == [1.0, 0.5]  # half and a quarter of a clip of 2


# -- sampling ---------------------------------------------------------------------------------------------------------


def poisson_p_values(source: NoiseSource, *, units: int = 500, rate: float = 0.1, steps: int = 40) -> list[float]:
    """How often each unit is included is Binomial over steps, and so is the size of each sample over units."""
    opened_ = opened(DPSGD(1.0, rate, steps, 1.0), source)
    samples = []
    for _ in range(steps):
        samples.append(opened_.sample(units))
        opened_.noisy_sum(Vectors(1, Sensitivity(None, 2**32, 2**32)), Data(np.zeros((0, 1), dtype=np.int64)))
    found = np.array(samples)
    values = []
    for counts, trials in ((found.sum(axis=0), steps), (found.sum(axis=1), units)):
        spread = float(((counts - trials * rate) ** 2 / (trials * rate * (1 - rate))).sum())
        below = stats.chi2.cdf(spread, len(counts))
        values.append(float(2 * min(below, 1 - below)))
    return values


class ShuffledBatches(InsecureSeededNoise):
    """A broken twin: batches of one size from an order that is shuffled once per epoch."""

    order: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def include(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        size = round(float(rates.sum()))
        if not self.order.size:
            self.order = self._generator.permutation(len(rates))
        taken, self.order = self.order[:size], self.order[size:]
        return np.isin(np.arange(len(rates)), taken)


def test_units_are_included_independently_anew_in_every_step_and_shuffled_batches_are_caught() -> None:
    assert min(poisson_p_values(SystemNoise())) > ALPHA
    assert max(poisson_p_values(ShuffledBatches(0))) < ALPHA


def test_at_rate_1_everybody_is_sampled() -> None:
    assert opened(replace(MECHANISM, rate=1.0)).sample(50).all()
    assert opened().sample(0).shape == (0,)


def test_an_owners_shown_record_is_uniform() -> None:
    shown = opened().one_of(np.full(30_000, 3))
    assert stats.chisquare(np.bincount(shown, minlength=3)).pvalue > ALPHA
    assert opened().one_of(np.array([1, 1])).tolist() == [0, 0]
    assert opened().one_of(np.zeros(0, dtype=np.int64)).shape == (0,)


# -- paying, counting -------------------------------------------------------------------------------------------------


def test_each_step_is_taken_once_whoever_asks() -> None:
    paid = MECHANISM.open(SystemNoise())
    assert paid.between(0, 2).left == 2
    assert paid.between(3, 5).left == 2
    for first, last in ((0, 1), (1, 3), (3, 5)):
        with pytest.raises(PrivacyError, match="used twice"):
            paid.between(first, last)


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (0, 6), (5, 6), (3, 3), (4, 2), (5, 5)])
def test_steps_that_were_not_charged_are_refused(first: int, last: int) -> None:
    with pytest.raises(PrivacyError, match="not charged"):
        MECHANISM.open(SystemNoise()).between(first, last)


def test_a_step_is_a_sample_and_then_its_sum() -> None:
    steps = opened(replace(MECHANISM, steps=2))
    for left in (1, 0):
        with pytest.raises(PrivacyError, match="without a sample"):
            steps.noisy_sum(QUERY, NOBODY)
        steps.sample(10)
        with pytest.raises(PrivacyError, match="was not summed"):
            steps.sample(10)
        assert steps.noisy_sum(QUERY, NOBODY).shape == (SIZE,)
        assert steps.left == left
    with pytest.raises(PrivacyError, match="no step is left"):
        steps.sample(10)


@pytest.mark.parametrize(
    "moves", [Sensitivity(None, 2**32 + 1, 2**31), Sensitivity(None, 2**32, 2**32), Sensitivity(2**32, 2**33, 2**31)]
)
def test_a_query_that_moves_further_or_on_another_grid_is_refused_and_the_step_is_not_taken(moves: Sensitivity) -> None:
    steps = opened()
    steps.sample(1)
    with pytest.raises(PrivacyError, match="not the one that was planned"):
        steps.noisy_sum(replace(QUERY, moves=moves), NOBODY)
    assert steps.left == 5
    steps.noisy_sum(QUERY, NOBODY)


# -- parameters and files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{name: wrong} for name in ("noise_multiplier", "rate", "steps", "clipping_norm") for wrong in (0, math.nan)]
    + [{"rate": 1.01}, {"steps": 1.5}, {"steps": MOST_STEPS + 1}, {"noise_multiplier": 1e6}]
    + [{"clipping_norm": wrong} for wrong in (1e-30, 9e-7, 2e6, math.inf)],
)
def test_an_impossible_parameter_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        replace(MECHANISM, **change)


def test_the_mechanism_survives_json_exactly() -> None:
    mechanism = replace(MECHANISM, noise_multiplier=5 / 3, rate=1 / 3)
    fields = mechanism_to_json(mechanism)
    back: Any = mechanism_from_json(fields, mechanism.event)
    assert back == mechanism
    assert isinstance(back.steps, int)
    assert fields["kind"] == "dp-sgd"
    assert mechanism_from_json({**fields, "steps": 5.0}, mechanism.event) == mechanism


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 1.5},
        {"steps": "5"},
        {"rate": True},
        {"rate": 2.0},
        {"clipping_norm": 0},
        {"noise_multiplier": [1.0]},
        {"grid": 1},
    ],
)
def test_json_that_is_not_this_mechanism_is_refused(change: dict[str, Any]) -> None:
    fields = {**mechanism_to_json(MECHANISM), **change}
    with pytest.raises((ValueError, ConfigError)):
        mechanism_from_json(fields, MECHANISM.event)


# -- what a budget buys -----------------------------------------------------------------------------------------------

BUDGET = Budget(2, "1e-6")
OTHERS = (GaussianEvent(6.0), GaussianEvent(9.0))


@pytest.mark.parametrize("others", [(), OTHERS])
@pytest.mark.parametrize(("rate", "steps"), [(0.02, 200), (0.5, 10), (1.0, 3)])
def test_the_least_noise_meets_the_budget_and_a_little_less_breaks_it(
    others: tuple[GaussianEvent, ...], rate: float, steps: int
) -> None:
    def spent(noise_multiplier: float) -> float:
        event = DPSGD(noise_multiplier, rate, steps, 1.0).event
        return Composition((*others, event)).epsilon(float(BUDGET.delta))

    found = subsampled_multiplier(BUDGET, rate=rate, count=steps, others=others)
    assert spent(found) <= BUDGET.epsilon < spent(found / 1.003)
