"""Confidence intervals: by bootstrap over texts, by Student's t over seeds, by Wilson for shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.value import Interval

LEVEL = 0.95


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float], count: int, *, seed: int, draws: int = 200, over: str
) -> Interval:
    """The percentile bootstrap interval of ``statistic``.

    Args:
        statistic: takes ``count`` row numbers, drawn with replacement.
        count: how many rows there are.
        seed: of the draws.
        draws: how many.
        over: what is drawn, in words: ``"the synthetic texts"``.

    Source: Efron and Tibshirani 1993, section 13.3.
    """
    generator = np.random.default_rng(seed)
    values = [statistic(generator.integers(count, size=count)) for _ in range(draws)]
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), f"bootstrap over {over}, {draws} draws", LEVEL)


def over_seeds(values: Sequence[float]) -> Interval | None:
    """Student's t interval of the mean of independent repetitions; None for fewer than two."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
    return Interval(mean - reach, mean + reach, f"t over {len(values)} seeds", LEVEL)


def of_share(successes: int, trials: int) -> Interval | None:
    """Wilson's interval of a share; None without trials.

    Source: Wilson 1927, equation 2.
    """
    if trials == 0:
        return None
    from scipy.stats import binomtest

    found = binomtest(successes, trials).proportion_ci(LEVEL, method="wilson")
    return Interval(float(found.low), float(found.high), f"Wilson, {trials} trials", LEVEL)
