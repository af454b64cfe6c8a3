"""Compare two tables' embeddings: Fréchet and kernel distance, shared neighbourhoods, and MAUVE.

MAUVE is of two samples as histograms over shared clusters, and the divergence frontier between those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import special
from understudy.evaluate.metrics.intervals import (
    LEAST_TO_TELL,
    over_subsamples,
    value_of_subsamples,
    whole_and_subsamples,
)
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import Metric, MetricValue, Setting, metric_named

K = 5
SCALE = 5.0
VARIANCE = 0.9
TEXTS_PER_CLUSTER, MOST_CLUSTERS = 10, 500
SMOOTHING = 0.5
SEEDS = 5
_named = partial(
    metric_named,
    k=K,
    least_to_tell=LEAST_TO_TELL,
    scale=SCALE,
    texts_per_cluster=TEXTS_PER_CLUSTER,
    most_clusters=MOST_CLUSTERS,
    seeds=SEEDS,
)

FRECHET = _named("frechet_distance")
KERNEL = _named("kernel_distance")
# KID's kernel is (1 + x.y / d)^3 for features of length about sqrt(d). On unit vectors that is 1 + 3 x.y / d and a
# rest of 1 / d^2: it would see the means only.
PRECISION = _named("precision")
RECALL = _named("recall")
DENSITY = _named("density")
COVERAGE = _named("coverage")
GROUP_COVERAGE = _named("group_coverage")

_FEWEST_OF_GROUP = 20
_BLOCK = 2**22  # kernel values or distances at a time, 32 MiB
_COLUMNS = 2**14  # texts of the other table at a time for which kernel values are computed
_ROWS = 2**13  # texts at a time that are read in float64: no table is copied whole
_EQUAL = 1e-12  # squared distances that differ by less are equal: rounding must not separate duplicates
_KEPT = 8  # neighbours that are kept, times k
_HALF = 0.5
"""Share of texts in a subsample: a larger one keeps most neighbours; its intervals were 1.3 to 1.7 times too wide."""

Floats = NDArray[np.float64]
Chosen = NDArray[np.bool_]


def frechet_distance(
    a: NDArray[np.floating], b: NDArray[np.floating], chosen_a: Chosen | None = None, chosen_b: Chosen | None = None
) -> float:
    """Return ``|m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2))`` of the rows of ``a`` and ``b``, each at least two.

    ``chosen_a`` and ``chosen_b``, ``Bool[n]`` and ``Bool[m]``, name the rows; None: all.

    With centred rows ``A = Q_a R_a``, divided by the root of n - 1, the root's trace is the sum of the singular values
    of ``R_a R_b^T``. No product of covariances is formed and no root of a rounded eigenvalue taken, so it is as exact
    with fewer texts than dimensions as with more.
    """
    (mean_a, root_a), (mean_b, root_b) = _gaussian(a, chosen_a), _gaussian(b, chosen_b)
    overlap = np.linalg.svd(root_a @ root_b.T, compute_uv=False).sum()
    traces = (root_a**2).sum() + (root_b**2).sum()
    return max(0.0, float(((mean_a - mean_b) ** 2).sum() + traces - 2 * overlap))


def frechet_values(real: Sample, other: Sample, *, of: str, seed: int, resamples: int) -> list[MetricValue]:
    """Return the Fréchet distance of two tables, with an interval from subsamples of both."""
    a, b = _both(real, other)

    def between(one: Chosen, two: Chosen) -> float:
        return frechet_distance(a, b, one, two)

    return [over_subsamples(FRECHET, between, (len(a), len(b)), of, seed=seed, resamples=resamples)]


def _gaussian(rows: NDArray[np.floating], chosen: Chosen | None) -> tuple[Floats, Floats]:
    """Return the mean of the rows, and R with ``R^T R`` their covariance, computed block by block."""
    places = np.arange(len(rows)) if chosen is None else np.flatnonzero(chosen)

    def parts() -> Iterator[Floats]:
        for start in range(0, len(places), _ROWS):
            yield rows[places[start : start + _ROWS]].astype(np.float64)

    mean: Floats = sum(part.sum(axis=0) for part in parts()) / len(places)
    root: Floats = np.empty((0, rows.shape[1]))
    for part in parts():
        centred = (part - mean) / np.sqrt(len(places) - 1)
        root = np.asarray(np.linalg.qr(np.concatenate([root, centred]), mode="r"))
    return mean, root


def kernel_distance(
    a: NDArray[np.floating], b: NDArray[np.floating], chosen_a: Chosen | None = None, chosen_b: Chosen | None = None
) -> Floats:
    """Return the squared kernel distance of the chosen rows of ``a`` and ``b``, for every choice: ``Float64[choices]``.

    Args:
        a, b: embeddings ``[n, d]`` and ``[m, d]`` of unit length.
        chosen_a, chosen_b: ``Bool[choices, n]`` and ``Bool[choices, m]``, two or more per choice; None: all rows, once.

    Source: Gretton et al. 2012, equation 3.
    """
    one, two = _chosen(chosen_a, a), _chosen(chosen_b, b)
    between = _sums(a, b, one, two) / (one.sum(1) * two.sum(1))
    found: Floats = _within(a, one) + _within(b, two) - 2 * between
    return found


def kernel_values(real: Sample, other: Sample, *, of: str, seed: int, resamples: int) -> list[MetricValue]:
    """Return the kernel distance of two tables, with an interval from subsamples of both."""
    a, b = _both(real, other)
    chosen = whole_and_subsamples((len(a), len(b)), seed=seed, resamples=resamples)
    return [value_of_subsamples(KERNEL, kernel_distance(a, b, *chosen), chosen, of)]


def _within(rows: NDArray[np.floating], chosen: Chosen) -> Floats:
    count = chosen.sum(1)
    of_itself = chosen.astype(np.float64) @ ((1 + _squared_lengths(rows)) / 2) ** 3
    found: Floats = (_sums(rows, rows, chosen, chosen) - of_itself) / (count * (count - 1))
    return found


def _sums(a: NDArray[np.floating], b: NDArray[np.floating], chosen_a: Chosen, chosen_b: Chosen) -> Floats:
    total = np.zeros(len(chosen_a))
    for first in range(0, len(b), _COLUMNS):
        columns = b[first : first + _COLUMNS].astype(np.float64)
        weights = chosen_b[:, first : first + _COLUMNS].astype(np.float64)
        step = max(1, _BLOCK // len(columns))
        for start in range(0, len(a), step):
            base = (1 + a[start : start + step].astype(np.float64) @ columns.T) / 2
            chosen = chosen_a[:, start : start + step].astype(np.float64)
            total += np.einsum("id,di->d", (base**2 * base) @ weights.T, chosen)
    return total


def _squared_lengths(rows: NDArray[np.floating]) -> Floats:
    parts = (rows[start : start + _ROWS].astype(np.float64) for start in range(0, len(rows), _ROWS))
    return np.concatenate([np.zeros(0), *((part**2).sum(1) for part in parts)])


@dataclass(frozen=True)
class Neighbourhoods:
    """How the texts of two tables lie near each other. The ball of a text reaches to the k-th nearest other text of
    the same table. Most fields have one value per choice of texts, ``Float64[choices]``.

    Args:
        precision: share of the other table's texts in some real ball.
        recall: share of the real texts in some ball of the other table.
        density: mean number of real balls that a text of the other table is in, over k.
        coverage: share of the real balls with a text of the other table in them.
        covered: which real balls these are, ``Bool[choices, n]``.
        chosen: the real texts, likewise.
    """

    precision: Floats
    recall: Floats
    density: Floats
    coverage: Floats
    covered: Chosen
    chosen: Chosen

    def coverage_of(self, group: Chosen) -> Floats:
        """Return the coverage of a group of real texts, given as ``Bool[n]``."""
        found: Floats = (self.covered & group).sum(axis=1) / np.maximum((self.chosen & group).sum(axis=1), 1)
        return found


def neighbourhoods(
    real: NDArray[np.floating],
    other: NDArray[np.floating],
    chosen_real: Chosen | None = None,
    chosen_other: Chosen | None = None,
    *,
    k: int = K,
) -> Neighbourhoods:
    """Compare the chosen rows of two tables, for every choice.

    Args:
        real, other: embeddings ``[n, d]`` and ``[m, d]``.
        chosen_real, chosen_other: ``Bool[choices, n]`` and ``Bool[choices, m]``, of more than k rows each; None: all,
            once.
        k: a ball reaches to the k-th nearest chosen text of its own table. A choice with fewer than k of a text's 8 k
            nearest (in a half sample, one in ten million) gives it the ball to the last of those.
    """
    ours, theirs = _chosen(chosen_real, real), _chosen(chosen_other, other)
    reach, reach_other = _reach(real, ours, k), _reach(other, theirs, k)
    furthest, furthest_other = reach.max(axis=0)[:, None], reach_other.max(axis=0)
    balls = np.zeros(theirs.shape, np.int64)
    reached, covered = np.zeros(ours.shape, bool), np.zeros(ours.shape, bool)
    for start, squared in _squared_distances(real, other):
        rows, columns = np.nonzero(squared <= np.maximum(furthest[start : start + len(squared)], furthest_other))
        distances, rows = squared[rows, columns], rows + start
        for choice in range(len(ours)):
            inside = (distances <= reach[choice, rows]) & theirs[choice, columns]
            balls[choice] += np.bincount(columns[inside], minlength=len(other))
            covered[choice, rows[inside]] = True
            reached[choice, rows[(distances <= reach_other[choice, columns]) & ours[choice, rows]]] = True
    sizes, sizes_other = ours.sum(axis=1), theirs.sum(axis=1)
    return Neighbourhoods(
        precision=((balls > 0) & theirs).sum(axis=1) / sizes_other,
        recall=reached.sum(axis=1) / sizes,
        density=balls.sum(axis=1) / sizes_other / k,
        coverage=covered.sum(axis=1) / sizes,
        covered=covered,
        chosen=ours,
    )


def neighbour_values(real: Sample, other: Sample, *, of: str, seed: int, resamples: int) -> list[MetricValue]:
    """Return precision, recall, density and coverage, in total and by group, with intervals from subsamples of both."""
    chosen = whole_and_subsamples((len(real), len(other)), seed=seed, resamples=resamples, share=_HALF)
    found = neighbourhoods(*_both(real, other), *chosen)
    ends = ((PRECISION, found.precision, 1.0), (RECALL, found.recall, 1.0), (DENSITY, found.density, np.inf))
    return [
        value_of_subsamples(metric, values, chosen, of, low=0.0, high=high)
        for metric, values, high in (*ends, (COVERAGE, found.coverage, 1.0))
    ] + [
        value_of_subsamples(GROUP_COVERAGE, found.coverage_of(group), chosen, of, low=0.0, high=1.0, settings=settings)
        for settings, group in _groups(real)
    ]


def _groups(real: Sample) -> Iterator[tuple[dict[str, Setting], Chosen]]:
    lengths = np.array([len(text.split()) for text in real.texts])
    short, long = np.quantile(lengths, 1 / 3, method="lower"), np.quantile(lengths, 2 / 3, method="higher")
    groups: list[tuple[dict[str, Setting], Chosen]] = [
        ({"length": f"{short} words or fewer"}, lengths <= short),
        ({"length": f"{long} words or more"}, lengths >= long),
    ]
    if real.labels is not None:
        labels = np.array(real.labels)
        groups += [({"label": str(label)}, labels == label) for label in np.unique(labels)]
    return (each for each in groups if _FEWEST_OF_GROUP <= each[1].sum() < len(real))


def _reach(rows: NDArray[np.floating], chosen: Chosen, k: int) -> Floats:
    """Return each chosen row's squared ball radius, ``Float64[choices, n]``; below 0 for rows not chosen."""
    kept = min(len(rows) - 1, _KEPT * k)
    found = np.empty(chosen.shape)
    for start, squared in _squared_distances(rows, rows):
        local = np.arange(len(squared))
        squared[local, start + local] = np.inf
        near = np.argpartition(squared, kept - 1, axis=1)[:, :kept]
        distances = np.take_along_axis(squared, near, axis=1)
        order = np.argsort(distances, axis=1)
        near, distances = np.take_along_axis(near, order, axis=1), np.take_along_axis(distances, order, axis=1)
        for choice, each in enumerate(chosen):
            before = (np.cumsum(each[near], axis=1) < k).sum(axis=1)
            found[choice, start : start + len(squared)] = distances[local, np.minimum(before, kept - 1)]
    return np.where(chosen, found + _EQUAL, -1.0)


def _squared_distances(a: NDArray[np.floating], b: NDArray[np.floating]) -> Iterator[tuple[int, Floats]]:
    """Yield squared distances of some rows of ``a`` at a time, with the first row's number, to all of ``b``."""
    columns, lengths = b.astype(np.float64), _squared_lengths(b)
    step = max(1, _BLOCK // len(b))
    for start in range(0, len(a), step):
        rows = a[start : start + step].astype(np.float64)
        squared = rows @ columns.T
        squared *= -2
        squared += (rows**2).sum(1)[:, None]
        squared += lengths
        yield start, np.maximum(squared, 0.0, out=squared)


def _chosen(chosen: Chosen | None, rows: NDArray[np.floating]) -> Chosen:
    return np.ones((1, len(rows)), bool) if chosen is None else chosen


def _both(real: Sample, other: Sample) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    assert real.embeddings is not None
    assert other.embeddings is not None
    return real.embeddings, other.embeddings


MAUVE, FRONTIER = _named("mauve"), _named("frontier_integral")
_MIXTURES = 201
_NOTHING = 1e-6  # embeddings that differ by less in every coordinate are one point

Histogram = NDArray[np.float64]
"""Shares that add up to 1."""


@dataclass(frozen=True)
class Clusters:
    """The cluster of each text: ``Int64[n]`` and ``Int64[m]`` for the two tables, numbers below ``count``."""

    ours: NDArray[np.int64]
    theirs: NDArray[np.int64]
    count: int

    def histograms(
        self, ours: NDArray[np.bool_] | None = None, theirs: NDArray[np.bool_] | None = None
    ) -> tuple[Histogram, Histogram]:
        """Return, for each table, the smoothed shares of its chosen texts (None: all) in the clusters."""
        chosen = (
            self.ours if ours is None else self.ours[ours],
            self.theirs if theirs is None else self.theirs[theirs],
        )
        p, q = (np.bincount(each, minlength=self.count) + SMOOTHING for each in chosen)
        return p / p.sum(), q / q.sum()


def clusterings(
    ours: NDArray[np.float32], theirs: NDArray[np.float32], *, seed: int, count: int = SEEDS
) -> tuple[Clusters, ...]:
    """Return ``count`` k-means clusterings of two tables' embeddings together, from different first centres."""
    from sklearn.cluster import KMeans

    rows = reduced(np.concatenate([ours, theirs]))
    size = min(len(ours), len(theirs)) // TEXTS_PER_CLUSTER
    size = min(max(size, 2), MOST_CLUSTERS, len(np.unique(rows, axis=0)))
    found = []
    for each in range(count):
        row = KMeans(size, n_init=1, random_state=seed + each).fit_predict(rows).astype(np.int64)
        found.append(Clusters(row[: len(ours)], row[len(ours) :], size))
    return tuple(found)


def reduced(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the principal components with 90 % of the rows' variance together; one column of 0 if there is none.

    ``rows`` are centred in place.
    """
    from sklearn.decomposition import PCA

    if np.ptp(rows, axis=0).max() < _NOTHING:
        return np.zeros((len(rows), 1), np.float32)
    found: NDArray[np.float32] = PCA(VARIANCE, svd_solver="full", copy=False).fit_transform(rows)
    return found


def divergence_curve(p: Histogram, q: Histogram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ``KL(q, r)``, ``KL(p, r)`` in nats, for mixtures ``r = t p + (1 - t) q``, t from 0 to 1; may be
    infinite."""
    weight = np.linspace(0.0, 1.0, _MIXTURES)[:, None]
    mixtures = weight * p + (1 - weight) * q
    return special.rel_entr(q, mixtures).sum(axis=1), special.rel_entr(p, mixtures).sum(axis=1)


def mauve(p: Histogram, q: Histogram) -> float:
    """Return the area under two histograms' divergence curve from (0, 1) to (1, 0), by the trapezoid rule."""
    from scipy.integrate import trapezoid

    of_q, of_p = divergence_curve(p, q)
    x, y = np.exp(-SCALE * of_q), np.exp(-SCALE * of_p)  # x falls from 1, y rises to 1
    return float(trapezoid(np.append(y, 1.0)[::-1], np.append(x, 0.0)[::-1]))


def frontier_integral(p: Histogram, q: Histogram) -> float:
    """Return the frontier integral of two histograms: the sum of ``(p + q) / 2 - p q log(p / q) / (p - q)``."""
    apart = (p - q) != 0
    p, q = p[apart], q[apart]
    both = (p > 0) & (q > 0)
    logarithm = np.log(p, where=both, out=np.zeros_like(p)) - np.log(q, where=both, out=np.zeros_like(q))
    return float(((p + q) / 2 - p * q * logarithm / (p - q)).sum())


def mauve_values(real: Sample, other: Sample, *, of: str, seed: int, resamples: int) -> tuple[MetricValue, ...]:
    """Return MAUVE and the frontier integral, as means over several clusterings, with intervals from subsamples."""
    found = clusterings(*_both(real, other), seed=seed)

    def measured(metric: Metric, statistic: Callable[[Histogram, Histogram], float]) -> MetricValue:
        def mean(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> float:
            return float(np.mean([statistic(*each.histograms(ours, theirs)) for each in found]))

        return over_subsamples(metric, mean, (len(real), len(other)), of, seed=seed, resamples=resamples, high=1.0)

    return measured(MAUVE, mauve), measured(FRONTIER, frontier_integral)
