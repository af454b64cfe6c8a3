"""Which candidates live on. Votes are noisy already, so all of this is post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray


def select(
    votes: NDArray[np.float64],
    labels: NDArray[np.int32],
    *,
    sizes: Sequence[int],
    selection: Literal["rank", "proportional"],
    threshold: float,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Indices of the chosen candidates, label after label, best first.

    ``rank`` takes the candidates with most votes, once each: all of them where there are fewer than wanted.
    ``proportional`` draws with replacement, in proportion to ``max(votes - threshold, 0)``, or uniformly where
    all of a label's are 0. A label without candidates gets none.

    Args:
        votes: ``Float64[n]``.
        labels: ``Int32[n]``, of the candidates.
        sizes: wanted of each label.
        threshold: taken off every vote; what falls below 0 counts as 0. Ties go to the earlier candidate.
        generator: draws; used by ``proportional`` alone.
    """
    weights = np.maximum(votes - threshold, 0.0)
    chosen = [np.empty(0, dtype=np.int64)]
    for label, size in enumerate(sizes):
        candidates = np.flatnonzero(labels == label)
        if selection == "proportional" and len(candidates):
            candidates = generator.choice(candidates, size, p=_shares(weights[candidates]))
        chosen.append(candidates[np.argsort(-weights[candidates], kind="stable")][:size])
    return np.concatenate(chosen)


def share_out(total: int, weights: Sequence[float]) -> list[int]:
    """``total`` in proportion to ``weights`` (largest remainder), but never 0: the largest shares give one up.

    Weights below 0, as noisy counts may be, count as 0; all 0: equal shares. The sum is ``total``, or the number
    of weights where that is more.

    >>> share_out(10, [6, 3, 0])
    [6, 3, 1]
    """
    exact = total * _shares(np.maximum(np.asarray(weights, dtype=np.float64), 0.0))
    shares = np.floor(exact).astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[: total - int(shares.sum())]] += 1
    for empty in np.flatnonzero(shares == 0):
        largest = int(np.argmax(shares))
        shares[largest] -= shares[largest] > 1
        shares[empty] = 1
    return [int(share) for share in shares]


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights by their sum; uniform where all are 0."""
    total = weights.sum()
    shares: NDArray[np.float64] = weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
    return shares
