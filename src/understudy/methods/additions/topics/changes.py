"""What grew and what shrank between two Releases that count the same topics. Post-processing, free."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ReleaseError
from understudy.methods.additions.topics.found import Topic, held_of, topics_of
from understudy.release import Release

LEVEL = 0.05
"""The probability that any topic at all is named where none changed, at most."""
_CLEAR = 3.0


@dataclass(frozen=True)
class Change:
    """A topic whose share changed by more than noise and chance.

    Args:
        before, after: its share of the records (of owners, where these are protected), noisy.
        low, high: the range that holds the difference, together with those of all other topics, in 95 of 100 cases.
    """

    topic: Topic
    before: float
    after: float
    low: float
    high: float


def changes(earlier: Release, later: Release) -> tuple[Change, ...]:
    """The topics that surely changed, those first that changed most.

    Per topic a normal test of its share in both tables, two-sided, at LEVEL over the number of topics (Bonferroni).
    Its variance is that of the noise on the topic's size and on the sum of all sizes, and that of a binomial share:
    other people of the same kind would have written other texts. An owner weighs at most 1, so that the latter is no
    smaller than that of owners' means.

    Raises ReleaseError if the Releases do not count the same topics for the same unit, or hardly any record.
    """
    one, other = held_of(earlier), held_of(later)
    if not (np.array_equal(one.centres, other.centres) and np.array_equal(one.topic, other.topic)):
        raise ReleaseError(
            "The two Releases count other topics: what is found twice differs by noise alone.",
            "Count the earlier one's topics in the later table: --topics EARLIER.release.",
        )
    if earlier.statement.unit != later.statement.unit:
        raise ReleaseError("The two Releases protect different units.", "Protect the same in both.")
    before, after = _shares(earlier), _shares(later)
    pooled = np.clip((before.sizes + after.sizes) / (before.total + after.total), 0.0, 1.0)
    chance = pooled * (1 - pooled) * (1 / before.total + 1 / after.total)
    limit = NormalDist().inv_cdf(1 - LEVEL / 2 / len(pooled))
    width = limit * np.sqrt(before.variance + after.variance + chance)
    first, second = before.sizes / before.total, after.sizes / after.total
    moved = second - first
    named = topics_of(later)
    found = [
        Change(named[place], *(float(each[place]) for each in (first, second, moved - width, moved + width)))
        for place in np.flatnonzero(np.abs(moved) > width).tolist()
    ]
    return tuple(sorted(found, key=lambda each: -abs(each.after - each.before)))


@dataclass(frozen=True)
class _Shares:
    """Noisy sizes, their sum, and per topic the variance that noise alone gives its share."""

    sizes: NDArray[np.float64]
    total: float
    variance: NDArray[np.float64]


def _shares(release: Release) -> _Shares:
    held = held_of(release)
    variances = held.stds() ** 2
    total, std = float(held.sizes.sum()), float(np.sqrt(variances.sum()))
    if total <= max(1.0, _CLEAR * std):
        raise ReleaseError("Too few records: their number does not stand clear of the noise.", "Use larger tables.")
    shares = held.sizes / total
    return _Shares(held.sizes, total, (variances * (1 - 2 * shares) + shares**2 * variances.sum()) / total**2)
