"""Names that nobody listed: what the threshold lets through, and what the accountant makes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from understudy.base.errors import ConfigError, PrivacyError
from understudy.privacy.accountant import BudgetFilter, Composition, Spending, gaussian_split, renyi_epsilon
from understudy.privacy.events import GaussianEvent, PureEvent, SelectionEvent, ZCDPEvent
from understudy.privacy.guarantee import GDP, Budget
from understudy.privacy.measurement import select
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise
from understudy.privacy.plan import mechanism_from_json, mechanism_to_json
from understudy.privacy.sealed import decode_names, encode_names
from understudy.privacy.selection import NoisySelection, weight_of

GRID = COUNT_GRID


@dataclass(frozen=True)
class Sums:
    """A query whose sums are known, in chunks."""

    chunks: tuple[dict[str, int], ...]
    most: int = 10

    def sums(self, _data: Any) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
        for chunk in self.chunks:
            yield list(chunk), np.array(list(chunk.values()), dtype=np.int64)


def shown(mechanism: NoisySelection, *chunks: dict[str, int], source: NoiseSource | None = None) -> list[str]:
    return decode_names(select(mechanism, Sums(chunks), None, source=source or SystemNoise())["names"])  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [*range(1, 60), 999, 1000])
def test_weights_of_a_unit_have_a_norm_of_one_at_most_and_nearly(names: int) -> None:
    assert GRID**2 * (1 - 1e-4) < names * weight_of(names) ** 2 <= GRID**2


# -- the threshold ----------------------------------------------------------------------------------------------------


def discrete_tail(sigma: float, least: int) -> float:
    """P(Z >= least) of a discrete Gaussian, summed."""
    steps = np.arange(-int(12 * sigma), int(12 * sigma))
    mass = np.exp(-(steps**2) / (2 * sigma**2))
    return float(mass[steps >= least].sum() / mass.sum())


@pytest.mark.parametrize("sigma", [0.5, 3.0, 40.0])
def test_the_bound_on_the_tail_of_a_discrete_gaussian_holds(sigma: float) -> None:
    for k in (1, 2, 5, int(3 * sigma), int(5 * sigma)):
        assert discrete_tail(sigma, k) <= stats.norm.sf((k - 1) / sigma) * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-12, 1e-7, 0.05])
@pytest.mark.parametrize("multiplier", [0.3, 2.0, 40.0])
@pytest.mark.parametrize("most", [1, 30, 1000])
def test_the_threshold_is_the_least_that_stops_lone_names_enough(delta: float, multiplier: float, most: int) -> None:
    mechanism = NoisySelection(multiplier, delta, most)
    sizes = np.arange(1, most + 1)
    weights = np.floor(GRID / np.sqrt(sizes))
    tails = stats.norm.sf((mechanism.threshold - weights) / mechanism.scale)
    assert max(1 - np.exp(sizes * np.log1p(-tails))) == pytest.approx(delta, rel=1e-3)
    assert mechanism.failure_at(mechanism.threshold) <= delta < mechanism.failure_at(mechanism.threshold - 1)


# So few that a threshold that is too low passes with a chance of 1e-148.
RUNS = 800


def lone_rate(
    mechanism: NoisySelection, names: int, weight: int, runs: int = RUNS, *, source: NoiseSource | None = None
) -> int:
    """In how many runs a name of one unit alone is shown."""
    chunk = {f"name {number:04d}": weight for number in range(names)}
    return sum(bool(shown(mechanism, chunk, source=source or SystemNoise())) for _ in range(runs))


LOUD = NoisySelection(5.0, 0.05, 20)  # a chance that can be counted
ONE_LESS, FOR_ONE_NAME = LOUD.threshold - round(LOUD.scale), NoisySelection(5.0, 0.05, 1).threshold


def too_many(shown_in: int, runs: int = RUNS) -> bool:
    return bool(stats.binom.sf(shown_in - 1, runs, LOUD.delta) < 1e-6)


@pytest.mark.parametrize("names", [1, 4, 20])
def test_names_of_one_unit_are_shown_no_more_often_than_is_charged(names: int) -> None:
    assert not too_many(lone_rate(LOUD, names, weight_of(names)))


@pytest.mark.parametrize("threshold", [ONE_LESS, FOR_ONE_NAME], ids=["a deviation less", "for one name"])
def test_a_threshold_that_is_too_low_is_caught(threshold: int) -> None:
    lower = replace(LOUD)
    lower.__dict__["threshold"] = threshold
    assert too_many(lone_rate(lower, 20, weight_of(20), source=InsecureSeededNoise(0)))


def test_weights_that_are_not_shared_out_are_caught() -> None:
    runs = 6_000  # 7.9 in a hundred show one, in place of 5: it passes with a chance of 1e-5
    assert too_many(lone_rate(LOUD, 20, GRID, runs, source=InsecureSeededNoise(0)), runs)


def test_what_thousands_have_is_shown_with_its_sum_and_in_order() -> None:
    mechanism = NoisySelection(2.0, 1e-7, 10)
    found = select(
        mechanism, Sums(({"a": 900 * GRID, "b": 1}, {"bb": 0, "c": 1000 * GRID})), None, source=SystemNoise()
    )  # type: ignore[arg-type]
    assert decode_names(found["names"]) == ["a", "c"]
    assert found["value"] == pytest.approx([900, 1000], abs=20)


def test_without_noise_the_threshold_alone_decides() -> None:
    mechanism = NoisySelection(2.0, 1e-7, 10)
    chunk = {"at it": mechanism.threshold, "beyond": mechanism.threshold + 1, "far": 2 * mechanism.threshold}
    assert shown(mechanism, chunk, source=InsecureNoNoise()) == ["beyond", "far"]
    assert shown(mechanism) == []


def test_a_name_that_comes_twice_would_get_two_noises_and_is_refused() -> None:
    mechanism = NoisySelection(2.0, 1e-7, 10)
    for chunks in [({"b": 1, "a": 1},), ({"a": 1}, {"a": 1}), ({"b": 1}, {"a": 1})]:
        with pytest.raises(PrivacyError, match="twice, or out of order"):
            shown(mechanism, *chunks)


def test_a_query_with_more_names_per_unit_than_planned_is_refused() -> None:
    with pytest.raises(PrivacyError, match="more names than were planned"):
        shown(NoisySelection(2.0, 1e-7, 9))


@pytest.mark.parametrize("names", [[], ["a"], ["a b", "é", "数"]])
def test_names_survive_being_stored(names: list[str]) -> None:
    assert decode_names(encode_names(names)) == names


@pytest.mark.parametrize(
    "numbers", [(0.001, 1e-7, 10), (2.0, 0, 10), (2.0, 1.0, 10), (2.0, 1e-7, 0), (2.0, 1e-7, 1001), (1e12, 1e-7, 10)]
)
def test_a_selection_out_of_its_range_is_refused(numbers: tuple[float, float, int]) -> None:
    with pytest.raises(ConfigError):
        NoisySelection(*numbers)


def test_a_selection_survives_json_exactly() -> None:
    mechanism = NoisySelection(2.0, 1e-7, 10)
    fields = json.loads(json.dumps(mechanism_to_json(mechanism)))
    assert mechanism_from_json(fields, mechanism.event) == mechanism
    with pytest.raises(ValueError, match="not that of its mechanism"):
        mechanism_from_json(fields, SelectionEvent(2.0, 2e-7))


# -- the accountant ---------------------------------------------------------------------------------------------------


def test_what_may_fail_is_taken_off_delta() -> None:
    alone, with_others = Composition((SelectionEvent(2.0, 1e-7),)), (GaussianEvent(3.0), SelectionEvent(2.0, 1e-7))
    assert alone.epsilon(1e-6) == pytest.approx(Composition((GaussianEvent(2.0),)).epsilon(9e-7), rel=1e-9)
    assert alone.epsilon(1e-6) >= GDP(0.5).epsilon(9e-7)
    assert alone.epsilon(1e-7) == alone.epsilon(0) == math.inf
    assert Composition(with_others).mu == pytest.approx(math.sqrt(1 / 9 + 1 / 4))
    assert Composition((SelectionEvent(2.0, 1e-7),) * 2).failure == pytest.approx(2e-7)
    assert alone.power(0.01) == pytest.approx(Composition((GaussianEvent(2.0),)).power(0.01) + 1e-7, abs=1e-12)


@pytest.mark.parametrize("other", [PureEvent(0.5), ZCDPEvent(0.1)])
def test_beside_other_events_too(other: Any) -> None:
    gaussian, selection = Composition((other, GaussianEvent(2.0))), Composition((other, SelectionEvent(2.0, 1e-7)))
    assert selection.epsilon(1e-6) == pytest.approx(gaussian.epsilon(9e-7), rel=1e-6)


def test_a_split_budget_with_a_part_of_delta_is_spent_and_no_more() -> None:
    budget, lone = Budget(3, "1e-6"), Fraction(1, 10**7)
    first, second = gaussian_split(Budget.of(budget.epsilon, budget.delta - lone), [0.2, 0.8])
    total = Composition((SelectionEvent(first, float(lone)), GaussianEvent(second))).epsilon(1e-6)
    assert 2.999999 < total <= 3


def test_over_runs_what_may_fail_counts_as_well() -> None:
    one = Spending(Budget(1, "1e-6"), (SelectionEvent(5.0, 4e-7),))
    assert renyi_epsilon(one.events, 1e-6) > renyi_epsilon((GaussianEvent(5.0),), 1e-6)
    allowed = BudgetFilter(Budget(50, "1e-6"), "rdp")
    assert allowed.admits([one], one)
    assert not allowed.admits([one, one], one)
