"""The noise has the promised distribution, on both sides, and nothing but the operating system steers it."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from noise_tests import ALPHA, dependence_p_value, mean_p_value, scale_p_value, shape_p_value

from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseKind, SystemNoise

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
