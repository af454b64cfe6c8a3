"""Precision, recall, density and coverage: which texts lie near texts of the other table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.fidelity.subsamples import LEAST_TO_TELL, figure_of_subsamples, whole_and_subsamples
from understudy.metrics.sample import Sample
from understudy.metrics.value import Figure, Metric

K = 5
_BALL = f"A text's ball reaches to the {K}th nearest text of its own table, by embedding."
_SIZES = (
    "It depends on the number of texts, so all tables are cut to one size. Not told below "
    f"{LEAST_TO_TELL} texts of each table: the balls then hold almost anything."
)

PRECISION = Metric(
    name="precision",
    title="Precision",
    family="fidelity",
    definition=f"Share of texts that lie in the ball of a real text, in [0, 1]: do they look real? {_BALL} {_SIZES}",
    source="Kynkäänniemi et al. 2019, equation 2",
    better="same",
)
RECALL = Metric(
    name="recall",
    title="Recall",
    family="fidelity",
    definition=(
        f"Share of real texts that lie in the ball of a text of the table, in [0, 1]: could it have been written? "
        f"{_BALL} {_SIZES}"
    ),
    source="Kynkäänniemi et al. 2019, equation 2",
    better="same",
)
DENSITY = Metric(
    name="density",
    title="Density",
    family="fidelity",
    definition=(
        f"Mean number of real balls that hold a text, over {K}: at least 0, about 1 for texts of the same source, "
        f"above it for texts that crowd where real ones do. {_BALL} {_SIZES}"
    ),
    source="Naeem et al. 2020, section 3",
    better="same",
)
COVERAGE = Metric(
    name="coverage",
    title="Coverage",
    family="fidelity",
    definition=f"Share of real texts whose ball holds a text of the table, in [0, 1]. {_BALL} {_SIZES}",
    source="Naeem et al. 2020, section 3",
    better="same",
)

_BLOCK = 2**22  # distances at a time, 32 MiB
_EQUAL = 1e-12  # squared distances that differ by less are equal: rounding must not part duplicates
_KEPT = 8  # neighbours that are kept, times k
_SHARE = (
    0.5  # of texts in a subsample: a larger one keeps most neighbours, and its interval was found 1.3 to 1.7 too wide
)


@dataclass(frozen=True)
class Neighbourhoods:
    """How many texts lie in whose ball, for every choice of texts; ``Float64[draws]`` each.

    Args:
        precision: share of the other table's texts in some real ball.
        recall: share of the real texts in some ball of the other table.
        density: mean number of real balls that a text of the other table is in, over k.
        coverage: share of the real balls with a text of the other table in them.
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    density: NDArray[np.float64]
    coverage: NDArray[np.float64]


def neighbourhoods(
    real: NDArray[np.float32],
    other: NDArray[np.float32],
    chosen_real: NDArray[np.bool_] | None = None,
    chosen_other: NDArray[np.bool_] | None = None,
    *,
    k: int = K,
) -> Neighbourhoods:
    """Compare the chosen rows of two tables, for every choice.

    Args:
        real, other: embeddings ``[n, d]`` and ``[m, d]``.
        chosen_real, chosen_other: ``Bool[draws, n]`` and ``Bool[draws, m]``, of more than k rows each; None: all, once.
        k: a ball reaches to the k-th nearest chosen text of its own table. A choice that holds fewer than k of a
            text's 8 k nearest (of a half sample, one in ten million) gives it the ball to the last of those.
    """
    x, y = real.astype(np.float64), other.astype(np.float64)
    ours = np.ones((1, len(x)), bool) if chosen_real is None else chosen_real
    theirs = np.ones((1, len(y)), bool) if chosen_other is None else chosen_other
    reach, reach_other = _reach(x, ours, k), _reach(y, theirs, k)
    furthest, furthest_other = reach.max(axis=0)[:, None], reach_other.max(axis=0)
    balls = np.zeros(theirs.shape, np.int64)
    reached, covered = np.zeros(ours.shape, bool), np.zeros(ours.shape, bool)
    for start, squared in _squared_distances(x, y):
        rows, columns = np.nonzero(squared <= np.maximum(furthest[start : start + len(squared)], furthest_other))
        distances, rows = squared[rows, columns], rows + start
        for draw in range(len(ours)):
            inside = (distances <= reach[draw, rows]) & theirs[draw, columns]
            balls[draw] += np.bincount(columns[inside], minlength=len(y))
            covered[draw, rows[inside]] = True
            reached[draw, rows[(distances <= reach_other[draw, columns]) & ours[draw, rows]]] = True
    sizes, sizes_other = ours.sum(axis=1), theirs.sum(axis=1)
    return Neighbourhoods(
        precision=((balls > 0) & theirs).sum(axis=1) / sizes_other,
        recall=reached.sum(axis=1) / sizes,
        density=balls.sum(axis=1) / sizes_other / k,
        coverage=covered.sum(axis=1) / sizes,
    )


def neighbour_figures(real: Sample, other: Sample, *, of: str, seed: int, draws: int) -> tuple[Figure, ...]:
    """Precision, recall, density and coverage, with intervals from subsamples of both tables."""
    assert real.embeddings is not None
    assert other.embeddings is not None
    chosen = whole_and_subsamples((len(real), len(other)), seed=seed, draws=draws, share=_SHARE)
    found = neighbourhoods(real.embeddings, other.embeddings, *chosen)
    return (
        figure_of_subsamples(PRECISION, found.precision, of, share=_SHARE, low=0.0, high=1.0),
        figure_of_subsamples(RECALL, found.recall, of, share=_SHARE, low=0.0, high=1.0),
        figure_of_subsamples(DENSITY, found.density, of, share=_SHARE, low=0.0),
        figure_of_subsamples(COVERAGE, found.coverage, of, share=_SHARE, low=0.0, high=1.0),
    )


def _reach(rows: NDArray[np.float64], chosen: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """How far each chosen row's ball reaches, squared, ``Float64[draws, n]``; below 0 for rows not chosen."""
    kept = min(len(rows) - 1, _KEPT * k)
    found = np.empty(chosen.shape)
    for start, squared in _squared_distances(rows, rows):
        local = np.arange(len(squared))
        squared[local, start + local] = np.inf
        near = np.argpartition(squared, kept - 1, axis=1)[:, :kept]
        distances = np.take_along_axis(squared, near, axis=1)
        order = np.argsort(distances, axis=1)
        near, distances = np.take_along_axis(near, order, axis=1), np.take_along_axis(distances, order, axis=1)
        for draw, each in enumerate(chosen):
            before = (np.cumsum(each[near], axis=1) < k).sum(axis=1)
            found[draw, start : start + len(squared)] = distances[local, np.minimum(before, kept - 1)]
    return np.where(chosen, found + _EQUAL, -1.0)


def _squared_distances(a: NDArray[np.float64], b: NDArray[np.float64]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Squared distances of some rows of ``a`` at a time, and the first row's number, to all of ``b``."""
    lengths = (b**2).sum(1)
    step = max(1, _BLOCK // len(b))
    for start in range(0, len(a), step):
        rows = a[start : start + step]
        squared = rows @ b.T
        squared *= -2
        squared += (rows**2).sum(1)[:, None]
        squared += lengths
        yield start, np.maximum(squared, 0.0, out=squared)
