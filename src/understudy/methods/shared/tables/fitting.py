"""From noisy histograms to one distribution that agrees with all of them as well as can be: Private-PGM.

Post-processing of released values, by ``mbi`` (McKenna, Sheldon and Miklau 2019), which brings JAX: the extra
``tables``. Only a release needs it; rows are sampled without.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.base.quiet import quiet_libraries
from understudy.methods.shared.tables.distribution import Distribution, Factor
from understudy.methods.shared.tables.variables import Pair

_STEPS, _ENOUGH = 4_000, 1e-7
"""Steps at most, and the relative gain below which no more are taken."""
_LOWEST = -60.0
"""A cell's logarithm, below the factor's largest."""


def require_fitting() -> None:
    """See that ``mbi`` is installed, before anything is charged; else ConfigError."""
    if find_spec("mbi") is None:
        raise ConfigError(
            "Columns are fitted by the package mbi, which is not installed.", 'Install "understudy[tables]".'
        )


def fit(
    sizes: Sequence[int],
    singles: Sequence[NDArray[np.float64]],
    pairs: Sequence[Pair],
    histograms: Sequence[NDArray[np.float64]],
    *,
    single_std: float,
    pair_stds: Sequence[float],
) -> Distribution:
    """The distribution of the graphical model over ``pairs`` whose marginals are nearest to the noisy ones, weighted by
    their noise (mirror descent, Algorithm 1 there).

    Args:
        singles: noisy histogram of each variable.
        histograms: of each pair, ``Float64[size, size]``.
        single_std: of the noise on each count of a variable; 0 where none was added.
        pair_stds: likewise of each pair.
    """
    with quiet_libraries():  # on its precision and caches, which do not matter for some thousand cells
        import jax
        import mbi
    names = [str(place) for place in range(len(sizes))]
    domain = mbi.Domain(names, list(sizes))
    measured = [
        *(_measurement(mbi, (each,), values, single_std) for each, values in enumerate(singles)),
        *(_measurement(mbi, *each) for each in zip(pairs, histograms, pair_stds, strict=True)),
    ]
    with jax.default_device(jax.devices("cpu")[0]):
        model = mbi.estimation.MirrorDescent().estimate(
            domain, measured, known_total=_total(measured), iters=_STEPS, tol=_ENOUGH
        )
        found = {
            tuple(map(int, clique)): np.asarray(model.potentials[clique].values) for clique in model.potentials.cliques
        }
    return Distribution(tuple(sizes), _factors(len(sizes), pairs, found, sizes))


def _measurement(mbi: Any, scope: tuple[int, ...], values: NDArray[np.float64], std: float) -> Any:
    return mbi.LinearMeasurement(values.ravel(), tuple(map(str, scope)), stddev=std or 1.0)


def _total(measured: Sequence[Any]) -> float:
    """The number of records: the mean of what the histograms add up to, each weighted by its noise; at least 1."""
    known = [(each.noisy_measurement.sum(), each.noisy_measurement.size * each.stddev**2) for each in measured]
    weights = sum(1 / variance for _, variance in known)
    return max(1.0, float(sum(total / variance for total, variance in known) / weights))


def _factors(
    count: int, pairs: Sequence[Pair], found: dict[tuple[int, ...], NDArray[Any]], sizes: Sequence[int]
) -> tuple[Factor, ...]:
    """One factor per variable and per pair, in this order, the largest logarithm of each 0."""
    scopes: list[tuple[int, ...]] = [*((each,) for each in range(count)), *pairs]
    factors = []
    for scope in scopes:
        table = np.asarray(found.pop(scope, np.zeros([sizes[each] for each in scope])), dtype=np.float64)
        factors.append((scope, np.maximum(table - table.max(), _LOWEST)))
    assert not found, "mbi's model has the cliques that were measured"
    return tuple(factors)
