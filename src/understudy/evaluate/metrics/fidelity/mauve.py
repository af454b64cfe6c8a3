"""MAUVE: two samples of embeddings as histograms over shared clusters, and the divergence frontier between those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.metrics.intervals import LEAST_TO_TELL, over_subsamples
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import Metric, MetricValue

SCALE = 5.0
VARIANCE = 0.9
TEXTS_PER_CLUSTER, MOST_CLUSTERS = 10, 500
SMOOTHING = 0.5
SEEDS = 5
_MIXTURES = 201
_NOTHING = 1e-6  # embeddings that differ by less in every coordinate are one point

_HOW = (
    "Both tables' embeddings together, reduced by PCA to 90 % of their variance, are put into k-means clusters, one "
    f"for every {TEXTS_PER_CLUSTER} texts of the smaller table, at most {MOST_CLUSTERS}; half a text is added to every "
    f"cluster of either table (Krichevsky-Trofimov); mean over {SEEDS} clusterings. It depends on the number of texts, "
    f"so all tables are cut to one size. Not told below {LEAST_TO_TELL} texts of each table: its clusters then say "
    "nothing."
)
MAUVE = Metric(
    "mauve",
    "MAUVE",
    "fidelity",
    f"Area under the divergence curve (exp(-{SCALE:g} KL(Q, R)), exp(-{SCALE:g} KL(P, R))), R any mixture of P and "
    f"Q; 1 for equal histograms, 0.004 for disjoint ones. {_HOW}",
    "Pillutla et al. 2021, section 2; Pillutla et al. 2023 (smoothing)",
    "higher",
)
FRONTIER = Metric(
    "frontier_integral",
    "Frontier integral",
    "fidelity",
    "Twice the mean over t in [0, 1] of t KL(P, R) + (1 - t) KL(Q, R), R = t P + (1 - t) Q; 0 for equal "
    f"histograms, 1 for disjoint ones. {_HOW}",
    "Liu et al. 2021 (frontier integral); Pillutla et al. 2023",
    "lower",
)

Histogram = NDArray[np.float64]
"""Shares that add up to 1."""


@dataclass(frozen=True)
class Clusters:
    """Each text's cluster, ``Int64[n]`` and ``Int64[m]``, numbers below ``count``."""

    ours: NDArray[np.int64]
    theirs: NDArray[np.int64]
    count: int

    def histograms(
        self, ours: NDArray[np.bool_] | None = None, theirs: NDArray[np.bool_] | None = None
    ) -> tuple[Histogram, Histogram]:
        """Smoothed shares of the clusters among the chosen texts (None: all) of each table."""
        chosen = (
            self.ours if ours is None else self.ours[ours],
            self.theirs if theirs is None else self.theirs[theirs],
        )
        p, q = (np.bincount(each, minlength=self.count) + SMOOTHING for each in chosen)
        return p / p.sum(), q / q.sum()


def clusterings(
    ours: NDArray[np.float32], theirs: NDArray[np.float32], *, seed: int, count: int = SEEDS
) -> tuple[Clusters, ...]:
    """``count`` k-means clusterings of two tables' embeddings together, from different first centres."""
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
    """The principal components that together hold 90 % of the rows' variance; one column of 0 where there is none.

    ``rows`` are centred in place.
    """
    from sklearn.decomposition import PCA

    if np.ptp(rows, axis=0).max() < _NOTHING:
        return np.zeros((len(rows), 1), np.float32)
    found: NDArray[np.float32] = PCA(VARIANCE, svd_solver="full", copy=False).fit_transform(rows)
    return found


def divergence_curve(p: Histogram, q: Histogram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``KL(q, r)`` and ``KL(p, r)`` in nats, for mixtures ``r = t p + (1 - t) q``, t from 0 to 1; may be infinite."""
    from scipy.special import rel_entr

    weight = np.linspace(0.0, 1.0, _MIXTURES)[:, None]
    mixtures = weight * p + (1 - weight) * q
    return rel_entr(q, mixtures).sum(axis=1), rel_entr(p, mixtures).sum(axis=1)


def mauve(p: Histogram, q: Histogram) -> float:
    """The area under the divergence curve of two histograms, which (0, 1) and (1, 0) end; by the trapezoid rule."""
    from scipy.integrate import trapezoid

    of_q, of_p = divergence_curve(p, q)
    x, y = np.exp(-SCALE * of_q), np.exp(-SCALE * of_p)  # x falls from 1, y rises to 1
    return float(trapezoid(np.append(y, 1.0)[::-1], np.append(x, 0.0)[::-1]))


def frontier_integral(p: Histogram, q: Histogram) -> float:
    """The frontier integral of two histograms: the sum of ``(p + q) / 2 - p q log(p / q) / (p - q)``."""
    apart = (p - q) != 0
    p, q = p[apart], q[apart]
    both = (p > 0) & (q > 0)
    logarithm = np.log(p, where=both, out=np.zeros_like(p)) - np.log(q, where=both, out=np.zeros_like(q))
    return float(((p + q) / 2 - p * q * logarithm / (p - q)).sum())


def mauve_values(real: Sample, other: Sample, *, of: str, seed: int, resamples: int) -> tuple[MetricValue, ...]:
    """Both, each the mean over some clusterings, with intervals from subsamples of both tables in those clusters."""
    assert real.embeddings is not None
    assert other.embeddings is not None
    found = clusterings(real.embeddings, other.embeddings, seed=seed)

    def measured(metric: Metric, statistic: Callable[[Histogram, Histogram], float]) -> MetricValue:
        def mean(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> float:
            return float(np.mean([statistic(*each.histograms(ours, theirs)) for each in found]))

        return over_subsamples(metric, mean, (len(real), len(other)), of, seed=seed, resamples=resamples, high=1.0)

    return measured(MAUVE, mauve), measured(FRONTIER, frontier_integral)
