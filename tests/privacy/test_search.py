"""Searches end on the safe side of the edge, near it, in few steps, whatever the excess looks like."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.privacy.events import PureEvent, SubsampledGaussianEvent, epsilon_of, gaussian_loss
from understudy.privacy.guarantee import Budget, gaussian_noise_multiplier
from understudy.privacy.search import edge, last_number, log_ratio, to_the_last_bit
from understudy.privacy.subsampled import coarse_excess, subsampled_multiplier

SHAPES: dict[str, Callable[[float, float], float]] = {
    "a power": lambda ratio, power: power * math.log(ratio),
    "a cliff": lambda ratio, power: math.copysign(power, math.log(ratio)) if ratio != 1 else 0.0,
    "flat, then steep": lambda ratio, power: (1 if ratio > 1 else 1e-4) * power * math.log(ratio),
    "stairs": lambda ratio, power: math.ceil(20 * power * math.log(ratio)) / 20,
    "infinite where it is broken": lambda ratio, power: log_ratio(math.inf if ratio > 1 else ratio, 1.0),
}


@given(
    st.sampled_from(sorted(SHAPES)),
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e6),
    st.floats(0.05, 8),
    st.booleans(),
    st.sampled_from([1e-2, 1e-3, 1e-9]),
)
def test_the_answer_keeps_the_promise_and_is_near_the_edge(
    shape: str, at: float, near: float, power: float, noise: bool, tolerance: float
) -> None:
    """Of noise, of which more is safe, and of steps, of which fewer are."""

    def excess(x: float) -> float:
        return SHAPES[shape](at / x if noise else x / at, power)

    safe, unsafe = (1e9, 1e-9) if noise else (1e-9, 1e9)
    found = edge(excess, near=near, safe=safe, unsafe=unsafe, tolerance=tolerance)
    assert found is not None
    assert excess(found) <= 0
    slack = 1.1 * tolerance + 1e-12
    if shape in ("a power", "flat, then steep"):  # the margin is in the excess, and these are flatter than it
        slack *= max(1, 1 / power) * (1e4 if shape == "flat, then steep" else 1)
    if slack < 0.5:
        assert excess(found * (1 - slack) if noise else found * (1 + slack)) >= (0 if shape != "stairs" else -0.06)


@pytest.mark.parametrize("near", [0.001, 1.0, 1000.0])
def test_an_end_that_keeps_the_promise_is_the_answer_and_one_that_breaks_it_is_none(near: float) -> None:
    assert edge(lambda _: -1.0, near=near, safe=1000.0, unsafe=0.001) == 0.001
    assert edge(lambda _: 1.0, near=near, safe=1000.0, unsafe=0.001) is None
    assert edge(lambda x: -1.0 if x == 1000.0 else 1.0, near=near, safe=1000.0, unsafe=0.001) == pytest.approx(1000.0)


@pytest.mark.parametrize("above", [0.3, 1e-9])
@pytest.mark.parametrize("jump", [2.0, 2.0301, 2.11, 2.777])
def test_steps_in_what_is_computed_do_not_put_the_answer_on_the_unsafe_side(jump: float, above: float) -> None:
    """Losses on a grid are flat and then jump: the root that was found may be one jump too far."""

    def excess(number: float) -> float:
        return -0.5 if number >= jump else above

    found = edge(excess, near=3.0, safe=100.0, unsafe=0.01)
    assert found is not None
    assert excess(found) <= 0
    assert found < jump * 1.01


def test_few_computations_are_made() -> None:
    calls = []

    def excess(multiplier: float) -> float:
        calls.append(multiplier)
        return math.log((1 / multiplier + 0.3 / multiplier**2) / 2)

    edge(excess, near=3.0, safe=1e6, unsafe=1e-3)
    assert len(calls) <= 7


def test_the_last_bits_of_what_is_computed_do_not_show_in_the_answer() -> None:
    """Another processor or library has others there, and a charged run is resumed with the noise that was charged."""

    def found(at: float, bits: int) -> float | None:
        return edge(lambda x: 1.3 * math.log(at / x) * (1 + bits * 2.0**-52), near=2.0, safe=1e6, unsafe=1e-3)

    for at in (0.3, 1.7, 42.0, 5253.6):
        assert {found(at, bits) for bits in (-3, -1, 1, 3)} == {found(at, 0)}


@given(st.integers(-1000, 1000), st.integers(1, 1000), st.booleans())
def test_the_last_whole_number_is_found_from_either_side(edge_at: int, distance: int, upwards: bool) -> None:
    if upwards:
        assert last_number(lambda n: n <= edge_at, holds_at=edge_at - distance, fails_at=edge_at + distance) == edge_at
    else:
        assert last_number(lambda n: n >= edge_at, holds_at=edge_at + distance, fails_at=edge_at - distance) == edge_at


@given(st.floats(1e-3, 1e3))
def test_halving_ends_at_neighbouring_doubles(at: float) -> None:
    found = to_the_last_bit(lambda x: x >= at, holds_at=2e3, fails_at=0.0)
    assert found == at


@settings(max_examples=12)
@given(st.floats(0.05, 8), st.floats(0.002, 1), st.integers(1, 300))
def test_noise_is_never_less_than_the_budget_asks(epsilon: float, rate: float, tokens: int) -> None:
    budget = Budget(round(epsilon, 3), "1e-6")
    found = subsampled_multiplier(budget, rate=rate, count=tokens)
    assert coarse_excess(budget, SubsampledGaussianEvent(found, rate, tokens), ()) <= 1e-12
    if found > 0.25:
        assert coarse_excess(budget, SubsampledGaussianEvent(found / 1.003, rate, tokens), ()) > 0


def test_there_is_noise_for_losses_that_are_finer_than_their_grid() -> None:
    found = subsampled_multiplier(Budget("0.1", "1e-6"), rate=1.0, count=20_000)
    assert found == pytest.approx(gaussian_noise_multiplier(0.1, 1e-6) * math.sqrt(20_000), rel=0.03)


@settings(max_examples=25)
@given(
    st.floats(0.3, 50), st.sampled_from([1.0, 0.9, 0.2, 0.01, 1e-5]), st.sampled_from([1e-3, 5e-3]), st.integers(1, 99)
)
def test_losses_are_those_of_the_library_which_computes_them_one_by_one(
    multiplier: float, rate: float, interval: float, count: int
) -> None:
    """At the same grid points, with the same masses."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    reference = from_gaussian_mechanism(multiplier, value_discretization_interval=interval, sampling_prob=rate)
    ours = gaussian_loss(multiplier, rate=rate, interval=interval)
    for delta in (1e-3, 1e-9):
        expected = reference.self_compose(count).get_epsilon_for_delta(delta)
        assert ours.self_compose(count).get_epsilon_for_delta(delta) == pytest.approx(expected, rel=1e-5, abs=1e-8)
    composed = ours.self_compose(count)
    for delta in (0.9, 1e-3, 1e-9, 1e-30, 0.0):  # in one pass over the losses what the library finds one by one
        expected = composed.get_epsilon_for_delta(delta)
        assert epsilon_of(composed, delta) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    for known, made in ((reference._pmf_remove, ours._pmf_remove), (reference._pmf_add, ours._pmf_add)):
        known, made = known.to_dense_pmf(), made.to_dense_pmf()
        assert known._lower_loss == made._lower_loss
        assert made._probs == pytest.approx(known._probs, abs=1e-10)


def test_losses_of_a_sample_are_of_a_unit_that_is_removed_and_of_one_that_is_added() -> None:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    reference = from_gaussian_mechanism(1.0, value_discretization_interval=5e-3, sampling_prob=0.2)
    ours = gaussian_loss(1.0, rate=0.2, interval=5e-3)
    assert ours._pmf_remove.to_dense_pmf()._probs == pytest.approx(reference._pmf_remove.to_dense_pmf()._probs)
    assert ours._pmf_add.to_dense_pmf()._probs == pytest.approx(reference._pmf_add.to_dense_pmf()._probs)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning:dp_accounting")
@pytest.mark.parametrize("delta", [1e-12, 0.3])
def test_epsilons_of_losses_of_every_kind_are_the_library_s(delta: float) -> None:
    """Sparse ones, composed with dense ones, and so large that e^-loss is 0."""
    pure = PureEvent(2.0).to_pld()
    for loss in (pure, pure.compose(gaussian_loss(1.0, interval=1e-4)), gaussian_loss(0.02, interval=0.5)):
        expected = loss.get_epsilon_for_delta(delta)
        assert epsilon_of(loss, delta) == pytest.approx(expected, rel=1e-9)
        assert expected > 0
