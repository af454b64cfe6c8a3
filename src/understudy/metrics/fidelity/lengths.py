"""How long texts are, in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.fidelity.divergence import jensen_shannon
from understudy.metrics.fidelity.subsamples import over_subsamples
from understudy.metrics.value import Figure, Metric

BINS = 20

LENGTH_JS = Metric(
    name="length_divergence",
    title="Length divergence",
    family="fidelity",
    definition=(
        f"Jensen-Shannon divergence, in bits, of the numbers of words in a text, in at most {BINS} bins with equally "
        "many texts of both tables together; in [0, 1]."
    ),
    source="Lin 1991, equation 4.1",
    better="lower",
)
LENGTH_KS = Metric(
    name="length_ks",
    title="Length, Kolmogorov-Smirnov",
    family="fidelity",
    definition="Largest difference of the distribution functions of the number of words in a text, in [0, 1].",
    source="Smirnov 1948 (two-sample statistic)",
    better="lower",
)


def length_divergence(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Jensen-Shannon divergence of two sets of lengths, in shared bins; neither set is empty."""
    pooled = np.concatenate([a, b])
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, BINS + 1)[1:-1], method="inverted_cdf"))
    counts = [np.bincount(np.searchsorted(edges, each), minlength=len(edges) + 1) for each in (a, b)]
    return float(jensen_shannon(*counts))


def length_ks(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """The two-sample Kolmogorov-Smirnov statistic; neither set is empty."""
    values = np.unique(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(each), values, side="right") / len(each) for each in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def length_figures(
    real: NDArray[np.int64], other: NDArray[np.int64], *, of: str, seed: int, draws: int
) -> tuple[Figure, ...]:
    """Both distances of the lengths, ``Int64[n]`` and ``Int64[m]``, with intervals from subsamples of both tables."""

    def figure(metric: Metric, statistic: Callable[[NDArray[np.int64], NDArray[np.int64]], float]) -> Figure:
        return over_subsamples(
            metric,
            lambda ours, theirs: statistic(real[ours], other[theirs]),
            (len(real), len(other)),
            of,
            seed=seed,
            draws=draws,
            high=1.0,
        )

    return figure(LENGTH_JS, length_divergence), figure(LENGTH_KS, length_ks)
