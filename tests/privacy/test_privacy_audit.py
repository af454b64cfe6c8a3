"""An attack on the real mechanism: how well can worst-case neighbours be told apart?

A threshold on the projection that separates them best gives a rate of true and one of false alarms; their
Clopper-Pearson bounds give a lower bound on epsilon or mu that holds but for one chance in a million.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from understudy.privacy.mechanisms import NoisySum
from understudy.privacy.noise import NoiseKind, SystemNoise
from understudy.privacy.plan import Charge, Receipt

DRAWS = 2_500
CHANCE = 1e-6
GRID = 2**20


@dataclass(frozen=True)
class OneHot:
    """A record adds 1 to two of four counts."""

    name: str = "sums"
    shape: tuple[int, ...] = (4,)
    grid: float = float(GRID)
    l1_sensitivity: float = 2.0 * GRID
    l2_sensitivity: float = math.sqrt(2) * GRID

    def evaluate(self, data: list[tuple[int, int]]) -> NDArray[np.int64]:
        total = np.zeros(4, dtype=np.int64)
        for pair in data:
            total[list(pair)] += GRID
        return total


class HalfNoise(SystemNoise):
    """The broken twin: half the noise that is charged for."""

    def draw(self, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        return super().draw(kind, scale=scale / 2, size=size)


Alarm = Callable[[NDArray[np.float64]], bool]


def alarms(
    kind: NoiseKind, multiplier: float, source: SystemNoise, records: list[tuple[int, int]], alarm: Alarm
) -> int:
    """How often the mechanism's answer on ``records`` looks as if the last record were there."""
    mechanism = NoisySum(OneHot(), kind, multiplier)
    count = 0
    for _ in range(DRAWS):
        receipt = Receipt("run", (Charge("sums", mechanism.event, {}, "to test"),))
        count += alarm(mechanism.run(records, receipt=receipt, source=source)[2:])
    return count


def rates(kind: NoiseKind, multiplier: float, source: SystemNoise, alarm: Alarm) -> tuple[float, float]:
    """Lower bound on the rate of true alarms, upper bound on that of false ones."""
    true = alarms(kind, multiplier, source, [(0, 1), (2, 3)], alarm)
    false = alarms(kind, multiplier, source, [(0, 1)], alarm)
    return (
        float(stats.beta.ppf(CHANCE / 2, true, DRAWS - true + 1)),
        float(stats.beta.isf(CHANCE / 2, false + 1, DRAWS - false)),
    )


def mu_over_promise(source: SystemNoise) -> float:
    """The promise is mu = 1."""
    true, false = rates("gaussian", 1.0, source, lambda counts: bool(counts.sum() > 1.0))
    return float(stats.norm.ppf(true) - stats.norm.ppf(false))


def epsilon_over_promise(source: SystemNoise) -> float:
    """The promise is epsilon = 2."""
    true, false = rates("laplace", 0.5, source, lambda counts: bool(counts.min() > 1.0))
    return math.log(true / false) / 2


@pytest.mark.parametrize("attack", [mu_over_promise, epsilon_over_promise])
def test_neighbours_cannot_be_told_apart_better_than_promised(attack: Callable[[SystemNoise], float]) -> None:
    found = attack(SystemNoise())
    assert found <= 1.0
    assert found > 0.3  # the attack is worth its name


@pytest.mark.parametrize("attack", [mu_over_promise, epsilon_over_promise])
def test_the_same_attack_breaks_a_mechanism_with_half_the_noise(attack: Callable[[SystemNoise], float]) -> None:
    assert attack(HalfNoise()) > 1.0
