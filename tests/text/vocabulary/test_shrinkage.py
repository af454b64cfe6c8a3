"""The posterior of the spike-and-slab model: against numerical integration, and against what was simulated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from understudy.privacy.noise import NoiseKind
from understudy.text.vocabulary.shrinkage import (
    FEWEST_TERMS,
    MOST_TERMS,
    SURE,
    KnownNoise,
    Posterior,
    SpikeAndSlab,
    likely_terms,
    noise_floor,
    shrink,
    sure_terms,
    top_terms,
)

UNIT_NOISE: dict[NoiseKind, Any] = {"gaussian": stats.norm(), "laplace": stats.laplace(scale=0.5**0.5)}
# The same without scipy's checks: an integral asks hundreds of times.
DENSITY: dict[NoiseKind, Callable[[float], float]] = {
    "gaussian": lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "laplace": lambda x: math.exp(-math.sqrt(2) * abs(x)) / math.sqrt(2),
}
kinds = pytest.mark.parametrize("kind", UNIT_NOISE)


def integrated(value: float, model: SpikeAndSlab, density: Callable[[float], float]) -> tuple[float, float]:
    """(probability of a true value above 0, expected true value), by quadrature."""

    def slab(true: float, power: int) -> float:
        return true**power * math.exp(-true / model.slab_mean) / model.slab_mean * density(value - true)

    kink = max(value, 0.0)
    spans = [(0.0, kink), (kink, kink + 80.0)]
    mass, moment = (
        sum(integrate.quad(slab, *span, args=(power,), epsabs=0, epsrel=1e-10, limit=500)[0] for span in spans)
        for power in (0, 1)
    )
    real = model.share * mass
    total = real + (1 - model.share) * density(value)
    return real / total, model.share * moment / total


@kinds
@pytest.mark.parametrize("slab_mean", [0.3, 0.5, 0.5**0.5, 0.5**0.5 + 1e-9, 1.0, 3.0, 50.0])
def test_the_posterior_is_that_of_numerical_integration(kind: NoiseKind, slab_mean: float) -> None:
    model = SpikeAndSlab(share=0.2, slab_mean=slab_mean)
    values = np.array([-6.0, -1.0, 0.0, 1e-5, 0.5, 2.0, 4.0, 20.0])
    found = model.posterior(values, kind)
    expected = [integrated(float(value), model, DENSITY[kind]) for value in values]
    assert np.allclose(found.probability, [each[0] for each in expected], rtol=1e-6, atol=1e-12)
    assert np.allclose(found.mean, [each[1] for each in expected], rtol=1e-5, atol=1e-12)


def simulated(kind: NoiseKind, share: float, slab_mean: float, std: float, size: int = 40_000) -> tuple[Any, Any]:
    generator = np.random.default_rng(1)
    true = np.where(generator.random(size) < share, generator.exponential(slab_mean, size), 0.0)
    return true, true + std * UNIT_NOISE[kind].rvs(size, random_state=generator)


@kinds
def test_the_model_is_estimated_from_the_noisy_values(kind: NoiseKind) -> None:
    _, noisy = simulated(kind, 0.1, 8.0, 1.0)
    found = SpikeAndSlab(share=0.5, slab_mean=3.0).fitted(noisy, kind)
    assert found.share == pytest.approx(0.1, abs=0.01)
    assert found.slab_mean == pytest.approx(8.0, rel=0.05)


@kinds
def test_shrunk_values_are_nearer_to_the_true_ones_and_calibrated(kind: NoiseKind) -> None:
    true, noisy = simulated(kind, 0.1, 12.0, 3.0)
    found = shrink(noisy.reshape(4, -1), KnownNoise(kind, 3.0))
    assert found.mean.shape == found.probability.shape == (4, 10_000)
    mean, probability = found.mean.ravel(), found.probability.ravel()
    assert np.mean((mean - true) ** 2) < 0.5 * np.mean((np.maximum(noisy, 0) - true) ** 2)
    assert np.mean((mean - true) ** 2) < np.mean((np.where(noisy > 9, noisy, 0) - true) ** 2)
    sure = (probability > 0.4) & (probability < 0.8)
    assert np.mean(true[sure] > 0) == pytest.approx(probability[sure].mean(), abs=0.1)
    assert mean.sum() == pytest.approx(true.sum(), rel=0.05)


@kinds
def test_extreme_values_and_noise_give_finite_numbers(kind: NoiseKind) -> None:
    """Of a stranger's Release: up to 1e30, with any noise that its statement may name."""
    for std in (1e-300, 1e-20, 1.0, 1e20, 1e300):
        for values in ([[1e30, -1e30, 0.0, 1.0]], [[0.0] * 4], [[-5.0] * 4], [[7.0]]):
            with np.errstate(all="raise", under="ignore"):
                found = shrink(np.array(values), KnownNoise(kind, std))
            for each in (found.mean, found.probability):
                assert np.all(np.isfinite(each))
                assert np.all(each >= 0)


def test_without_noise_nothing_is_shrunk() -> None:
    values = np.array([[2.0, 0.0], [-1.0, 0.5]])
    found: Posterior = shrink(values, KnownNoise("gaussian", 0.0))
    assert found.mean.tolist() == [[2.0, 0.0], [0.0, 0.5]]
    assert found.probability.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_many_values_are_fitted_by_some_of_them_and_repeatably(monkeypatch: pytest.MonkeyPatch) -> None:
    _, noisy = simulated("gaussian", 0.1, 8.0, 1.0)
    whole = shrink(noisy, KnownNoise("gaussian", 1.0)).mean
    monkeypatch.setattr("understudy.text.vocabulary.shrinkage._FITTED", 10_000)
    some = [shrink(noisy, KnownNoise("gaussian", 1.0)).mean for _ in range(2)]
    assert np.array_equal(*some)
    assert np.allclose(some[0], whole, atol=0.5)


def test_the_largest_counts_come_first_and_ties_by_index() -> None:
    assert top_terms(np.array([1.0, 5.0, -2.0, 5.0, 3.0]), 4).tolist() == [1, 3, 4, 0]
    assert top_terms(np.array([0.0, 0.0, 0.0]), 2).tolist() == [0, 1]
    counts = np.random.default_rng(0).normal(size=100)
    assert sorted(top_terms(counts, 100).tolist()) == list(range(100))
    assert top_terms(counts, 100).dtype == np.int64


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_pure_noise_passes_the_floor_at_about_one_term(size: int) -> None:
    assert 0 < noise_floor(1.0, 1) < 2
    generator = np.random.default_rng(1)
    above = [np.sum(generator.normal(0, 3.0, size) > noise_floor(3.0, size)) for _ in range(50)]
    assert 0.05 < np.mean(above) < 2


def noise_of(kind: NoiseKind, size: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=size) if kind == "gaussian" else generator.laplace(scale=0.5**0.5, size=size)


@kinds
def test_terms_that_are_real_are_found_with_room_for_as_many_uncertain_ones(kind: NoiseKind) -> None:
    true = np.zeros(40_000)
    true[:400] = np.geomspace(400, 5, 400)
    found = likely_terms(shrink(true * 3 + noise_of(kind, 40_000) * 3, KnownNoise(kind, 3.0)), fewest=1)
    assert np.mean(np.isin(np.arange(350), found)) > 0.95
    assert 600 < len(found) < 3000
    assert found[:10].tolist() == list(range(10)), "the largest first"


@kinds
def test_where_nothing_is_real_the_fewest_terms_are_kept(kind: NoiseKind) -> None:
    found = likely_terms(shrink(noise_of(kind, 20_000), KnownNoise(kind, 1.0)), fewest=1)
    assert FEWEST_TERMS <= len(found) <= FEWEST_TERMS + 700
    assert len(likely_terms(shrink(noise_of(kind, 20_000), KnownNoise(kind, 1.0)), fewest=1000)) == 1000
    assert sorted(likely_terms(shrink(noise_of(kind, 7), KnownNoise(kind, 1.0)), fewest=10).tolist()) == list(range(7))


def test_a_vocabulary_has_no_more_than_the_most_terms() -> None:
    everything = np.full(3 * MOST_TERMS, 1e6) + noise_of("gaussian", 3 * MOST_TERMS)
    found = likely_terms(shrink(everything, KnownNoise("gaussian", 1.0)), fewest=1)
    assert len(found) == len(set(found.tolist())) == MOST_TERMS


def test_a_rare_term_comes_behind_a_frequent_one_of_a_smaller_count() -> None:
    counts = noise_of("gaussian", 60_000)
    counts[:500] += 8.0
    counts[[200, 59_000]] = 3.0, 4.0
    found = likely_terms(shrink(counts, KnownNoise("gaussian", 1.0)), fewest=1).tolist()
    assert 200 in found
    assert 59_000 not in found or found.index(59_000) > found.index(200)


def test_without_noise_the_terms_above_0_come_first() -> None:
    counts = np.zeros(1_000)
    counts[10:60] = np.arange(50, 0, -1)
    found = likely_terms(shrink(counts, KnownNoise("gaussian", 0.0)), fewest=1)
    assert found[:50].tolist() == list(range(10, 60))
    assert len(found) == FEWEST_TERMS


@kinds
@pytest.mark.parametrize("labels", [1, 4, 40])
@pytest.mark.parametrize("real", [0, 20, 400])
def test_terms_that_are_sure_are_hardly_ever_chance(kind: NoiseKind, labels: int, real: int) -> None:
    """Two measurements of 20,000 terms: their counts, and the scores of the likeliest under each label."""
    true = np.zeros(20_000)
    true[:real] = np.geomspace(600, 3, max(real, 1))[:real]
    noise = KnownNoise(kind, 3.0)
    counted = shrink(true + 3 * noise_of(kind, true.size), noise)
    chosen = likely_terms(counted, fewest=300)
    shares = np.random.default_rng(1).dirichlet(np.full(labels, 0.3), true.size).T
    scores = (true * shares)[:, chosen] + 3 * noise_of(kind, labels * chosen.size, seed=2).reshape(labels, -1)
    sure = sure_terms(shrink(scores, noise), counted.probability[chosen], np.full(labels, True))
    found = sure.any(axis=0)
    assert (true[chosen][found] == 0).sum() <= 1 + (1 - SURE) * found.sum()
    clear = true[chosen] > 60
    assert found[clear].mean() > 0.95 if clear.any() else found.sum() <= 1
    assert real == 0 or found.sum() >= (shrink(scores, noise).probability >= SURE).any(axis=0).sum() * 0.9


def test_without_noise_the_sure_terms_are_those_that_were_counted() -> None:
    scores = Posterior(np.array([[1.0, 0.0, 1.0, 0.0]]), np.array([[3.0, 0.0, 2.0, 0.0]]))
    assert sure_terms(scores, np.array([1.0, 1.0, 1.0, 0.0]), np.array([True])).tolist() == [[True, False, True, False]]
