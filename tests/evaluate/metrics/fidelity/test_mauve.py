"""MAUVE and the frontier integral: against closed forms and numerical integration, then from embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import beta

from understudy.evaluate.metrics.fidelity.embeddings import (
    clusterings,
    frontier_integral,
    mauve,
    reduced,
)

ONE = np.array([0.5, 0.3, 0.2, 0.0])
TWO = np.array([0.1, 0.3, 0.2, 0.4])


def kl(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    return float(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0))


def area_under_the_curve(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """By the slope of the curve: along it d KL(q, r) / dt = - sum q (p - q) / r."""

    def step(t: float) -> float:
        r = t * p + (1 - t) * q
        slope = sum(b * (a - b) / c for a, b, c in zip(p, q, r, strict=True) if c > 0)
        return float(np.exp(-5 * kl(p, r)) * np.exp(-5 * kl(q, r)) * 5 * -slope)

    last = np.exp(-5 * kl(q, p)) if (q[p == 0] == 0).all() else 0.0  # from there on the curve is flat at 1
    return float(quad(step, 0, 1)[0] + last)


def random_histogram(seed: int, size: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.full(size, 0.5))


def test_equal_histograms_have_mauve_1_and_frontier_integral_0() -> None:
    assert mauve(ONE, ONE) == pytest.approx(1)
    assert frontier_integral(ONE, ONE) == 0


def test_disjoint_histograms_have_the_least_mauve_and_frontier_integral_1() -> None:
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.0, 1.0])
    assert mauve(p, q) == pytest.approx(5 * beta(6, 5), abs=1e-5)  # the curve is ((1 - t)^5, t^5)
    assert frontier_integral(p, q) == pytest.approx(1)


RANDOM = [(random_histogram(seed, 9), random_histogram(seed + 9, 9)) for seed in range(3)]


@pytest.mark.parametrize(("p", "q"), [(ONE, TWO), (TWO, ONE), *RANDOM])
def test_mauve_is_the_area_by_another_integral(p: NDArray[np.float64], q: NDArray[np.float64]) -> None:
    assert mauve(p, q) == pytest.approx(area_under_the_curve(p, q), abs=1e-4)


@pytest.mark.parametrize(("p", "q"), [(ONE, TWO), *RANDOM])
def test_the_frontier_integral_is_the_integral(p: NDArray[np.float64], q: NDArray[np.float64]) -> None:
    def of_mixture(t: float) -> float:
        r = t * p + (1 - t) * q
        return 2 * (t * kl(p, r) + (1 - t) * kl(q, r))

    assert frontier_integral(p, q) == pytest.approx(quad(of_mixture, 0, 1)[0], abs=1e-9)


@given(st.integers(0, 2**32), st.integers(2, 30))
def test_both_are_symmetric_and_within_their_range(seed: int, size: int) -> None:
    p, q = random_histogram(seed, size), random_histogram(seed + 1, size)
    assert mauve(p, q) == pytest.approx(mauve(q, p))
    assert frontier_integral(p, q) == pytest.approx(frontier_integral(q, p))
    assert 0.0039 < mauve(p, q) <= 1 + 1e-12
    assert -1e-12 <= frontier_integral(p, q) <= 1 + 1e-12


def cloud(rows: int, seed: int, shift: float = 0.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).normal(size=(rows, 6)) + shift).astype(np.float32)


def test_every_text_has_a_cluster_and_there_is_one_for_ten_texts() -> None:
    for each in clusterings(cloud(80, 0), cloud(60, 1), seed=0):
        assert each.count == 6
        assert len(each.ours) == 80
        assert len(each.theirs) == 60
        p, q = each.histograms(np.ones(80, bool), np.ones(60, bool))
        assert p == pytest.approx((np.bincount(each.ours, minlength=6) + 0.5) / 83)
        assert q.sum() == pytest.approx(1)


def test_clusterings_differ_by_their_seeds_only() -> None:
    a, b = cloud(80, 0), cloud(60, 1)
    one, two = clusterings(a, b, seed=0)[:2]
    assert (one.ours != two.ours).any()
    assert (clusterings(a, b, seed=0)[0].ours == one.ours).all()


def test_so_many_components_are_kept_as_hold_nine_tenths_of_the_variance() -> None:
    rows = cloud(400, 0) * np.array([3, 1, 1, 0.1, 0.1, 0.1], np.float32)
    assert reduced(rows).shape == (400, 2)
    assert reduced(rows).var(axis=0).sum() >= 0.9 * rows.var(axis=0).sum()
    assert reduced(np.ones((5, 6), np.float32)).shape == (5, 1)
