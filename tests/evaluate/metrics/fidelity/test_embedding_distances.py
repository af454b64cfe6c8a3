"""Fréchet and kernel distance: by hand, by another way of computing, and on odd tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist
from scipy.special import beta

from understudy.evaluate.metrics.fidelity import embeddings
from understudy.evaluate.metrics.fidelity import embeddings as distances
from understudy.evaluate.metrics.intervals import over_subsamples, value_of_subsamples, whole_and_subsamples
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import Metric


def normal(rows: int, columns: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def unit(rows: int, columns: int, seed: int = 0) -> NDArray[np.float32]:
    vectors = normal(rows, columns, seed) + 0.3 * seed
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("sizes", [(60, 80), (5, 7), (3, 40)])
def test_the_frechet_distance_is_that_by_the_root_of_the_product_of_covariances(sizes: tuple[int, int]) -> None:
    a, b = normal(sizes[0], 12, 1), normal(sizes[1], 12, 2) @ normal(12, 12, 3) + 0.5
    ridge = 1e-9 * np.eye(12)  # sqrtm needs whole rank, which few texts do not give
    one, two = np.cov(a.T) + ridge, np.cov(b.T) + ridge
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(one + two - 2 * np.real(sqrtm(one @ two)))
    assert distances.frechet_distance(a, b) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("rows", "columns"), [(200, 16), (10, 64), (2, 8)])
def test_the_frechet_distance_of_a_table_from_itself_is_0_however_few_texts(rows: int, columns: int) -> None:
    table = normal(rows, columns) * np.logspace(0, -6, columns)
    assert distances.frechet_distance(table, table[::-1]) == pytest.approx(0, abs=1e-12)


def by_definition(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    def mean(pairs: list[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> float:
        return float(np.mean([((1 + float(x.astype(float) @ y.astype(float))) / 2) ** 3 for x, y in pairs]))

    def of_different(rows: NDArray[np.float32]) -> float:
        return mean([(x, y) for i, x in enumerate(rows) for j, y in enumerate(rows) if i != j])

    return of_different(a) + of_different(b) - 2 * mean([(x, y) for x in a for y in b])


@pytest.mark.parametrize("block", [2**22, 7])
def test_the_kernel_distance_is_its_definition_of_any_chosen_rows_in_any_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "_BLOCK", block)
    a, b = unit(9, 5, 0), unit(12, 5, 1)
    ours = np.array([[True] * 9, [True, False] * 4 + [True]])
    theirs = np.array([[True] * 12, [False, True, True] * 4])
    found = distances.kernel_distance(a, b, ours, theirs)
    assert found == pytest.approx([by_definition(a, b), by_definition(a[ours[1]], b[theirs[1]])], abs=1e-12)


# -- mAUVE and the frontier integral ----------------------------------------------------------------------------------


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
    assert distances.mauve(ONE, ONE) == pytest.approx(1)
    assert distances.frontier_integral(ONE, ONE) == 0


def test_disjoint_histograms_have_the_least_mauve_and_frontier_integral_1() -> None:
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.0, 1.0])
    assert distances.mauve(p, q) == pytest.approx(5 * beta(6, 5), abs=1e-5)  # the curve is ((1 - t)^5, t^5)
    assert distances.frontier_integral(p, q) == pytest.approx(1)


RANDOM = [(random_histogram(seed, 9), random_histogram(seed + 9, 9)) for seed in range(3)]


@pytest.mark.parametrize(("p", "q"), [(ONE, TWO), (TWO, ONE), *RANDOM])
def test_mauve_is_the_area_by_another_integral(p: NDArray[np.float64], q: NDArray[np.float64]) -> None:
    assert distances.mauve(p, q) == pytest.approx(area_under_the_curve(p, q), abs=1e-4)


@pytest.mark.parametrize(("p", "q"), [(ONE, TWO), *RANDOM])
def test_the_frontier_integral_is_the_integral(p: NDArray[np.float64], q: NDArray[np.float64]) -> None:
    def of_mixture(t: float) -> float:
        r = t * p + (1 - t) * q
        return 2 * (t * kl(p, r) + (1 - t) * kl(q, r))

    assert distances.frontier_integral(p, q) == pytest.approx(quad(of_mixture, 0, 1)[0], abs=1e-9)


@given(st.integers(0, 2**32), st.integers(2, 30))
def test_both_are_symmetric_and_within_their_range(seed: int, size: int) -> None:
    p, q = random_histogram(seed, size), random_histogram(seed + 1, size)
    assert distances.mauve(p, q) == pytest.approx(distances.mauve(q, p))
    assert distances.frontier_integral(p, q) == pytest.approx(distances.frontier_integral(q, p))
    assert 0.0039 < distances.mauve(p, q) <= 1 + 1e-12
    assert -1e-12 <= distances.frontier_integral(p, q) <= 1 + 1e-12


def cloud(rows: int, seed: int, shift: float = 0.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).normal(size=(rows, 6)) + shift).astype(np.float32)


def test_every_text_has_a_cluster_and_there_is_one_for_ten_texts() -> None:
    for each in distances.clusterings(cloud(80, 0), cloud(60, 1), seed=0):
        assert each.count == 6
        assert len(each.ours) == 80
        assert len(each.theirs) == 60
        p, q = each.histograms(np.ones(80, bool), np.ones(60, bool))
        assert p == pytest.approx((np.bincount(each.ours, minlength=6) + 0.5) / 83)
        assert q.sum() == pytest.approx(1)


def test_so_many_components_are_kept_as_hold_nine_tenths_of_the_variance() -> None:
    rows = cloud(400, 0) * np.array([3, 1, 1, 0.1, 0.1, 0.1], np.float32)
    assert distances.reduced(rows).shape == (400, 2)
    assert distances.reduced(rows).var(axis=0).sum() >= 0.9 * rows.var(axis=0).sum()
    assert distances.reduced(np.ones((5, 6), np.float32)).shape == (5, 1)


# -- precision, recall, density, coverage -----------------------------------------------------------------------------


def scattered(rows: int, seed: int, *, columns: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def of_choice(found: distances.Neighbourhoods, draw: int = 0) -> list[float]:
    return [float(each[draw]) for each in (found.precision, found.recall, found.density, found.coverage)]


def neighbours_by_definition(real: NDArray[np.float32], other: NDArray[np.float32], k: int) -> list[float]:
    reach = np.sort(cdist(real, real), axis=1)[:, k]  # the nearest is the text itself
    reach_other = np.sort(cdist(other, other), axis=1)[:, k]
    between = cdist(real, other)
    inside = between <= reach[:, None]
    return [
        inside.any(axis=0).mean(),
        (between <= reach_other).any(axis=1).mean(),
        inside.sum(axis=0).mean() / k,
        (between.min(axis=1) <= reach).mean(),
    ]


@given(st.integers(0, 2**32), st.integers(7, 40), st.integers(7, 40), st.sampled_from([1, 3, 5]))
def test_all_four_are_their_definitions(seed: int, n: int, m: int, k: int) -> None:
    real, other = scattered(n, seed), scattered(m, seed + 1) * 0.8 + 0.2
    assert of_choice(distances.neighbourhoods(real, other, k=k)) == pytest.approx(
        neighbours_by_definition(real, other, k)
    )


@pytest.mark.parametrize("block", [2**22, 50])
def test_a_choice_is_measured_as_if_there_were_nothing_else(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "_BLOCK", block)
    real, other = scattered(60, 0), scattered(50, 1)
    generator = np.random.default_rng(2)
    ours, theirs = np.ones((4, 60), bool), np.ones((4, 50), bool)
    for draw in range(1, 4):
        ours[draw], theirs[draw] = generator.permutation(60) < 30, generator.permutation(50) < 25
    found = distances.neighbourhoods(real, other, ours, theirs)
    for draw in range(4):
        assert of_choice(found, draw) == pytest.approx(
            neighbours_by_definition(real[ours[draw]], other[theirs[draw]], 5)
        )


def test_copies_are_at_no_distance_whatever_rounding_says(monkeypatch: pytest.MonkeyPatch) -> None:
    points, generator = scattered(40, 0, columns=384) / 20, np.random.default_rng(1)
    real, other = (generator.permutation(np.repeat(points, copies, axis=0)) for copies in (7, 14))
    monkeypatch.setattr(embeddings, "_BLOCK", 3 * len(real))  # products of other shapes, which round otherwise
    assert of_choice(distances.neighbourhoods(real, other)) == [1, 1, 7 / 5, 1]


def test_a_label_that_no_text_is_near_to_is_the_one_forgotten() -> None:
    near, far = unit(60, 4, 0), unit(30, 4, 1)
    near[:, 0], far[:, 0] = 10, -10
    lengths = [3] * 60 + [9] * 30
    few = ["few"] * 5 + ["skin"] * 55 + ["heart"] * 30
    real = Sample(tuple("w " * n for n in lengths), tuple(few), np.concatenate([near, far]))
    other = Sample(("w",) * 90, None, near[np.arange(90) % 60])
    found = distances.neighbour_values(real, other, of="synthetic", seed=0, resamples=20)
    groups = {tuple(each.settings.values()): each.value for each in found if each.metric.name == "group_coverage"}
    assert groups == {("3 words or fewer",): 1.0, ("9 words or more",): 0.0, ("skin",): 1.0, ("heart",): 0.0}
    assert all(each.reads_private and each.interval for each in found)


# -- intervals by subsamples ------------------------------------------------------------------------------------------

METRIC = Metric("fidelity", "m", "M", "A number.", "none", "lower")


def test_the_first_choice_is_all_texts_and_the_others_different_subsamples() -> None:
    ours, theirs = whole_and_subsamples((20, 40), seed=0, resamples=6, share=0.5)
    assert ours[0].all()
    assert theirs[0].all()
    assert (ours[1:].sum(axis=1) == 10).all()
    assert (theirs[1:].sum(axis=1) == 20).all()
    assert len({row.tobytes() for row in ours}) == 7


def test_a_small_table_has_no_subsamples_and_no_interval() -> None:
    chosen = whole_and_subsamples((19, 500), seed=0, resamples=6)
    assert [len(each) for each in chosen] == [1, 1]
    measured = value_of_subsamples(METRIC, [0.25], chosen, "synthetic", settings={"label": "a"})
    assert measured.value == 0.25
    assert measured.interval is None
    assert measured.note
    assert measured.settings == {"label": "a"}


@pytest.mark.parametrize(
    ("share", "size", "other", "said"),
    [
        (0.5, 1000, 1000, "50%"),
        (0.9, 1000, 1000, "90%"),
        (0.9, 25, 25, "88%"),
        (0.9, 24, 24, "92%"),
        (0.9, 25, 1000, "90%"),
    ],
)
def test_the_interval_of_a_difference_of_means_is_as_wide_as_by_the_normal_law(
    share: float, size: int, other: int, said: str
) -> None:
    """Of 25 texts 22 are in a subsample, of 24 as well: with nine tenths for both, widths are off by a tenth."""
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=size), generator.normal(size=other)
    chosen = whole_and_subsamples((size, other), seed=0, resamples=4000, share=share)
    values = [a[one].mean() - b[two].mean() for one, two in zip(*chosen, strict=True)]
    measured = value_of_subsamples(METRIC, values, chosen, "synthetic")
    assert measured.interval is not None
    assert measured.interval.method == f"4000 subsamples of {said} of the texts"
    expected = 2 * 1.96 * np.sqrt(a.var(ddof=1) / size + b.var(ddof=1) / other)
    assert measured.interval.high - measured.interval.low == pytest.approx(expected, rel=0.05)
    assert (measured.interval.high + measured.interval.low) / 2 == pytest.approx(measured.value, abs=expected / 10)


def test_a_bias_of_small_samples_does_not_move_the_interval() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    measured = over_subsamples(
        METRIC, lambda one: values[one].mean() + 3000 / one.sum(), [1000], "synthetic", seed=0, resamples=200
    )
    assert measured.interval is not None
    assert measured.interval.low < measured.value < measured.interval.high


def test_a_statistic_that_strays_upward_may_have_been_lower() -> None:
    chosen = whole_and_subsamples([20], seed=0, resamples=9)
    measured = value_of_subsamples(METRIC, [5.0, *[4.0] * 8, 9.0], chosen, "synthetic")
    assert measured.interval is not None
    assert 5 - measured.interval.low > measured.interval.high - 5
    within = value_of_subsamples(METRIC, [0.95, 0.5, 0.7, 0.9, 0.99], chosen, "synthetic", low=0.0, high=1.0).interval
    assert within is not None
    assert within.high == 1.0, "an interval stays within the range"
