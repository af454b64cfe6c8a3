"""Which pairs of columns are measured: the strongest ones that connect all, without a circle. Post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.tables.variables import Pair


def cost_of_noise(expected: NDArray[np.float64], std: float) -> float:
    """What noise of ``std`` on each cell of a pair's histogram is expected to cost, on the scale of its score.

    A score is a distance in L1, to which a wide pair of almost empty cells comes by sampling alone; to measure it would
    bring mostly noise. A cell costs the mean of its noise's size, and no more than twice what it is expected to hold:
    the fit keeps counts from falling below 0.

    Args:
        expected: what independence would give, in records.
    """
    return float(np.minimum(math.sqrt(2 / math.pi) * std, 2 * expected).sum())


def spanning_tree(pairs: Sequence[Pair], scores: NDArray[np.float64], variables: int) -> tuple[Pair, ...]:
    """The spanning tree of the largest scores (Kruskal 1956), of ``variables - 1`` pairs.

    Args:
        scores: of each of all pairs of ``variables``; noisy, may be negative.
    """
    group = list(range(variables))
    chosen = []
    for place in np.argsort(-scores, kind="stable").tolist():
        a, b = (group[each] for each in pairs[place])
        if a != b:
            chosen.append(pairs[place])
            group = [a if each == b else each for each in group]
    return tuple(sorted(chosen))
