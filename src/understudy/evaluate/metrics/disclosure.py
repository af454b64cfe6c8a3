"""Do the synthetic texts reveal which records were used?

The idea is that of Amin et al. 2026, *Phantoms and Disclosures* (arXiv:2606.16952): a match with a record that was
never used is a phantom, and phantoms say how many matches are chance. The test is ours (docs/decisions/089).

Used and unused records are paired at random. Of each pair the record that comes nearer to the texts is guessed to be
the used one; only the r pairs that differ most are guessed, for fixed r = 16, 64, 256 ... Let the used records be a
random part of one table. Then, given the pairs, which record of a pair was used is a fair coin, so that

- texts that disclose nothing let Binomial(r, 1/2) guesses be right, exactly;
- an (epsilon, delta)-private run is (2 epsilon, (1 + e^epsilon) delta)-private for such a coin, which replaces one
  record by another, so that :func:`~understudy.evaluate.metrics.guesses.p_value` bounds its right guesses.

The tests of all r share one level, FALSE_ALARMS.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import stats
from understudy.evaluate.metrics.guesses import largest_rejected, p_value
from understudy.evaluate.metrics.value import SYNTHETIC, MetricValue, Setting, metric_named

FALSE_ALARMS = 0.01
"""How often, at most, texts that disclose nothing look as if they did."""
POWER = 0.9
_FIRST, _TIMES = 16, 4

CHANCE = metric_named("disclosure_by_chance")
EPSILON = metric_named("disclosure_epsilon")


def measure_disclosure(
    used: NDArray[np.float64], unused: NDArray[np.float64], *, by: str, seed: int, promised: tuple[float, float] | None
) -> list[MetricValue]:
    """Test whether the texts reveal which records were used, and bound epsilon from below.

    Args:
        used, unused: how near each record comes to any of the texts; more is nearer.
        by: the measure of nearness.
        promised: epsilon and delta of the texts, for adding or removing one record; None: unknown.
    """
    pairs = min(len(used), len(unused))
    settings: dict[str, Setting] = {"by": by, "pairs": pairs}
    if not (sizes := _sizes(pairs)):
        none = f"There are fewer than {_FIRST} pairs of a used and an unused record."
        return [MetricValue(metric, None, settings=settings, note=none) for metric in (CHANCE, EPSILON)]
    generator = np.random.default_rng(seed)
    first, second = (generator.permutation(scores)[:pairs] for scores in (used, unused))
    order = np.argsort(-np.abs(first - second), kind="stable")
    right = (first > second) | ((first == second) & (generator.random(pairs) < 0.5))
    correct = {size: int(right[order[:size]].sum()) for size in sizes}
    delta = promised[1] if promised else 0.0

    found = {size: _chance(count, size, pairs, 0.0, 0.0) for size, count in correct.items()}
    size = min(found, key=lambda each: found[each])
    words = (
        f"Of the {size} pairs that differ most, the used record is nearer in {correct[size]}. "
        f"If {least_copied(pairs)} of these {pairs} records were copied, this would be below {FALSE_ALARMS} in "
        f"{POWER * 10:g} of 10 cases."
    )
    bound = max(_least(count, size, pairs, delta) for size, count in correct.items())
    power = (
        f"No more than {max(_least(size, size, pairs, delta) for size in sizes):.2f} could be shown with these pairs."
    )
    if promised:
        verdict = "which this does not contradict" if bound <= promised[0] else "and MORE IS DISCLOSED"
        power += f" Promised is {promised[0]:g}, {verdict}."
    return [
        MetricValue(CHANCE, found[size], SYNTHETIC, settings=settings, note=words),
        MetricValue(EPSILON, bound, SYNTHETIC, settings={**settings, "delta": delta}, note=power),
    ]


def _chance(correct: int, size: int, pairs: int, epsilon: float, delta: float) -> float:
    """Return an upper bound on the probability, over all tests, of this many right guesses if a record has this
    epsilon."""
    loss = (1 + math.exp(epsilon)) * delta
    tests = len(_sizes(pairs))
    return min(1.0, tests * p_value(correct, size, canaries=pairs, epsilon=2 * epsilon, delta=loss))


@lru_cache(maxsize=256)
def _least(correct: int, size: int, pairs: int, delta: float) -> float:
    """Return the largest epsilon that this many right guesses rule out."""
    return largest_rejected(lambda epsilon: _chance(correct, size, pairs, epsilon, delta) <= FALSE_ALARMS)


def _sizes(pairs: int) -> list[int]:
    """Return how many pairs each test guesses."""
    return [_FIRST * _TIMES**step for step in range(32) if _FIRST * _TIMES**step <= pairs]


@lru_cache(maxsize=16)
def least_copied(pairs: int) -> int:
    """Return how many used records the texts must copy for the test to notice with probability POWER: the pairs of the
    copied ones differ most, and those of the others are fair coins.

    >>> least_copied(1000)
    14
    """
    sizes = _sizes(pairs)

    def enough(copied: int) -> bool:
        for size in sizes:
            needed = int(stats.binom.isf(FALSE_ALARMS / len(sizes), size, 0.5)) + 1
            if stats.binom.sf(needed - copied - 1, max(0, size - copied), 0.5) >= POWER:
                return True
        return False

    return next(copied for copied in range(1, pairs + 1) if enough(copied))
