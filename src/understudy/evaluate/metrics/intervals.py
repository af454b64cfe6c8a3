"""Values with their confidence intervals: bootstrap, subsamples, Student's t over seeds, Wilson's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import special, stats
from understudy.evaluate.metrics.value import Interval, Metric, MetricValue, Setting

LEVEL = 0.95
LEAST = 20
"""A table of fewer texts gets no interval from subsamples."""
LEAST_TO_TELL = 100
"""With fewer embeddings per table, clusters and nearest neighbours mean nothing: nonsense looks like real texts."""
SUBSAMPLE = 0.9
"""Share of a table's texts that are in a subsample."""
NO_TEXTS = "There are no texts."
_OVER = "the texts"

Rows = NDArray[np.int64]


def quantile_ends(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Return the quantiles that bound the middle 95 % of ``values``."""
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def bootstrap(
    statistic: Callable[[Rows], float], count: int, *, seed: int, resamples: int = 200, over: str
) -> Interval:
    """Return the percentile bootstrap interval of ``statistic``.

    Args:
        statistic: takes ``count`` row numbers, sampled with replacement.

    Source: Efron and Tibshirani 1993, section 13.3.
    """
    generator = np.random.default_rng(seed)
    values = [statistic(generator.integers(count, size=count)) for _ in range(resamples)]
    return Interval(*quantile_ends(values), f"bootstrap over {over}, {resamples} resamples")


def over_seeds(values: Sequence[float]) -> Interval | None:
    """Return Student's t interval of the mean of independent repetitions; None for fewer than two."""
    if len(values) < 2:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
    return Interval(mean - reach, mean + reach, f"t over {len(values)} seeds")


def wilson_interval(successes: int, trials: int) -> Interval | None:
    """Return Wilson's interval of a share; None without trials.

    Source: Wilson 1927, equation 2.
    """
    if trials == 0:
        return None
    found = stats.binomtest(successes, trials).proportion_ci(LEVEL, method="wilson")
    return Interval(float(found.low), float(found.high), f"Wilson, {trials} trials")


def share(
    metric: Metric,
    count: int,
    total: int,
    of: str,
    settings: Mapping[str, Setting],
    *,
    none: str = NO_TEXTS,
    private: bool = True,
) -> MetricValue:
    """Return ``count`` of ``total`` as a share, with Wilson's interval; if the total is 0, None with the note
    ``none``."""
    if total == 0:
        return MetricValue(metric, None, of, settings=settings, note=none)
    return MetricValue(metric, count / total, of, wilson_interval(count, total), settings, reads_private=private)


def ratio(
    metric: Metric,
    parts: NDArray[Any],
    wholes: NDArray[Any],
    of: str,
    settings: Mapping[str, Setting],
    *,
    none: str,
    **sampling: int,
) -> MetricValue:
    """Return the sum of ``parts`` over the sum of ``wholes``, with an interval; if the latter is 0, None with the note
    ``none``."""
    parts, wholes = parts[wholes > 0], wholes[wholes > 0]
    if not len(wholes):
        return MetricValue(metric, None, of, settings=settings, note=none)
    interval = bootstrap(
        lambda rows: float(parts[rows].sum() / wholes[rows].sum()), len(wholes), over=_OVER, **sampling
    )
    return MetricValue(metric, float(parts.sum() / wholes.sum()), of, interval, settings)


def quantile(metric: Metric, values: NDArray[Any], level: float, of: str, *, none: str, **sampling: int) -> MetricValue:
    """Return a quantile of the values, with a bootstrap interval; None, with the note ``none``, without values."""
    settings: dict[str, Setting] = {"quantile": level}
    if not len(values):
        return MetricValue(metric, None, of, settings=settings, note=none)
    interval = bootstrap(lambda rows: float(np.quantile(values[rows], level)), len(values), over=_OVER, **sampling)
    return MetricValue(metric, float(np.quantile(values, level)), of, interval, settings)


def chance_of_none(marked: NDArray[np.int64], texts: int, chosen: int) -> NDArray[np.float64]:
    """Return the probability that ``chosen`` random ones of ``texts`` texts include none of the ``marked`` ones.

    It makes counts and maxima of tables of two sizes comparable: their expectation in as many texts as the other has.
    """
    plain = np.maximum(texts - marked, chosen - 1)  # with fewer than chosen, 1 / gamma(0) = 0 below
    gammaln = special.gammaln
    log = gammaln(plain + 1) - gammaln(plain - chosen + 1) - gammaln(texts + 1) + gammaln(texts - chosen + 1)
    chance: NDArray[np.float64] = np.exp(np.minimum(log, 0.0))
    return chance


def mean_of_choices(size: int, texts: int) -> str:
    """Return the note for values computed by :func:`chance_of_none`; empty if all texts are chosen."""
    return "" if size == texts else f"The mean over all choices of {size} of its texts."


def whole_and_subsamples(
    sizes: Sequence[int], *, seed: int, resamples: int, share: float = SUBSAMPLE
) -> list[NDArray[np.bool_]]:
    """Return, for each table of ``sizes`` texts, all of them and then subsamples: ``Bool[1 + resamples, n]``.

    A subsample has ``share`` of the texts, rounded, none twice: repeated texts, as in a bootstrap, mislead most of
    these metrics. There are no subsamples if a table has fewer than :data:`LEAST` texts.
    """
    resamples = resamples if min(sizes) >= LEAST else 0
    found = []
    for table, size in enumerate(sizes):
        first = np.broadcast_to(np.arange(size) < round(size * share), (resamples, size))
        chosen = np.random.default_rng([seed, table]).permuted(first, axis=1)
        found.append(np.concatenate([np.ones((1, size), bool), chosen]))
    return found


def value_of_subsamples(
    metric: Metric,
    values: Sequence[float] | NDArray[np.float64],
    chosen: Sequence[NDArray[np.bool_]],
    of: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    settings: Mapping[str, Setting] | None = None,
) -> MetricValue:
    """Return a statistic, with the interval from its spread over subsamples.

    A mean of m of n texts, sampled without replacement, has a variance in proportion to 1/m - 1/n, a mean of n fresh
    texts one in proportion to 1/n. Deviations are scaled by the root of the ratio of the two, each summed over the
    tables. They are from the subsamples' own mean: many statistics are larger for fewer texts.

    Args:
        values: of all texts, then of each subsample; with fewer than two of these there is no interval.
        chosen: the subsamples of each table, from :func:`whole_and_subsamples`.

    Source: Shao and Wu 1989 (the delete-d jackknife); Politis, Romano and Wolf 1999, section 2.2.
    """
    value, others = float(values[0]), np.asarray(values[1:], dtype=np.float64)
    if len(others) < 2:
        return MetricValue(metric, value, of, settings=settings or {}, note="Too few texts for an interval.")
    sizes, sampled = (np.array([table[row].sum() for table in chosen]) for row in (0, 1))
    scale = math.sqrt((1 / sizes).sum() / (1 / sampled - 1 / sizes).sum())
    below, above = quantile_ends((others - others.mean()) * scale)
    method = f"{len(others)} subsamples of {sampled.sum() / sizes.sum():.0%} of the texts"
    interval = Interval(max(low, value - above), min(high, value - below), method)
    return MetricValue(metric, value, of, interval, settings or {})


def over_subsamples(
    metric: Metric,
    statistic: Callable[..., float],
    sizes: Sequence[int],
    of: str,
    *,
    seed: int,
    resamples: int,
    high: float = math.inf,
    settings: Mapping[str, Setting] | None = None,
) -> MetricValue:
    """Measure a ``statistic`` in [0, ``high``] of the chosen rows ``Bool[n]`` of each table, with an interval."""
    chosen = whole_and_subsamples(sizes, seed=seed, resamples=resamples)
    values = [statistic(*rows) for rows in zip(*chosen, strict=True)]
    return value_of_subsamples(metric, values, chosen, of, low=0.0, high=high, settings=settings)


def between_subsamples(
    metric: Metric,
    statistic: Callable[[NDArray[Any], NDArray[Any]], float],
    ours: NDArray[Any],
    theirs: NDArray[Any],
    of: str,
    **more: Any,
) -> MetricValue:
    """Measure a ``statistic`` of the chosen rows of two tables, with an interval (see :func:`over_subsamples`)."""

    def between(one: NDArray[np.bool_], two: NDArray[np.bool_]) -> float:
        return statistic(ours[one], theirs[two])

    return over_subsamples(metric, between, (len(ours), len(theirs)), of, **more)
