"""How sure a figure is, from half samples: texts drawn twice, as in a bootstrap, mislead most of these metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.evaluation.figure import Interval
from understudy.evaluation.intervals import LEVEL

LEAST = 20
"""A table of fewer texts gets no interval."""


def half_samples(count: int, *, seed: int, table: int, draws: int) -> NDArray[np.bool_]:
    """Which of ``count`` texts are in each half sample, ``Bool[draws, count]``: ``count // 2`` of them, none twice."""
    first = np.broadcast_to(np.arange(count) < count // 2, (draws, count))
    return np.random.default_rng([seed, table]).permuted(first, axis=1)


def interval_of_halves(
    value: float, halves: Sequence[float] | NDArray[np.float64], *, low: float = -math.inf, high: float = math.inf
) -> Interval:
    """The interval around ``value`` that a statistic's spread over half samples gives.

    A mean of n / 2 texts drawn without replacement from n varies as a mean of n fresh texts does, so that nothing is
    rescaled. Deviations are from the halves' own mean: many statistics are larger for fewer texts.

    Args:
        value: the statistic of all texts.
        halves: the statistic of each half sample.
        low, high: the statistic's range.

    Source: Politis, Romano and Wolf 1999, section 2.2; Shao and Wu 1989 (the delete-d jackknife).
    """
    deviations = np.asarray(halves, dtype=np.float64) - np.mean(halves)
    below, above = np.quantile(deviations, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    method = f"half samples of the texts, {len(deviations)} draws"
    return Interval(float(max(low, value - above)), float(min(high, value - below)), method, LEVEL)


def over_halves(
    statistic: Callable[..., float],
    sizes: Sequence[int],
    value: float,
    *,
    seed: int,
    draws: int,
    low: float = 0.0,
    high: float = math.inf,
) -> Interval | None:
    """The interval of a statistic of some tables; None where one of them is too small.

    Args:
        statistic: takes which rows of each table are chosen, ``Bool[n]`` each.
        sizes: how many texts the tables have.
        value: the statistic of all rows.
        seed: of the draws.
        draws: how many.
        low, high: the statistic's range.
    """
    if min(sizes) < LEAST:
        return None
    chosen = [half_samples(size, seed=seed, table=table, draws=draws) for table, size in enumerate(sizes)]
    halves = [statistic(*rows) for rows in zip(*chosen, strict=True)]
    return interval_of_halves(value, halves, low=low, high=high)
