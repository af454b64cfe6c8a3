"""How far apart two histograms are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def jensen_shannon(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Jensen-Shannon divergence in bits, in [0, 1], of counts over the last axis; each sum is above 0.

    Source: Lin 1991, equation 4.1 with equal weights.
    """
    from scipy.spatial.distance import jensenshannon

    distance = jensenshannon(np.asarray(a, np.float64), np.asarray(b, np.float64), base=2, axis=-1)
    divergence: NDArray[np.float64] = np.clip(np.asarray(distance) ** 2, 0.0, 1.0)
    return divergence
