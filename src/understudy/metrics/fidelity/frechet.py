"""The Fréchet distance of two Gaussians fitted to the embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.fidelity.subsamples import over_subsamples
from understudy.metrics.sample import Sample
from understudy.metrics.value import Figure, Metric

FRECHET = Metric(
    name="frechet_distance",
    title="Fréchet distance",
    family="fidelity",
    definition=(
        "Squared Fréchet (2-Wasserstein) distance of the Gaussians with the means and covariances of the two tables' "
        "embeddings, at least 0. Larger for fewer texts, so all tables are cut to one size."
    ),
    source="Heusel et al. 2017, equation 6 (FID); Dowson and Landau 1982",
    better="lower",
)


def frechet_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """``|m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2))`` of the rows of ``a`` and ``b``, each at least two.

    With centred rows ``A = Q_a R_a``, divided by the root of n - 1, the root's trace is the sum of the singular values
    of ``R_a R_b^T``. No product of covariances is formed and no root of a rounded eigenvalue taken, so it is as exact
    with fewer texts than dimensions as with more.
    """
    (mean_a, root_a), (mean_b, root_b) = _gaussian(a), _gaussian(b)
    overlap = np.linalg.svd(root_a @ root_b.T, compute_uv=False).sum()
    traces = (root_a**2).sum() + (root_b**2).sum()
    return max(0.0, float(((mean_a - mean_b) ** 2).sum() + traces - 2 * overlap))


def frechet_figures(real: Sample, other: Sample, *, of: str, seed: int, draws: int) -> tuple[Figure, ...]:
    """The distance, with an interval from subsamples of both tables."""
    assert real.embeddings is not None
    assert other.embeddings is not None
    a, b = real.embeddings.astype(np.float64), other.embeddings.astype(np.float64)
    return (
        over_subsamples(
            FRECHET,
            lambda ours, theirs: frechet_distance(a[ours], b[theirs]),
            (len(a), len(b)),
            of,
            seed=seed,
            draws=draws,
        ),
    )


def _gaussian(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean, and R with ``R^T R`` the covariance."""
    mean: NDArray[np.float64] = rows.mean(axis=0)
    centred: NDArray[np.float64] = (rows - mean) / np.sqrt(len(rows) - 1)
    root: Any = np.linalg.qr(centred, mode="r")  # NumPy's types promise another result here
    return mean, root
