"""How sure a figure is, from subsamples: texts drawn twice, as in a bootstrap, mislead most of these metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.intervals import LEVEL
from understudy.metrics.value import Figure, Interval, Metric, Setting

LEAST = 20
"""A table of fewer texts gets no interval."""

LEAST_TO_TELL = 100
"""Of fewer embeddings a table, clusters and nearest neighbours say nothing: nonsense looks like real texts."""

SHARE = 0.9
"""How many of a table's texts are in a subsample."""


def whole_and_subsamples(
    sizes: Sequence[int], *, seed: int, draws: int, share: float = SHARE
) -> list[NDArray[np.bool_]]:
    """For tables of ``sizes`` texts, first the choice of all, then subsamples of each: ``Bool[1 + draws, n]``.

    A subsample has ``share`` of the texts, none twice. There are none where a table is too small.
    """
    draws = draws if min(sizes) >= LEAST else 0
    found = []
    for table, size in enumerate(sizes):
        first = np.broadcast_to(np.arange(size) < round(size * share), (draws, size))
        drawn = np.random.default_rng([seed, table]).permuted(first, axis=1)
        found.append(np.concatenate([np.ones((1, size), bool), drawn]))
    return found


def figure_of_subsamples(
    metric: Metric,
    values: Sequence[float] | NDArray[np.float64],
    of: str,
    *,
    share: float = SHARE,
    low: float = -math.inf,
    high: float = math.inf,
    **settings: Setting,
) -> Figure:
    """The figure of a statistic, with the interval that its spread over subsamples gives.

    A mean of m of n texts, drawn without replacement, varies ``(n - m) / m`` times as much (in variance) as a mean of
    n fresh texts does, so deviations are scaled by ``sqrt(share / (1 - share))``. They are from the subsamples' own
    mean: many statistics are larger for fewer texts.

    Args:
        metric: what the statistic is.
        values: of all texts, then of each subsample; with fewer than two of these there is no interval.
        of: whose figure.
        share: of the texts in a subsample, in (0, 1).
        low, high: the statistic's range.
        settings: of the figure.

    Source: Shao and Wu 1989 (the delete-d jackknife); Politis, Romano and Wolf 1999, section 2.2.
    """
    value, drawn = float(values[0]), np.asarray(values[1:], dtype=np.float64)
    if len(drawn) < 2:
        return Figure(metric, value, of, settings=settings, note="Too few texts for an interval.")
    deviations = (drawn - drawn.mean()) * math.sqrt(share / (1 - share))
    below, above = np.quantile(deviations, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    method = f"{len(drawn)} subsamples of {share:.0%} of the texts"
    interval = Interval(float(max(low, value - above)), float(min(high, value - below)), method, LEVEL)
    return Figure(metric, value, of, interval, settings)


def over_subsamples(
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
    chosen = whole_and_subsamples(sizes, seed=seed, draws=draws)
    values = [statistic(*rows) for rows in zip(*chosen, strict=True)]
    return figure_of_subsamples(metric, values, of, share=SHARE, low=low, high=high, **settings)
