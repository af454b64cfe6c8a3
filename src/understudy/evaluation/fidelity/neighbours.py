"""Precision, recall, density and coverage: which texts lie near texts of the other table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.evaluation.figure import Figure, Metric
from understudy.evaluation.intervals import bootstrap
from understudy.evaluation.sample import Sample

K = 5
_BALL = f"A text's ball reaches to the {K}th nearest text of its own table, by embedding."
_SIZES = "It depends on the number of texts, so all tables are cut to one size."

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


@dataclass(frozen=True)
class Neighbourhoods:
    """Who lies in whose ball.

    Args:
        balls: ``Int64[m]``, of how many real texts' balls each text is in.
        reached: ``Bool[n]``, whether each real text is in the ball of some text.
        covered: ``Bool[n]``, whether each real text's ball holds some text.
        k: reach of a ball, in neighbours.
    """

    balls: NDArray[np.int64]
    reached: NDArray[np.bool_]
    covered: NDArray[np.bool_]
    k: int

    @property
    def precision(self) -> float:
        return float((self.balls > 0).mean())

    @property
    def recall(self) -> float:
        return float(self.reached.mean())

    @property
    def density(self) -> float:
        return float(self.balls.mean() / self.k)

    @property
    def coverage(self) -> float:
        return float(self.covered.mean())


def neighbourhoods(real: NDArray[np.float32], other: NDArray[np.float32], *, k: int = K) -> Neighbourhoods:
    """Compare ``real`` ``[n, d]`` with ``other`` ``[m, d]``, both of more than ``k`` rows."""
    x, y = real.astype(np.float64), other.astype(np.float64)
    reach, reach_other = _reach(x, k), _reach(y, k)
    balls = np.zeros(len(other), np.int64)
    reached, covered = np.zeros(len(real), bool), np.zeros(len(real), bool)
    for rows, squared in _squared_distances(x, y):
        inside = squared <= reach[rows, None]
        balls += inside.sum(axis=0)
        covered[rows] = inside.any(axis=1)
        reached[rows] = (squared <= reach_other).any(axis=1)
    return Neighbourhoods(balls, reached, covered, k)


def neighbour_figures(real: Sample, other: Sample, *, of: str, seed: int, draws: int) -> tuple[Figure, ...]:
    """Precision, recall, density and coverage; each a mean over texts, whose interval holds the balls fixed."""
    assert real.embeddings is not None
    assert other.embeddings is not None
    found = neighbourhoods(real.embeddings, other.embeddings)

    def figure(metric: Metric, value: float, each: NDArray[np.float64], over: str) -> Figure:
        interval = bootstrap(
            lambda rows: float(each[rows].mean()), len(each), seed=seed, draws=draws, over=f"{over}, balls held fixed"
        )
        return Figure(metric, value, of, interval)

    theirs = f"the {of} texts"
    return (
        figure(PRECISION, found.precision, (found.balls > 0).astype(np.float64), theirs),
        figure(RECALL, found.recall, found.reached.astype(np.float64), "the real texts"),
        figure(DENSITY, found.density, found.balls / found.k, theirs),
        figure(COVERAGE, found.coverage, found.covered.astype(np.float64), "the real texts"),
    )


def _reach(rows: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """The squared distance to the ``k``-th nearest other row."""
    found = np.empty(len(rows))
    for block, squared in _squared_distances(rows, rows):
        found[block] = np.partition(squared, k, axis=1)[:, k]  # the nearest is the row itself
    return found + _EQUAL


def _squared_distances(a: NDArray[np.float64], b: NDArray[np.float64]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Blocks of rows of ``a``, and their squared distances to all of ``b``."""
    lengths = (b**2).sum(1)
    step = max(1, _BLOCK // len(b))
    for start in range(0, len(a), step):
        rows = a[start : start + step]
        squared = rows @ b.T
        squared *= -2
        squared += (rows**2).sum(1)[:, None]
        squared += lengths
        yield slice(start, start + step), squared
