"""The sparse vector before a token: one run is as private as stated, and its faulty variants are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from noise_tests import ALPHA, scale_p_value
from numpy.typing import NDArray

from understudy.audit.mechanisms.bounds import limits
from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseKind, NoiseSource, SystemNoise
from understudy.privacy.tokens import PrivateTokens, Run, TokenTest

EPSILON, SIZE = 3.0, 250
TEST = TokenTest(threshold=0.5, noise=2 / (SIZE * EPSILON))
STEP = TokenTest.grid  # the sensitivity
THRESHOLD = round(0.5 * SIZE * STEP)


class Noted(InsecureNoNoise):
    """Notes what noise was asked for, and returns ``then`` in turn, or none."""

    def __init__(self, *then: int) -> None:
        self.asked: list[tuple[str, float]] = []
        self.then = list(then)

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        self.asked.append((kind, scale))
        return np.full(size, self.then.pop(0) if self.then else 0, dtype=np.int64)


def test_a_run_says_no_up_to_the_first_distance_that_reaches_the_threshold() -> None:
    run = TEST.begin(SIZE, InsecureNoNoise())
    distances = [0, THRESHOLD - 1, -5, 2**40, 2**80]
    assert [run.is_above(distance) for distance in distances[:4]] == [False, False, False, True]
    assert not run.open
    assert str(THRESHOLD) not in repr(run)
    with pytest.raises(PrivacyError, match="run of the test is over"):
        run.is_above(0)
    assert TEST.begin(SIZE, SystemNoise()).is_above(2**80), "no overflow"


def test_a_run_draws_its_threshold_once_and_noise_on_each_distance_with_twice_the_scale() -> None:
    source, scale = Noted(5, -3, 4, 6), TEST.scale(SIZE)
    run = TEST.begin(SIZE, source)
    assert [run.is_above(THRESHOLD + each) for each in (7, 0, -1)] == [False, False, True]
    TEST.begin(SIZE, source)
    assert source.asked == [("laplace", scale), *[("laplace", 2 * scale)] * 3, ("laplace", scale)]


@pytest.mark.parametrize("wrong", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_declared_scales(wrong: float) -> None:
    scale = TEST.scale(SIZE)
    drawn: dict[float, list[int]] = {scale: [], 2 * scale: []}

    class Watched(SystemNoise):
        def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
            noise = super().draw(kind, scale=scale, size=size)
            drawn[scale].extend(noise.tolist())
            return noise

    for _ in range(1_500):
        TEST.begin(SIZE, Watched()).is_above(0)
    for b, noise in drawn.items():
        p = scale_p_value("laplace", np.array(noise), scale=b * wrong)
        assert p > ALPHA if wrong == 1.0 else p < ALPHA


def test_epsilon_of_a_run_is_two_sensitivities_over_the_scale() -> None:
    assert TEST.epsilon(SIZE) == pytest.approx(EPSILON)
    assert PrivateTokens(10, SIZE, 2, 1, TEST).rho_run == pytest.approx(EPSILON**2 / 2)


@pytest.mark.parametrize(("threshold", "noise"), [(-0.1, 0.2), (2.1, 0.2), (0.5, 0.0), (0.5, -1.0), (0.5, np.nan)])
def test_an_impossible_test_is_refused(threshold: float, noise: float) -> None:
    with pytest.raises(ConfigError):
        TokenTest(threshold, noise)


def test_noise_that_does_not_fit_into_64_bits_is_refused() -> None:
    with pytest.raises(ConfigError, match="64-bit"):
        PrivateTokens(10, SIZE, 2, 1, TokenTest(0.5, 1e12))


# -- an attack on whole runs ------------------------------------------------------------------------------------------


class EqualNoise(InsecureSeededNoise):
    """The broken twin: no more noise on a distance than on the threshold."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=TEST.scale(SIZE), size=size)


class GoesOn(Run):
    """The broken twin: it keeps its threshold after a distance above it, for the charge of one run."""

    def is_above(self, distance: int) -> bool:
        above = super().is_above(distance)
        self.open = True
        return above


Alarm = Callable[[Run, bool], bool]


def late_yes(run: Run, present: bool) -> bool:
    """Twelve times no, then yes: the unit moves the first distances up and the last one down, so it makes that rare."""
    unit, scale = 0 if present else STEP, round(TEST.scale(SIZE))
    early, late = THRESHOLD - scale + unit, THRESHOLD + scale - unit
    return not any(run.is_above(early) for _ in range(12)) and run.is_above(late)


def odd_yes(run: Run, present: bool) -> bool:
    """Of 200 distances the unit moves the odd ones up and the even ones down: are many more odd ones above?"""
    unit, more = STEP if present else 0, 0
    for number in range(200):
        if not run.open:
            break
        sign = (-1) ** number
        more += sign * run.is_above(THRESHOLD + sign * unit)
    return more > (24 if isinstance(run, GoesOn) else 0)


def found(alarm: Alarm, source: NoiseSource, *, draws: int, kind: type[Run] = Run) -> float:
    """A lower bound of epsilon, but for one chance in a million."""

    def begin() -> Run:
        made = TEST.begin(SIZE, source)
        made.__class__ = kind
        return made

    true, false = (sum(alarm(begin(), present) for _ in range(draws)) for present in (True, False))
    return float(limits(false, draws - true, draws, alpha=1e-6).epsilon(0.0))


@pytest.mark.parametrize("alarm", [late_yes, odd_yes])
def test_neighbours_cannot_be_told_apart_better_than_one_run_promises(alarm: Alarm) -> None:
    assert 0.05 * EPSILON < found(alarm, InsecureSeededNoise(0), draws=6_000) <= EPSILON


def test_equal_noise_on_distances_and_threshold_is_caught() -> None:
    assert found(late_yes, EqualNoise(2), draws=30_000) > EPSILON


def test_a_run_that_goes_on_after_a_distance_above_is_caught() -> None:
    assert found(odd_yes, InsecureSeededNoise(0), kind=GoesOn, draws=1_000) > EPSILON
