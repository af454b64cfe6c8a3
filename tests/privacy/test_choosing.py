"""A choice has the exponential mechanism's probabilities, exactly, and nothing but the system's entropy steers it."""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from fractions import Fraction
from itertools import chain, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noise_tests import ALPHA
from numpy.typing import NDArray
from scipy import stats

from understudy.base.errors import PrivacyError
from understudy.privacy import noise as exponential
from understudy.privacy.noise import (
    InsecureNoNoise,
    InsecureSeededNoise,
    NoiseSource,
    SystemNoise,
    _chooser,
    choose_exactly,
)

# So many that noise of two thirds or three halves of the scale passes with a chance below 1e-8.
DRAWS = 3_000
SCALE = 2048.0
FEW = np.array([0, 4096, -2048, 4096, 1000], dtype=np.int64)
MANY = np.random.default_rng(0).integers(-20_000, 20_000, 10_000)
EXACT = Context(prec=60, traps=[])
SOURCES = {"system": SystemNoise(), "seeded": InsecureSeededNoise(1), "no noise": InsecureNoNoise()}
sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
Chooser = Callable[..., int]
choosers = pytest.mark.parametrize("choose", [choose_exactly, SystemNoise().choose], ids=["ours", "of the system"])


def p_value(chosen: list[int], utilities: NDArray[np.int64], *, scale: float, bins: int = 50) -> float:
    """Chi-square against the exponential mechanism, candidates dealt to about ``bins`` bins of like chances."""
    weights = np.exp((utilities - utilities.max()) / scale)
    weights /= weights.sum()
    order = np.argsort(-weights, kind="stable")
    bin_of = np.empty(len(weights), dtype=np.int64)
    bin_of[order] = np.minimum(np.cumsum(weights[order]) * bins, bins - 1).astype(np.int64)
    _, bin_of = np.unique(bin_of, return_inverse=True)
    expected = np.bincount(bin_of, weights)
    return float(stats.chisquare(np.bincount(bin_of[chosen], minlength=len(expected)), len(chosen) * expected).pvalue)


@pytest.mark.parametrize(
    ("choose", "utilities"),
    [(choose_exactly, FEW), (choose_exactly, MANY), (SystemNoise().choose, FEW), (InsecureSeededNoise(1).choose, FEW)],
    ids=["few", "many", "system", "seeded"],
)
def test_choices_have_the_exponential_mechanism_s_odds(choose: Chooser, utilities: NDArray[np.int64]) -> None:
    chosen = [choose(utilities, scale=SCALE) for _ in range(DRAWS)]
    assert p_value(chosen, utilities, scale=SCALE) > ALPHA
    for wrong in (2 / 3, 3 / 2):
        assert p_value(chosen, utilities, scale=SCALE * wrong) < ALPHA
        broken = [choose(utilities, scale=SCALE * wrong) for _ in range(DRAWS)]
        assert p_value(broken, utilities, scale=SCALE) < ALPHA


def test_without_noise_choices_are_the_system_s() -> None:
    assert InsecureNoNoise.choose is SystemNoise.choose


def test_it_is_opendp_s_law() -> None:
    opendp, utilities = _chooser(SCALE), FEW.tolist()
    tables = [
        np.bincount([draw() for _ in range(2 * DRAWS)], minlength=len(FEW))
        for draw in (lambda: choose_exactly(FEW, scale=SCALE), lambda: opendp(utilities))
    ]
    assert stats.chi2_contingency(tables).pvalue > ALPHA
    tables[0] = np.bincount([choose_exactly(FEW, scale=SCALE * 1.5) for _ in range(2 * DRAWS)], minlength=len(FEW))
    assert stats.chi2_contingency(tables).pvalue < ALPHA


def test_many_candidates_are_drawn_from_by_it_and_few_by_opendp(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(utilities: NDArray[np.int64], *, scale: float) -> int:
        return round(scale) - len(utilities)

    monkeypatch.setattr("understudy.privacy.noise.choose_exactly", chosen)
    assert SystemNoise().choose(np.zeros(4096, dtype=np.int64), scale=3.0) >= 0
    assert SystemNoise().choose(np.zeros(4097, dtype=np.int64), scale=3.0) == 3 - 4097


def test_the_test_tells_the_exponential_mechanism_from_permute_and_flip() -> None:
    """Under pure DP the same OpenDP constructor draws exponential noise, which is another distribution."""
    import opendp.prelude as dp

    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    other = dp.m.make_noisy_max(integers, dp.linf_distance(T="i64"), dp.max_divergence(), scale=2048.0)
    two = np.array([0, 2048], dtype=np.int64)
    chosen = [other(two.tolist()) for _ in range(2 * DRAWS)]  # 1 - 1/2e against 1 - 1/(1 + e)
    assert p_value(chosen, two, scale=2048.0) < ALPHA


@pytest.mark.parametrize(("sensitivity", "scale"), [(4096, 4096.0), (4096, 208896.0), (1, 2.0)])
def test_opendp_states_the_same_rho_for_the_measurement(sensitivity: int, scale: float) -> None:
    assert _chooser(scale).map(sensitivity) == pytest.approx((sensitivity / scale) ** 2 / 2, rel=1e-12)


@sources
def test_a_single_candidate_is_chosen(source: NoiseSource) -> None:
    assert source.choose(np.array([-7], dtype=np.int64), scale=1.0) == 0


@sources
@pytest.mark.parametrize(
    "utilities", [np.zeros(0, dtype=np.int64), np.zeros((2, 2), dtype=np.int64), np.zeros(2), np.zeros(2, np.int32)]
)
def test_what_is_no_vector_of_64_bit_integers_is_refused(source: NoiseSource, utilities: NDArray[np.int64]) -> None:
    with pytest.raises(PrivacyError, match="to choose by are empty"):
        source.choose(utilities, scale=1.0)


def test_seeded_choices_repeat() -> None:
    first, second = InsecureSeededNoise(3), InsecureSeededNoise(3)
    many = np.zeros(1000, dtype=np.int64)
    assert [first.choose(many, scale=1.0) for _ in range(8)] == [second.choose(many, scale=1.0) for _ in range(8)]


# -- the law, by its parts --------------------------------------------------------------------------------------------


class Recorder:
    """Takes the coin's place: what was proposed, and the chance that it is taken with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, float, int, int]] = []
        monkeypatch.setattr(exponential, "_coin", self)

    def __call__(self, *arguments: int) -> bool:
        self.seen.append(arguments)  # type: ignore[arg-type]
        return True


utilities_of_any_size = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-100_000, 100_000), min_size=1)


@settings(max_examples=60, deadline=None)
@given(utilities=utilities_of_any_size, scale=st.floats(2.0**-57, 2.0**57), data=st.data())
def test_each_proposal_s_weight_is_above_its_chance_and_every_integer_below_their_sum_proposes(
    utilities: list[int], scale: float, data: st.DataObject
) -> None:
    """c_i >= N exp(-d_i / scale), against 60 digits; and integer r proposes the candidate that it falls on."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        recorder = Recorder(monkeypatch)
        at = [0]
        bounds: list[int] = []

        def below(bound: int) -> int:
            bounds.append(bound)
            return at[0]

        monkeypatch.setattr("understudy.privacy.noise.secrets.randbelow", below)
        end = 0
        for number, utility in enumerate(utilities):  # the first and the last integer of every candidate
            at[0] = end
            assert choose_exactly(np.array(utilities, dtype=np.int64), scale=scale) == number
            deficit, used, one, weight = recorder.seen[-1]
            assert deficit == max(utilities) - utility
            assert used == scale
            chance = EXACT.multiply(one, EXACT.exp(-EXACT.divide(Decimal(deficit), Decimal(scale))))
            assert chance <= weight <= chance * (1 + Decimal(2) ** -29) + 2
            end += weight
            at[0] = end - 1
            assert choose_exactly(np.array(utilities, dtype=np.int64), scale=scale) == number
        assert set(bounds) == {end}
        assert end < 2**62


@pytest.mark.parametrize("lost", [np.float32, np.float16])
def test_weights_of_fewer_bits_would_be_below_the_chance(lost: type) -> None:
    """The twin of the test above: the margin is not so wide that anything passes."""
    spread = np.linspace(0, 30, 1000)
    weights = (np.exp(-spread.astype(lost)).astype(np.float64) * exponential._SPARE * 2.0**40).astype(np.int64) + 1
    chances = [Decimal(2**40) * EXACT.exp(-Decimal(x)) for x in spread.tolist()]
    assert any(weight < chance for weight, chance in zip(weights.tolist(), chances, strict=True))


@settings(max_examples=200, deadline=None)
@given(deficit=st.integers(0, 500_000), one=st.integers(1, 60), above=st.floats(0, 1), offset=st.integers(-3, 3))
def test_the_coin_is_exact_to_its_last_bit(deficit: int, one: int, above: float, offset: int) -> None:
    """Numbers just beside the chance, where 64 bits do not decide: what more say is what 60 digits say."""
    chance = Fraction(2**one) * Fraction(EXACT.exp(-EXACT.divide(Decimal(deficit), Decimal(SCALE))))
    weight = int(chance * (1 + Fraction(above))) + 1
    edge = int(chance / weight * 2**64) + offset
    if not 0 <= edge < 2**64:
        return
    for low in (0, 2**63, 2**64 - 1):
        drawn: Iterator[int] = chain([edge, low], repeat(1))
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr("understudy.privacy.noise.secrets.randbits", lambda _, drawn=drawn: next(drawn))
            expected = Fraction((edge * 2**64 + low) * 2**64 + 1, 2**192) < chance / weight
            assert exponential._coin(deficit, SCALE, 2**one, weight) is expected


def test_a_coin_that_64_bits_do_not_decide_asks_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def bits(count: int) -> int:
        asked.append(count)
        return 2**63 if len(asked) == 1 else 0

    monkeypatch.setattr("understudy.privacy.noise.secrets.randbits", bits)
    assert not exponential._coin(0, 1.0, 2**61, 2**62 + 1)  # a chance of a half, and less
    assert asked == [64, 64]


def test_whoever_is_far_behind_is_proposed_often_enough_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that is rounded down to 0 would take a candidate out, however small its share is."""
    asked: list[tuple[int, float, int, int]] = []
    monkeypatch.setattr("understudy.privacy.noise.secrets.randbelow", lambda below: below - 1)
    monkeypatch.setattr(exponential, "_coin", lambda *given: asked.append(given) or True)
    for behind in (1, 30, 60, 800, 2**62):
        assert choose_exactly(np.array([0, -behind], dtype=np.int64), scale=1.0) == 1
        deficit, _, one, weight = asked[-1]
        assert deficit == behind
        assert weight >= Fraction(math.exp(-behind)) * one


# -- the ends ---------------------------------------------------------------------------------------------------------


def test_utilities_at_both_ends_of_64_bits_do_not_overflow() -> None:
    ends = np.array([-(2**63), 2**63 - 1, -(2**63)], dtype=np.int64)
    for scale in (2.0**-57, 1.0, 2.0**40):
        assert {choose_exactly(ends, scale=scale) for _ in range(50)} == {1}
    assert {SystemNoise().choose(ends, scale=2.0**40) for _ in range(50)} == {1}
    two = np.array([2**63 - 1, 2**63 - 1 - 2**40], dtype=np.int64)
    chosen = [SystemNoise().choose(two, scale=2.0**40) for _ in range(DRAWS)]
    assert p_value(chosen, np.array([2**40, 0]), scale=2.0**40) > ALPHA
    near = np.array([2**63 - 1, 2**63 - 1 - 2**40, -(2**63)], dtype=np.int64)
    chosen = [choose_exactly(near, scale=2.0**40) for _ in range(DRAWS)]
    assert p_value(chosen, np.array([0, -(2**40), -(2**63)]), scale=2.0**40) > ALPHA
    apart = np.array([-(2**63), 2**63 - 1], dtype=np.int64)
    chosen = [choose_exactly(apart, scale=2.0**64) for _ in range(DRAWS)]
    odds = np.exp(-np.arange(2)[::-1])
    assert stats.chisquare(np.bincount(chosen), DRAWS * odds / odds.sum()).pvalue > ALPHA


@pytest.mark.parametrize("size", [1, 2, 4097, 20_000])
def test_equal_utilities_are_equally_likely(size: int) -> None:
    draws = 300 if size > 10_000 else 2_000
    chosen = np.array([choose_exactly(np.full(size, -7, dtype=np.int64), scale=1.0) for _ in range(draws)])
    if size == 1:
        assert not chosen.any()
    else:
        bins = min(size, 20)
        counts = np.bincount(chosen * bins // size, minlength=bins)
        shares = np.bincount(np.arange(size) * bins // size) / size
        assert stats.chisquare(counts, draws * shares).pvalue > ALPHA


def test_one_huge_utility_is_always_chosen() -> None:
    utilities = np.zeros(200_000, dtype=np.int64)
    utilities[123_456] = 100_000
    assert {choose_exactly(utilities, scale=1000.0) for _ in range(50)} == {123_456}


def test_tiny_chances_are_as_small_as_they_should_be() -> None:
    """20,000 tokens of e^-10 each: 0.48 of the draws, evenly; of e^-40 each: none, though each may be proposed."""
    utilities = np.zeros(20_001, dtype=np.int64)
    utilities[0] = 10_000
    share = 20_000 * np.exp(-10) / (1 + 20_000 * np.exp(-10))
    chosen = np.array([choose_exactly(utilities, scale=1000.0) for _ in range(600)])
    assert stats.binomtest(int((chosen > 0).sum()), 600, share).pvalue > ALPHA
    rest = chosen[chosen > 0]
    assert stats.kstest(rest / 20_000, "uniform").pvalue > ALPHA
    utilities[0] = 40_000
    assert {choose_exactly(utilities, scale=1000.0) for _ in range(50)} == {0}


def test_a_proposal_that_the_coin_refuses_is_made_anew() -> None:
    """Two tokens one in 2^12 apart in chance, with weights that favour the small one by far: the coin mends it."""
    coins = [0, 0]
    for _ in range(4_000):
        for index, (deficit, weight) in enumerate([(0, 64), (8 * 2048, 2)]):
            coins[index] += exponential._coin(deficit, SCALE, 32, weight)
    assert stats.binomtest(coins[0], 4_000, 0.5).pvalue > ALPHA
    assert stats.binomtest(coins[1], 4_000, 16 * np.exp(-8)).pvalue > ALPHA


# -- where the randomness is from -------------------------------------------------------------------------------------


@choosers
def test_threads_draw_choices_of_their_own(choose: Chooser) -> None:
    many = np.zeros(1_000, dtype=np.int64)
    chosen: list[tuple[int, ...]] = []

    def draw() -> None:
        chosen.append(tuple(choose(many, scale=3.0) for _ in range(200)))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(chosen)) == 4
    assert stats.chisquare(np.bincount(np.concatenate(chosen) // 100, minlength=10)).pvalue > ALPHA


@choosers
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_other_choices_than_its_parent(choose: Chooser) -> None:
    many = np.zeros(1_000, dtype=np.int64)
    choose(many, scale=1.0)  # whatever is buffered is buffered now
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        os.write(write, np.array([choose(many, scale=1.0) for _ in range(8)]).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.int64).tolist()
    os.waitpid(child, 0)
    assert len(theirs) == 8
    assert theirs != [choose(many, scale=1.0) for _ in range(8)]


@choosers
def test_no_seed_repeats_a_choice_and_no_choice_moves_a_seeded_generator(choose: Chooser) -> None:
    def draw() -> list[int]:
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002 - the global state is what must not matter
        return [choose(np.zeros(1_000, dtype=np.int64), scale=1.0) for _ in range(8)]

    assert draw() != draw()
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    choose(FEW, scale=1.0)
    assert before == np.random.get_state()[1].tolist()  # noqa: NPY002


# -- uniform integers -------------------------------------------------------------------------------------------------


@sources
@pytest.mark.parametrize("below", [1, 2, 7, 10])
def test_uniform_integers_are_uniform_and_below_their_bound(source: NoiseSource, below: int) -> None:
    drawn = source.uniform(20_000, below=below)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 0
    assert drawn.max() < below
    if below > 1:
        assert stats.chisquare(np.bincount(drawn, minlength=below)).pvalue > ALPHA


def test_no_remainder_favours_small_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 2^64 numbers the last few, which make no whole round, are drawn again."""
    below = 3 * 2**61  # a third of all numbers would fall on the first third of the integers twice
    drawn = SystemNoise().uniform(20_000, below=below)
    thirds = np.bincount(drawn // 2**61, minlength=3)
    assert stats.chisquare(thirds).pvalue > ALPHA
    tries = [np.array([2**64 - 1, 5], dtype=np.uint64).tobytes(), np.array([3], dtype=np.uint64).tobytes()]
    monkeypatch.setattr("understudy.privacy.noise.secrets.token_bytes", lambda size: tries.pop(0)[:size])
    assert SystemNoise().uniform(2, below=7).tolist() == [3, 5]


def test_no_uniform_integers_are_an_empty_vector() -> None:
    assert SystemNoise().uniform(0, below=3).shape == (0,)
