"""The highest bound of many secrets, without composing the releases for each of them.

Where, in each release, one secret is at least as likely as another to have more than k records drawn, for every k, no
test does worse for it: the likelihood ratio of a mixture against N(0, sigma^2) grows with the value, and with more
records the values are larger. So a law of K that is above those of a whole group of secrets bounds the group.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Laws = tuple[NDArray[np.float64], ...]
"""Of one secret: P(K = 0), ..., P(K = n) in each release, K being how many of its records are drawn."""

_SPLITS = 16
_NEAR = 1e-3


def highest(secrets: Sequence[Laws], bound: Callable[[Laws], float]) -> float:
    """No less than the highest of ``bound`` over the secrets, and hardly more: groups are split where it counts.

    Args:
        secrets: similar ones near to each other, the one that is likely the highest first.
        bound: does not fall when more records are drawn.

    Returns:
        At most 1e-3 of itself too high, unless 16 splits were not enough. 0 where there are no secrets.
    """
    if not secrets:
        return 0.0
    least, number = bound(secrets[0]), itertools.count()
    groups = [(-bound(worse_than_all(secrets)), next(number), secrets)] if len(secrets) > 1 else [(-least, 0, secrets)]
    for _ in range(_SPLITS):
        most, _, group = groups[0]
        if len(group) == 1 or -most <= least * (1 + _NEAR):
            break
        heapq.heappop(groups)
        for half in (group[: len(group) // 2], group[len(group) // 2 :]):
            heapq.heappush(groups, (-bound(worse_than_all(half)), next(number), half))
    return -groups[0][0]


def worse_than_all(secrets: Sequence[Laws]) -> Laws:
    """Of each release, a law of K that gives every k or more at least the chance that any of ``secrets`` gives it."""
    if len(secrets) == 1:
        return secrets[0]
    laws = []
    for of_one_release in zip(*secrets, strict=True):
        most = np.zeros(max(map(len, of_one_release)) + 1)
        for law in of_one_release:
            most[: len(law)] = np.maximum(most[: len(law)], np.cumsum(law[::-1])[::-1])
        laws.append(-np.diff(most))
    return tuple(laws)
