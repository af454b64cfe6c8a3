"""Per-text counts to figures with intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.intervals import bootstrap, of_share
from understudy.metrics.value import Figure, Metric, Setting

OVER = "the texts"


def share_of_texts(metric: Metric, holds: NDArray[np.bool_], of: str, settings: Mapping[str, Setting]) -> Figure:
    """The share of texts of which something holds, with Wilson's interval; None without texts."""
    if not len(holds):
        return Figure(metric, None, of, settings=settings, note="There are no texts.")
    return Figure(metric, float(holds.mean()), of, of_share(int(holds.sum()), len(holds)), settings)


def ratio(
    metric: Metric,
    parts: NDArray[np.int64],
    wholes: NDArray[np.int64],
    of: str,
    settings: Mapping[str, Setting],
    *,
    none: str,
    seed: int,
    draws: int,
) -> Figure:
    """The sum of all texts' parts over the sum of their wholes. ``none`` is the note where the wholes are all 0."""
    parts, wholes = parts[wholes > 0], wholes[wholes > 0]
    if not len(wholes):
        return Figure(metric, None, of, settings=settings, note=none)

    def statistic(rows: NDArray[np.int64]) -> float:
        return float(parts[rows].sum() / wholes[rows].sum())

    interval = bootstrap(statistic, len(wholes), seed=seed, draws=draws, over=OVER)
    return Figure(metric, float(parts.sum() / wholes.sum()), of, interval, settings)


def quantile(
    metric: Metric,
    values: NDArray[np.floating] | NDArray[np.int64],
    level: float,
    of: str,
    *,
    seed: int,
    draws: int,
) -> Figure:
    """A quantile of the texts' values; None without texts."""
    settings: dict[str, Setting] = {"quantile": level}
    if not len(values):
        return Figure(metric, None, of, settings=settings, note="There are no texts.")

    def statistic(rows: NDArray[np.int64]) -> float:
        return float(np.quantile(values[rows], level))

    interval = bootstrap(statistic, len(values), seed=seed, draws=draws, over=OVER)
    return Figure(metric, float(np.quantile(values, level)), of, interval, settings)


def chance_of_none(marked: NDArray[np.int64], texts: int, drawn: int) -> NDArray[np.float64]:
    """The chance that of ``texts`` texts, ``marked`` of them marked, none marked is among ``drawn`` at random.

    It makes counts and maxima of tables of two sizes comparable: their expectation in as many texts as the other has.
    """
    from scipy.special import gammaln

    plain = np.maximum(texts - marked, drawn - 1)
    log = gammaln(plain + 1) - gammaln(plain - drawn + 1) - gammaln(texts + 1) + gammaln(texts - drawn + 1)
    chance: NDArray[np.float64] = np.where(texts - marked >= drawn, np.exp(np.minimum(log, 0.0)), 0.0)
    return chance
