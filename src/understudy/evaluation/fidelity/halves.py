"""How sure a figure is, from half samples: texts drawn twice, as in a bootstrap, mislead most of these metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.evaluation.figure import Figure, Interval, Metric, Setting
from understudy.evaluation.intervals import LEVEL

LEAST = 20
"""A table of fewer texts gets no interval."""


def whole_and_halves(sizes: Sequence[int], *, seed: int, draws: int) -> list[NDArray[np.bool_]]:
    """For tables of ``sizes`` texts, first the choice of all texts, then half samples of each: ``Bool[1 + draws, n]``.

    A half sample has ``n // 2`` of n texts, none twice. There are none where a table is too small.
    """
    draws = draws if min(sizes) >= LEAST else 0
    found = []
    for table, size in enumerate(sizes):
        first = np.broadcast_to(np.arange(size) < size // 2, (draws, size))
        halves = np.random.default_rng([seed, table]).permuted(first, axis=1)
        found.append(np.concatenate([np.ones((1, size), bool), halves]))
    return found


def figure_of_halves(
    metric: Metric,
    values: Sequence[float] | NDArray[np.float64],
    of: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    **settings: Setting,
) -> Figure:
    """The figure of a statistic, with the interval that its spread over half samples gives.

    A mean of n / 2 texts drawn without replacement from n varies as a mean of n fresh texts does, so that nothing is
    rescaled. Deviations are from the halves' own mean: many statistics are larger for fewer texts. A statistic that is
    nearly at its least (distances of tables alike) varies less than so estimated: its interval is too wide, by 1.7 at
    most where it is quadratic.

    Args:
        metric: what the statistic is.
        values: of all texts, then of each half sample; with fewer than two of these there is no interval.
        of: whose figure.
        low, high: the statistic's range.
        settings: of the figure.

    Source: Politis, Romano and Wolf 1999, section 2.2; Shao and Wu 1989 (the delete-d jackknife).
    """
    value, halves = float(values[0]), np.asarray(values[1:], dtype=np.float64)
    if len(halves) < 2:
        return Figure(metric, value, of, settings=settings, note="Too few texts for an interval.")
    below, above = np.quantile(halves - halves.mean(), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    method = f"half samples of the texts, {len(halves)} draws"
    interval = Interval(float(max(low, value - above)), float(min(high, value - below)), method, LEVEL)
    return Figure(metric, value, of, interval, settings)


def over_halves(
    metric: Metric,
    statistic: Callable[..., float],
    sizes: Sequence[int],
    of: str,
    *,
    seed: int,
    draws: int,
    low: float = 0.0,
    high: float = math.inf,
    **settings: Setting,
) -> Figure:
    """The figure of a ``statistic`` that takes which rows of each of some tables are chosen, ``Bool[n]`` each."""
    chosen = whole_and_halves(sizes, seed=seed, draws=draws)
    values = [statistic(*rows) for rows in zip(*chosen, strict=True)]
    return figure_of_halves(metric, values, of, low=low, high=high, **settings)
