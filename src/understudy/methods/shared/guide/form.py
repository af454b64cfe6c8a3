"""The form of a guide, which its plan and its query share: weights, grid and sensitivity."""

from __future__ import annotations

import math

from understudy.privacy.mechanisms import Sensitivity

GRID = 1 << 20
"""Integer steps of 1.0 in a coordinate."""

COUNT_WEIGHT = 0.3
"""Of the coordinate that counts records: a label's divided by this is how many records it has."""

VECTOR_WEIGHT = math.sqrt(1 - COUNT_WEIGHT**2)
"""Of the embedding: a label's sum divided by this is the sum of its records' unit vectors."""


def guide_sensitivity() -> Sensitivity:
    """Of one record, or owner: a vector of count and embedding, of L2 norm at most 1. For Gaussian noise only."""
    return Sensitivity(None, GRID, GRID)
