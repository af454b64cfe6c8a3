"""The noise has the promised distribution, on both sides, and nothing but the operating system steers it."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from noise_tests import ALPHA, dependence_p_value, mean_p_value, scale_p_value, shape_p_value
from scipy import stats

from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseKind, NoiseSource, SystemNoise

KINDS: tuple[NoiseKind, ...] = ("gaussian", "laplace")
SIZE = 4_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [16384.0, 2.0**20 * 4.22468, 6.5e10])
def test_the_noise_is_as_large_as_promised_and_no_larger(kind: NoiseKind, scale: float) -> None:
    noise = SystemNoise().draw(kind, scale=scale, size=SIZE)
    assert noise.dtype == np.int64
    assert scale_p_value(kind, noise, scale=scale) > ALPHA
    assert mean_p_value(kind, noise, scale=scale) > ALPHA


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_noise_of_two_thirds_or_three_halves_of_the_scale_is_caught(kind: NoiseKind, wrong: float) -> None:
    noise = SystemNoise().draw(kind, scale=1e6 * wrong, size=SIZE)
    assert scale_p_value(kind, noise, scale=1e6) < ALPHA


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_small_scales_follow_the_exact_probabilities(kind: NoiseKind, scale: float) -> None:
    noise = SystemNoise().draw(kind, scale=scale, size=SIZE)
    assert shape_p_value(kind, noise, scale=scale) > ALPHA
    assert mean_p_value(kind, noise, scale=scale) > ALPHA


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_the_exact_probabilities_catch_a_wrong_small_scale(kind: NoiseKind, wrong: float) -> None:
    assert shape_p_value(kind, SystemNoise().draw(kind, scale=3 * wrong, size=SIZE), scale=3.0) < ALPHA


def test_the_tests_tell_gaussian_from_laplace_noise_and_a_shifted_mean() -> None:
    laplace = SystemNoise().draw("laplace", scale=3.0, size=SIZE)
    assert shape_p_value("gaussian", laplace, scale=3.0) < ALPHA
    gaussian = SystemNoise().draw("gaussian", scale=1e6, size=SIZE)
    assert mean_p_value("gaussian", gaussian + 200_000, scale=1e6) < ALPHA


@pytest.mark.parametrize("kind", KINDS)
def test_coordinates_are_independent(kind: NoiseKind) -> None:
    noise = SystemNoise().draw(kind, scale=1e6, size=SIZE)
    for lag in (1, 2, 16):
        assert dependence_p_value(noise[:-lag], noise[lag:]) > ALPHA
    assert dependence_p_value(noise[: SIZE // 2], noise[SIZE // 2 :]) > ALPHA


def test_the_test_of_independence_catches_a_reused_draw() -> None:
    noise = SystemNoise().draw("gaussian", scale=1e6, size=500)
    twice = np.repeat(noise, 2)
    assert dependence_p_value(twice[:-1], twice[1:]) < ALPHA
    assert dependence_p_value(noise, -noise) < ALPHA


@pytest.mark.parametrize("kind", KINDS)
def test_no_seed_repeats_the_noise(kind: NoiseKind) -> None:
    def draw() -> list[int]:
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002 - the global state is what must not matter
        return SystemNoise().draw(kind, scale=1e9, size=8).tolist()

    first, second = draw(), draw()
    assert not set(first) & set(second)


def test_drawing_noise_leaves_the_seeded_generators_alone() -> None:
    np.random.seed(7)  # noqa: NPY002
    random.seed(7)
    before = (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    SystemNoise().draw("gaussian", scale=10, size=100)
    assert before == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_draws_other_noise_than_its_parent() -> None:
    source = SystemNoise()
    source.draw("gaussian", scale=1e12, size=4)  # whatever is buffered is buffered now
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        os.write(write, source.draw("gaussian", scale=1e12, size=4).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.int64)
    os.waitpid(child, 0)
    ours = source.draw("gaussian", scale=1e12, size=4)
    assert theirs.size == 4
    assert not set(ours.tolist()) & set(theirs.tolist())


def test_draws_longer_than_a_chunk_have_their_size_and_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.privacy.noise._CHUNK", 100)
    noise = SystemNoise().draw("gaussian", scale=1e12, size=250)
    assert noise.shape == (250,)
    assert len(set(noise.tolist())) == 250


@pytest.mark.parametrize("source", [SystemNoise(), InsecureSeededNoise(1), InsecureNoNoise()])
def test_an_empty_draw_is_empty(source: SystemNoise | InsecureSeededNoise | InsecureNoNoise) -> None:
    assert source.draw("gaussian", scale=10.0, size=0).shape == (0,)


def test_every_source_of_noise_says_where_its_noise_comes_from() -> None:
    assert SystemNoise().origin == "system"
    assert InsecureSeededNoise(0).origin == "seeded"
    assert InsecureNoNoise().origin == "none"


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_noise_repeats_and_has_the_right_scale(kind: NoiseKind) -> None:
    first = InsecureSeededNoise(3).draw(kind, scale=1e6, size=SIZE)
    assert np.array_equal(first, InsecureSeededNoise(3).draw(kind, scale=1e6, size=SIZE))
    assert not np.array_equal(first, InsecureSeededNoise(4).draw(kind, scale=1e6, size=SIZE))
    assert scale_p_value(kind, first, scale=1e6) > ALPHA


def test_no_noise_is_none() -> None:
    assert not InsecureNoNoise().draw("laplace", scale=1e6, size=5).any()


# -- coins: each falls with its own rate, never with a higher one, independently of all others ------------------------

COINS = 20_000
SOURCES = {"system": SystemNoise(), "seeded": InsecureSeededNoise(1), "no noise": InsecureNoNoise()}
sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


@sources
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.65])
def test_a_coin_falls_as_often_as_its_rate_says(source: NoiseSource, rate: float) -> None:
    """Two-sided at alpha = 1e-12: 2/3 and 3/2 of the rate would fail."""
    heads = int(source.include(np.full(COINS, rate)).sum())
    assert stats.binomtest(heads, COINS, rate).pvalue > ALPHA
    assert stats.binomtest(heads, COINS, rate * 2 / 3).pvalue < ALPHA
    assert stats.binomtest(heads, COINS, rate * 3 / 2).pvalue < ALPHA


@sources
def test_what_has_rate_0_is_never_included_and_what_has_rate_1_always(source: NoiseSource) -> None:
    rates = np.tile([0.0, 1.0], 500)
    assert np.array_equal(source.include(rates), rates == 1)
    assert source.include(np.zeros(0)).shape == (0,)


@sources
def test_each_coin_has_its_own_rate(source: NoiseSource) -> None:
    rates = np.tile([0.1, 0.5, 0.9], 5_000)
    found = source.include(rates).reshape(-1, 3).sum(axis=0)
    for heads, rate in zip(found, (0.1, 0.5, 0.9), strict=True):
        assert stats.binomtest(int(heads), 5_000, rate).pvalue > ALPHA


def test_coins_are_independent_of_one_another_and_of_the_last_ones() -> None:
    source, rates = SystemNoise(), np.full(COINS, 0.5)
    first, second = source.include(rates), source.include(rates)
    for one, other in ((first, second), (first[1:], first[:-1])):
        assert stats.binomtest(int(np.sum(one == other)), len(one), 0.5).pvalue > ALPHA


def test_integers_of_the_last_and_incomplete_round_are_sampled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^64 is 1 more than a multiple of 3: were its last integer used, 0 would be likelier than 1 and 2."""
    drawn = iter([2**64 - 1, 5])
    monkeypatch.setattr(
        "understudy.privacy.noise.secrets.token_bytes", lambda size: next(drawn).to_bytes(size, "little")
    )
    assert SystemNoise().uniform(1, below=3).tolist() == [2]


def test_a_rate_is_never_exceeded_by_rounding() -> None:
    """The largest integer that is included lies below the rate, exactly."""
    from understudy.privacy.noise import _below

    for rate in (0.1, 1 / 3, 1e-18, float(np.nextafter(1, 0)), 5e-324):
        above = int(rate * 2.0**64)  # floor: a power of two changes no digit
        rates = np.full(2, rate)
        bits = np.array([above, max(above - 1, 0)], dtype=np.uint64)
        assert _below(bits, rates).tolist() == [False, above > 0]
