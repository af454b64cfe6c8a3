"""Of many questions only a "yes" costs: one run is as private as stated, and its printed variants are not."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from noise_tests import ALPHA, scale_p_value
from numpy.typing import NDArray

from understudy.audit.mechanisms.bounds import limits
from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.mechanisms import LARGEST_SCALE
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseKind, NoiseSource, SystemNoise
from understudy.privacy.tokens import Run, SparseVector

STEP = 2**10  # the sensitivity
EPSILON = 3.0
VECTOR = SparseVector(threshold=0, sensitivity=STEP, scale=2 * STEP / EPSILON)


def epsilon_found(true: int, false: int, draws: int) -> float:
    """Pure epsilon is at least this, but for one chance in a million."""
    return float(limits(false, draws - true, draws, alpha=1e-6).epsilon(0.0))


class Noted(InsecureNoNoise):
    """No noise; notes what was asked for, and gives ``then`` in turn."""

    def __init__(self, *then: int) -> None:
        self.asked: list[tuple[str, float]] = []
        self.then = list(then)

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        self.asked.append((kind, scale))
        return np.full(size, self.then.pop(0) if self.then else 0, dtype=np.int64)


def test_a_run_says_no_up_to_the_first_answer_that_reaches_the_threshold() -> None:
    run = SparseVector(10, 1, 2.0).begin(InsecureNoNoise())
    assert [run.is_above(answer) for answer in (3, 9, -5, 9, 10)] == [False, False, False, False, True]
    assert not run.open
    with pytest.raises(PrivacyError, match="run of the sparse vector is over"):
        run.is_above(0)


def test_a_run_draws_its_threshold_once_and_each_answer_afresh_with_twice_the_scale() -> None:
    source = Noted(5, -3, 4, 6)
    run = SparseVector(10, 1, 2.0).begin(source)  # threshold 15
    assert [run.is_above(answer) for answer in (17, 10, 9)] == [False, False, True]
    assert source.asked == [("laplace", 2.0), ("laplace", 4.0), ("laplace", 4.0), ("laplace", 4.0)]


def test_a_new_run_draws_a_new_threshold() -> None:
    source = Noted()
    VECTOR.begin(source)
    VECTOR.begin(source)
    assert source.asked == [("laplace", VECTOR.scale)] * 2


@pytest.mark.parametrize("wrong", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_declared_scales(wrong: float) -> None:
    """Two-sided at alpha = 1e-6, by a source that notes what the system drew."""
    drawn: dict[float, list[int]] = {VECTOR.scale: [], 2 * VECTOR.scale: []}

    class Watched(SystemNoise):
        def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
            noise = super().draw(kind, scale=scale, size=size)
            drawn[scale].extend(noise.tolist())
            return noise

    for _ in range(1_500):
        VECTOR.begin(Watched()).is_above(0)
    for scale, noise in drawn.items():
        p = scale_p_value("laplace", np.array(noise), scale=scale * wrong)
        assert p > ALPHA if wrong == 1.0 else p < ALPHA


def test_epsilon_and_rho_are_two_sensitivities_over_the_scale() -> None:
    assert VECTOR.epsilon == pytest.approx(EPSILON)
    assert VECTOR.rho == pytest.approx(EPSILON**2 / 2)
    halved = SparseVector(0, STEP // 2, VECTOR.scale)
    assert halved.epsilon == pytest.approx(VECTOR.epsilon / 2)  # linear, so rho is quadratic
    assert halved.rho == pytest.approx(VECTOR.rho / 4)


def test_huge_answers_do_not_overflow() -> None:
    assert SparseVector(2**62, 1, 2.0**50).begin(SystemNoise()).is_above(2**63 - 1)
    assert SparseVector(2**62, 1, 2.0**50).begin(SystemNoise()).is_above(2**80)
    assert not SparseVector(2**62, 1, 2.0**50).begin(SystemNoise()).is_above(-(2**80))


@pytest.mark.parametrize(("sensitivity", "scale"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, float("nan"))])
def test_an_impossible_test_is_refused(sensitivity: int, scale: float) -> None:
    with pytest.raises(ConfigError):
        SparseVector(0, sensitivity, scale)


def test_noise_that_would_leave_the_64_bit_integers_is_refused() -> None:
    with pytest.raises(ConfigError, match="64-bit"):
        SparseVector(0, 1, LARGEST_SCALE * 0.51)
    assert SparseVector(0, 1, LARGEST_SCALE * 0.49).rho > 0


# -- an attack on whole runs ------------------------------------------------------------------------------------------


class EqualNoise(InsecureSeededNoise):
    """The broken twin: no more noise on an answer than on the threshold."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=VECTOR.scale, size=size)


class GoesOn(Run):
    """The broken twin: goes on with the same threshold after an answer above it, for the charge of one run."""

    def is_above(self, answer: int) -> bool:
        above = super().is_above(answer)
        self.open = True
        return above


Alarm = Callable[[type[Run], NoiseSource, bool], bool]


def late_yes(run: type[Run], source: NoiseSource, present: bool) -> bool:
    """Twelve times no, then yes: the unit moves the first answers up and the last one down, so it makes that rare."""
    unit = 0 if present else STEP
    below, above = round(-VECTOR.scale), round(VECTOR.scale)
    here = run(VECTOR, source)
    return not any(here.is_above(below + unit) for _ in range(12)) and here.is_above(above - unit)


def balance(run: type[Run], source: NoiseSource, present: bool) -> int:
    """Of 200 answers the unit moves the odd ones up and the even ones down: how many more odd ones are above?"""
    unit = STEP if present else 0
    here, more = run(VECTOR, source), 0
    for number in range(200):
        if not here.open:
            break
        more += (-1) ** number * here.is_above((-1) ** number * unit)
    return more


def odd_yes(run: type[Run], source: NoiseSource, present: bool) -> bool:
    return balance(run, source, present) > 0


def many_odd_yes(run: type[Run], source: NoiseSource, present: bool) -> bool:
    return balance(run, source, present) > 24


def attack(alarm: Alarm, source: NoiseSource, *, run: type[Run] = Run, draws: int) -> float:
    true, false = (sum(alarm(run, source, present) for _ in range(draws)) for present in (True, False))
    return epsilon_found(true, false, draws)


@pytest.mark.parametrize("alarm", [late_yes, odd_yes])
def test_neighbours_cannot_be_told_apart_better_than_one_run_promises(alarm: Alarm) -> None:
    assert attack(alarm, SystemNoise(), draws=2_000) <= EPSILON
    seeded = attack(alarm, InsecureSeededNoise(0), draws=6_000)
    assert 0.05 * EPSILON < seeded <= EPSILON  # the attack is worth its name


def test_the_same_attack_breaks_a_test_with_equal_noise_on_answers_and_threshold() -> None:
    assert attack(late_yes, EqualNoise(2), draws=30_000) > EPSILON


def test_the_same_attack_breaks_a_run_that_goes_on_after_an_answer_above() -> None:
    assert attack(many_odd_yes, InsecureSeededNoise(0), run=GoesOn, draws=1_000) > EPSILON


def test_rho_is_computed_without_a_loss_of_digits() -> None:
    for scale in np.random.default_rng(0).uniform(1e5, 1e9, 200).tolist():
        vector = SparseVector(0, 2**18, scale)
        exact = (2 * Fraction(2**18) / Fraction(scale)) ** 2 / 2
        assert vector.rho == pytest.approx(float(exact), rel=1e-15)
