"""A choice has the exponential mechanism's probabilities, exactly, and nothing but the system's entropy steers it."""

from __future__ import annotations

import os
import random
import threading

import numpy as np
import pytest
from noise_tests import ALPHA
from numpy.typing import NDArray
from scipy import stats

from understudy.base.errors import PrivacyError
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise, _chooser

DRAWS = 6_000
SOURCES = {"system": SystemNoise(), "seeded": InsecureSeededNoise(1), "no noise": InsecureNoNoise()}
sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
UTILITIES = np.array([0, 4096, -2048, 4096, 1000], dtype=np.int64)


def choices_p_value(chosen: list[int], utilities: NDArray[np.int64], *, scale: float) -> float:
    """Chi-square against the exponential mechanism."""
    weights = np.exp((utilities - utilities.max()) / scale)
    counts = np.bincount(chosen, minlength=len(utilities))
    return float(stats.chisquare(counts, len(chosen) * weights / weights.sum()).pvalue)


@sources
def test_a_choice_has_the_probabilities_of_the_exponential_mechanism(source: NoiseSource) -> None:
    chosen = [source.choose(UTILITIES, scale=2048.0) for _ in range(DRAWS)]
    assert choices_p_value(chosen, UTILITIES, scale=2048.0) > ALPHA
    for wrong in (2 / 3, 3 / 2):
        assert choices_p_value(chosen, UTILITIES, scale=2048.0 * wrong) < ALPHA


def test_the_test_tells_the_exponential_mechanism_from_permute_and_flip() -> None:
    """Under pure DP the same OpenDP constructor draws exponential noise, which is another distribution."""
    import opendp.prelude as dp

    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    other = dp.m.make_noisy_max(integers, dp.linf_distance(T="i64"), dp.max_divergence(), scale=2048.0)
    two = np.array([0, 2048], dtype=np.int64)
    chosen = [other(two.tolist()) for _ in range(DRAWS)]  # 1 - 1/2e against 1 - 1/(1 + e)
    assert choices_p_value(chosen, two, scale=2048.0) < ALPHA


@pytest.mark.parametrize(("sensitivity", "scale"), [(4096, 4096.0), (4096, 208896.0), (1, 2.0)])
def test_opendp_states_the_same_rho_for_the_measurement(sensitivity: int, scale: float) -> None:
    assert _chooser(scale).map(sensitivity) == pytest.approx((sensitivity / scale) ** 2 / 2, rel=1e-12)


def test_utilities_at_both_ends_of_64_bits_do_not_overflow() -> None:
    ends = np.array([-(2**63), 2**63 - 1, -(2**63)], dtype=np.int64)
    assert {SystemNoise().choose(ends, scale=2.0**40) for _ in range(50)} == {1}
    near = np.array([2**63 - 1, 2**63 - 1 - 2**40], dtype=np.int64)
    chosen = [SystemNoise().choose(near, scale=2.0**40) for _ in range(DRAWS)]
    assert choices_p_value(chosen, np.array([2**40, 0]), scale=2.0**40) > ALPHA


@sources
def test_a_single_candidate_is_chosen(source: NoiseSource) -> None:
    assert source.choose(np.array([-7], dtype=np.int64), scale=1.0) == 0


@sources
@pytest.mark.parametrize(
    "utilities", [np.zeros(0, dtype=np.int64), np.zeros((2, 2), dtype=np.int64), np.zeros(2), np.zeros(2, np.int32)]
)
def test_what_is_no_vector_of_64_bit_integers_is_refused(source: NoiseSource, utilities: NDArray[np.int64]) -> None:
    with pytest.raises(PrivacyError, match="nothing to choose from"):
        source.choose(utilities, scale=1.0)


def test_no_seed_repeats_a_choice_and_no_choice_moves_a_seeded_generator() -> None:
    def draw() -> list[int]:
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002 - the global state is what must not matter
        return [SystemNoise().choose(np.zeros(1000, dtype=np.int64), scale=1.0) for _ in range(8)]

    assert draw() != draw()
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    SystemNoise().choose(UTILITIES, scale=1.0)
    assert before == np.random.get_state()[1].tolist()  # noqa: NPY002


def test_seeded_choices_repeat() -> None:
    first, second = InsecureSeededNoise(3), InsecureSeededNoise(3)
    many = np.zeros(1000, dtype=np.int64)
    assert [first.choose(many, scale=1.0) for _ in range(8)] == [second.choose(many, scale=1.0) for _ in range(8)]


def test_threads_that_share_a_scale_draw_choices_of_their_own() -> None:
    many = np.zeros(1000, dtype=np.int64)
    chosen: list[tuple[int, ...]] = []

    def draw() -> None:
        chosen.append(tuple(SystemNoise().choose(many, scale=3.0) for _ in range(100)))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(chosen)) == 4
    counts = np.bincount(np.concatenate(chosen) // 100, minlength=10)
    assert stats.chisquare(counts).pvalue > ALPHA


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_makes_other_choices_than_its_parent() -> None:
    source, many = SystemNoise(), np.zeros(10_000, dtype=np.int64)
    source.choose(many, scale=1.0)  # whatever is buffered is buffered now
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        os.write(write, np.array([source.choose(many, scale=1.0) for _ in range(8)]).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.int64).tolist()
    os.waitpid(child, 0)
    assert len(theirs) == 8
    assert theirs != [source.choose(many, scale=1.0) for _ in range(8)]


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
