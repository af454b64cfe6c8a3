"""The privatised vocabulary: the top N of noisy term counts, or those that stand above the noise."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.text.vocabulary.shrinkage import KnownNoise, shrink_by_rank

MOST_TERMS = 5000
"""A privatised vocabulary whose size follows from the noise has no more terms than these."""
FEWEST_TERMS = 20
"""And no fewer, if the public one has them: the likeliest, where few stand above the noise."""
PROBABLE = 0.3
"""A term stands above the noise where its true count is above 0 with a probability greater than this."""


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


def terms_above_noise(noisy_counts: NDArray[np.float64], noise: KnownNoise, *, fewest: int) -> NDArray[np.int64]:
    """Indices of the terms that stand above the noise, the largest expected counts first. Post-processing.

    At most :data:`MOST_TERMS`, and at least ``fewest`` (if there are so many), filled up by probability.

    Args:
        noisy_counts: of the public vocabulary, its most frequent terms first (:func:`shrink_by_rank`).
        fewest: terms that something else needs; :data:`FEWEST_TERMS` hold anyway.
    """
    found = shrink_by_rank(noisy_counts, noise)
    above = found.probability > PROBABLE
    order = np.lexsort((-found.mean, np.where(above, -np.inf, -found.probability)))
    size = max(min(int(above.sum()), MOST_TERMS), FEWEST_TERMS, fewest)
    return order[:size].astype(np.int64)


def noise_floor(noise_std: float, size: int) -> float:
    """A level that pure Gaussian noise on ``size`` terms exceeds at about one term: std * sqrt(2 ln size).

    Noisy counts above it are most likely real; below it the top N is filled with chance terms.
    """
    return noise_std * math.sqrt(2 * math.log(max(size, 2)))
