"""The sparse vector before a token: a run is as private as stated, and one that goes on after its end is not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.audit.mechanisms.bounds import limits
from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseKind, SystemNoise
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


@pytest.mark.parametrize(("threshold", "noise"), [(-0.1, 0.2), (2.1, 0.2), (0.5, 0.0), (0.5, -1.0), (0.5, np.nan)])
def test_an_impossible_test_is_refused(threshold: float, noise: float) -> None:
    with pytest.raises(ConfigError):
        TokenTest(threshold, noise)


def test_noise_that_does_not_fit_into_64_bits_is_refused() -> None:
    with pytest.raises(ConfigError, match="64-bit"):
        PrivateTokens(10, SIZE, 2, 1, TokenTest(0.5, 1e12))


# -- an attack on whole runs ------------------------------------------------------------------------------------------


class GoesOn(Run):
    """The broken twin: it keeps its threshold after a distance above it, for the charge of one run."""

    def is_above(self, distance: int) -> bool:
        above = super().is_above(distance)
        self.open = True
        return above


def odd_yes(run: Run, present: bool) -> bool:
    """Of 200 distances the unit moves the odd ones up and the even ones down: are many more odd ones above?"""
    unit, more = STEP if present else 0, 0
    for number in range(200):
        if not run.open:
            break
        sign = (-1) ** number
        more += sign * run.is_above(THRESHOLD + sign * unit)
    return more > (24 if isinstance(run, GoesOn) else 0)


def found(kind: type[Run], *, draws: int) -> float:
    """A lower bound of epsilon, but for one chance in a million."""
    source, counts = InsecureSeededNoise(0), []
    for present in (True, False):
        runs = [TEST.begin(SIZE, source) for _ in range(draws)]
        for run in runs:
            run.__class__ = kind
        counts.append(sum(odd_yes(run, present) for run in runs))
    return float(limits(counts[1], draws - counts[0], draws, alpha=1e-6).epsilon(0.0))


def test_a_run_tells_no_more_than_it_promises_and_one_that_goes_on_after_a_distance_above_is_caught() -> None:
    assert 0.05 * EPSILON < found(Run, draws=6_000) <= EPSILON
    assert found(GoesOn, draws=1_000) > EPSILON
