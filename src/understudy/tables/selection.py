"""Which pairs of columns are measured: the strongest ones that connect all, without a circle. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.tables.variables import Pair


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
