"""The privatised vocabulary: the top N of noisy term counts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError


def require_enough_terms(top: int, vocabulary_size: int) -> None:
    """See that the public vocabulary has the terms that the privatised one is to have.

    Raises:
        ConfigError: if it has not.
    """
    if top > vocabulary_size:
        raise ConfigError(
            f"The privatised vocabulary (top_terms = {top}) is larger than the public one ({vocabulary_size} terms).",
            "Lower top_terms or give a larger vocabulary.",
        )


def top_terms(noisy_counts: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Indices of the ``size`` largest noisy counts, the largest first: ``Int64[size]``. Post-processing."""
    return np.argsort(-noisy_counts, kind="stable")[:size].astype(np.int64)


def noise_floor(noise_std: float, size: int) -> float:
    """A level that pure Gaussian noise on ``size`` terms exceeds at about one term: std * sqrt(2 ln size).

    Noisy counts above it are most likely real; below it the top N is filled with chance terms.
    """
    return noise_std * math.sqrt(2 * math.log(max(size, 2)))
