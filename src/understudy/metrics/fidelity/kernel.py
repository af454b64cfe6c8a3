"""The kernel distance of embeddings: the squared maximum mean discrepancy, without bias."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.fidelity.subsamples import figure_of_subsamples, whole_and_subsamples
from understudy.metrics.sample import Sample
from understudy.metrics.value import Figure, Metric

KERNEL = Metric(
    name="kernel_distance",
    title="Kernel distance",
    family="fidelity",
    definition=(
        "Unbiased squared maximum mean discrepancy of the embeddings x, y with the kernel ((1 + x.y) / 2)^3. About 0 "
        "for two tables of one source, below 0 by chance, at most 2. It does not depend on how many texts there are."
    ),
    source="Bińkowski et al. 2018 (KID), with the dot product of unit vectors not divided by d; Gretton et al. 2012",
    better="lower",
)
# KID's kernel is (1 + x.y / d)^3 for features of length about sqrt(d). On unit vectors that is 1 + 3 x.y / d and a
# rest of 1 / d^2: it would see the means only.

_BLOCK = 2**22  # kernel values at a time, 32 MiB


def kernel_distance(
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    chosen_a: NDArray[np.bool_] | None = None,
    chosen_b: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """The distance of the chosen rows of ``a`` to the chosen rows of ``b``, for every choice: ``Float64[draws]``.

    Args:
        a, b: embeddings ``[n, d]`` and ``[m, d]`` of unit length.
        chosen_a, chosen_b: ``Bool[draws, n]`` and ``Bool[draws, m]``, two or more a choice; None: all rows, once.

    Source: Gretton et al. 2012, equation 3.
    """
    x, y = a.astype(np.float64), b.astype(np.float64)
    one = np.ones((1, len(x))) if chosen_a is None else chosen_a.astype(np.float64)
    two = np.ones((1, len(y))) if chosen_b is None else chosen_b.astype(np.float64)
    between = _sums(x, y, one, two) / (one.sum(1) * two.sum(1))
    found: NDArray[np.float64] = _within(x, one) + _within(y, two) - 2 * between
    return found


def kernel_figures(real: Sample, other: Sample, *, of: str, seed: int, draws: int) -> tuple[Figure, ...]:
    """The distance, with an interval from subsamples of both tables."""
    a, b = real.embeddings, other.embeddings
    assert a is not None
    assert b is not None
    chosen = whole_and_subsamples((len(a), len(b)), seed=seed, draws=draws)
    return (figure_of_subsamples(KERNEL, kernel_distance(a, b, *chosen), of),)


def _within(rows: NDArray[np.float64], chosen: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean kernel of pairs of different chosen rows."""
    count = chosen.sum(1)
    of_itself = chosen @ ((1 + (rows**2).sum(1)) / 2) ** 3
    found: NDArray[np.float64] = (_sums(rows, rows, chosen, chosen) - of_itself) / (count * (count - 1))
    return found


def _sums(
    a: NDArray[np.float64], b: NDArray[np.float64], chosen_a: NDArray[np.float64], chosen_b: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The sum of the kernel over pairs of chosen rows, for every choice."""
    total = np.zeros(len(chosen_a))
    step = max(1, _BLOCK // len(b))
    for start in range(0, len(a), step):
        base = (1 + a[start : start + step] @ b.T) / 2
        total += np.einsum("id,di->d", (base**2 * base) @ chosen_b.T, chosen_a[:, start : start + step])
    return total
