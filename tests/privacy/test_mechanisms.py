"""One mechanism owns query, noise and event, and refuses to run without its recorded charge."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from noise_tests import ALPHA, scale_p_value
from numpy.typing import NDArray

from understudy.errors import ConfigError, PrivacyError
from understudy.privacy.events import Event, GaussianEvent, PureEvent
from understudy.privacy.mechanisms import LARGEST_SCALE, SMALLEST_SIGMA, NoisySum
from understudy.privacy.noise import InsecureNoNoise, NoiseKind, SystemNoise
from understudy.privacy.plan import Charge, Receipt


@dataclass
class Sums:
    """A sum of integer vectors; counts how often it was evaluated."""

    size: int = 3
    name: str = "sums"
    grid: float = 2.0**20
    dtype: type = np.int64
    wrong_shape: bool = False
    evaluations: list[int] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def l1_sensitivity(self) -> float:
        return self.grid * self.size

    @property
    def l2_sensitivity(self) -> float:
        return self.grid * math.sqrt(self.size)

    def evaluate(self, data: list[list[int]]) -> NDArray[np.int64]:
        self.evaluations.append(1)
        total = np.zeros(self.size + self.wrong_shape, dtype=self.dtype)
        for row in data:
            total[: self.size] += np.asarray(row, dtype=self.dtype) * self.dtype(self.grid)
        return total


class OneEverywhere:
    """Notes what was asked for and adds one grid step to every coordinate."""

    origin = "none"

    def __init__(self) -> None:
        self.asked: list[tuple[str, float, int]] = []

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        self.asked.append((kind, scale, size))
        return np.ones(size, dtype=np.int64)


def receipt(*events: Event, name: str = "sums") -> Receipt:
    return Receipt("run", tuple(Charge(name, event, {}, "to test") for event in events))


def test_the_event_and_the_noise_are_known_before_any_data_is_read() -> None:
    query = Sums()
    gaussian = NoisySum(query, "gaussian", 2.0)
    laplace = NoisySum(query, "laplace", 2.0)
    assert gaussian.event == GaussianEvent(2.0)
    assert laplace.event == PureEvent(0.5)
    assert gaussian.scale == pytest.approx(2 * 2**20 * math.sqrt(3))
    assert laplace.scale == pytest.approx(2 * 2**20 * 3)
    assert gaussian.noise_std == pytest.approx(2 * math.sqrt(3))
    assert laplace.noise_std == pytest.approx(2 * 3 * math.sqrt(2))
    assert query.evaluations == []


def test_the_scale_is_never_rounded_below_multiplier_times_sensitivity() -> None:
    from fractions import Fraction

    for multiplier in np.random.default_rng(0).uniform(0.3, 9, 200).tolist():
        mechanism = NoisySum(Sums(size=7), "gaussian", multiplier)
        assert Fraction(mechanism.scale) > Fraction(multiplier) * Fraction(Sums(size=7).l2_sensitivity)


@pytest.mark.parametrize(
    "paid",
    [
        receipt(),
        receipt(GaussianEvent(2.0), name="other"),
        receipt(GaussianEvent(2.0000001)),
        receipt(PureEvent(0.5)),
    ],
    ids=["no charge", "another name", "another event", "another kind"],
)
def test_without_its_own_charge_nothing_is_evaluated_and_no_noise_is_drawn(paid: Receipt) -> None:
    query, source = Sums(), OneEverywhere()
    with pytest.raises(PrivacyError, match="no unused charge"):
        NoisySum(query, "gaussian", 2.0).run([[1, 1, 1]], receipt=paid, source=source)
    assert query.evaluations == []
    assert source.asked == []


def test_a_charge_pays_for_one_draw() -> None:
    query, paid = Sums(), receipt(GaussianEvent(2.0))
    mechanism = NoisySum(query, "gaussian", 2.0)
    mechanism.run([], receipt=paid, source=SystemNoise())
    with pytest.raises(PrivacyError, match="no unused charge"):
        mechanism.run([], receipt=paid, source=SystemNoise())
    assert len(query.evaluations) == 1


def test_a_refused_draw_does_not_use_the_charge_up() -> None:
    paid = receipt(GaussianEvent(2.0))
    with pytest.raises(PrivacyError):
        NoisySum(Sums(), "gaussian", 1.0).run([], receipt=paid, source=SystemNoise())
    NoisySum(Sums(), "gaussian", 2.0).run([], receipt=paid, source=SystemNoise())


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_a_query_of_another_type_is_refused(dtype: type) -> None:
    with pytest.raises(PrivacyError, match="wrong type or shape"):
        NoisySum(Sums(dtype=dtype), "gaussian", 2.0).run(
            [[1, 1, 1]], receipt=receipt(GaussianEvent(2.0)), source=SystemNoise()
        )


def test_a_query_of_another_shape_is_refused() -> None:
    with pytest.raises(PrivacyError, match="wrong type or shape"):
        NoisySum(Sums(wrong_shape=True), "gaussian", 2.0).run(
            [], receipt=receipt(GaussianEvent(2.0)), source=SystemNoise()
        )


def test_a_grid_too_coarse_for_gaussian_noise_is_refused_before_a_charge_could_be_used() -> None:
    edge = SMALLEST_SIGMA / math.sqrt(3)
    with pytest.raises(PrivacyError, match="too coarse"):
        NoisySum(Sums(grid=edge * 0.99), "gaussian", 1.0)
    NoisySum(Sums(grid=edge * 1.01), "gaussian", 1.0)
    NoisySum(Sums(grid=1.0), "laplace", 1.0)  # discrete Laplace noise is exactly pure on any grid


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_that_would_leave_the_64_bit_integers_is_refused(kind: NoiseKind) -> None:
    """The sampler clamps there: a clamped value plus the exact sum would show the sum."""
    edge = LARGEST_SCALE / (Sums().l2_sensitivity if kind == "gaussian" else Sums().l1_sensitivity)
    with pytest.raises(PrivacyError, match="64-bit"):
        NoisySum(Sums(), kind, edge * 1.01)
    assert NoisySum(Sums(), kind, edge * 0.99).event


def test_the_sampler_does_clamp_and_at_the_largest_scale_it_does_not() -> None:
    ends = [-(2**63), 2**63 - 1]
    assert np.isin(SystemNoise().draw("laplace", scale=2.0**62, size=2_000), ends).any()
    assert not np.isin(SystemNoise().draw("laplace", scale=LARGEST_SCALE, size=2_000), ends).any()


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_noise_multiplier_is_refused(multiplier: float) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier"):
        NoisySum(Sums(), "gaussian", multiplier)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_every_coordinate_gets_noise_zero_or_not(kind: NoiseKind) -> None:
    source = OneEverywhere()
    mechanism = NoisySum(Sums(), kind, 2.0)
    released = mechanism.run([[1, 0, 0], [1, 0, 2]], receipt=receipt(mechanism.event), source=source)
    assert source.asked == [(kind, mechanism.scale, 3)]
    assert released.tolist() == [2 + 2**-20, 2**-20, 2 + 2**-20]


def test_no_records_give_the_same_shape_and_the_same_noise() -> None:
    mechanism = NoisySum(Sums(size=4_000), "gaussian", 2.0)
    released = mechanism.run([], receipt=receipt(mechanism.event), source=SystemNoise())
    assert released.shape == (4_000,)
    assert released.dtype == np.float64
    noise = np.rint(released * 2**20).astype(np.int64)
    assert scale_p_value("gaussian", noise, scale=mechanism.scale) > ALPHA


def test_without_noise_the_sum_comes_back_in_its_own_units() -> None:
    mechanism = NoisySum(Sums(), "laplace", 2.0)
    released = mechanism.run([[3, 0, -1]], receipt=receipt(mechanism.event), source=InsecureNoNoise())
    assert released.tolist() == [3.0, 0.0, -1.0]
