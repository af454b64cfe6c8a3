"""Which pairs of columns are measured, and the distribution that agrees with all noisy histograms as well as can be.

Post-processing of released values. The fit is Private-PGM by ``mbi`` (McKenna, Sheldon and Miklau 2019), which brings
JAX: the extra ``tables``. Only a release needs it; rows are sampled without.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.base.lazy import quiet_libraries
from understudy.methods.shared.tables.distribution import Distribution, Factor, numbers_of
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


MOST_NUMBERS = 300_000
"""In the model that selected pairs make, where they form circles: it is fitted in about a minute."""


def cost_of_noise(expected: NDArray[np.float64], std: float) -> float:
    """What noise of ``std`` on each cell of a pair's histogram is expected to cost, on the scale of its score.

    A score is a distance in L1, to which a wide pair of almost empty cells comes by sampling alone; to measure it would
    bring mostly noise. A cell costs the mean of its noise's size, and no more than twice what it is expected to hold:
    the fit keeps counts from falling below 0.

    Args:
        expected: what independence would give, in records.
    """
    return float(np.minimum(math.sqrt(2 / math.pi) * std, 2 * expected).sum())


def shares(sizes: Sequence[int], pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """``Float64[pairs]`` of L2 norm 1: what a record adds to the histogram of each pair.

    Proportional to the cubic root of its cells: of all such shares these make cells times noise least in all.
    """
    roots = np.cbrt([float(sizes[a] * sizes[b]) for a, b in pairs])
    return np.asarray(roots / np.linalg.norm(roots))


def select_pairs(
    sizes: Sequence[int],
    pairs: Sequence[Pair],
    scores: NDArray[np.float64],
    expected: Sequence[NDArray[np.float64]],
    *,
    std: float,
    tree: bool = False,
) -> tuple[Pair, ...]:
    """The pairs that are expected to lower the error by most in all, at least one.

    A pair that is measured gains its score, less what noise costs, which is the larger the more pairs share in it.
    Pairs are taken by what they gain at about the noise of a spanning tree, and passed over where the model would
    become too wide (:data:`MOST_NUMBERS`); as many are measured as make the sum of the gains largest.

    Args:
        pairs: all pairs of the variables, of ``sizes`` cells.
        scores: how far each is from independence, in records; noisy, may be negative.
        expected: what independence would give, in records.
        std: of the noise on a count if one pair were measured.
        tree: take the spanning tree of the largest gains instead (Kruskal 1956), whatever they are.
    """

    def gains(chosen: Sequence[int], *, beside: float = 1.0) -> NDArray[np.float64]:
        """Of measuring these pairs, if ``beside`` times as many as they are shared in the noise."""
        stds = std * math.sqrt(beside) / shares(sizes, [pairs[each] for each in chosen])
        costs = [cost_of_noise(expected[each], own) for each, own in zip(chosen, stds.tolist(), strict=True)]
        return np.asarray(scores[list(chosen)] - costs)

    first = gains(range(len(pairs)), beside=(len(sizes) - 1) / len(pairs))
    order = np.argsort(-first, kind="stable").tolist()
    if tree:
        taken = list(_joining(pairs, order, sizes, circles=False))
    else:
        order = list(_joining(pairs, [each for each in order if first[each] > 0], sizes, circles=True)) or order[:1]
        taken = max((order[:count] for count in _counts(len(order))), key=lambda chosen: float(gains(chosen).sum()))
    return tuple(sorted(pairs[each] for each in taken))


def _counts(most: int) -> Iterator[int]:
    """Numbers of pairs that are tried: all, or with many pairs each a tenth more than the one before."""
    count = 1
    while count < most:
        yield count
        count += max(1, count // 10)
    yield most


def _joining(pairs: Sequence[Pair], order: Sequence[int], sizes: Sequence[int], *, circles: bool) -> Iterator[int]:
    """Of the pairs in this order those that join what was not connected, and those that close circles which leave the
    model narrow."""
    group = list(range(len(sizes)))
    taken: list[Pair] = []
    for place in order:
        a, b = (group[each] for each in pairs[place])
        if a != b or (circles and numbers_of(sizes, [*taken, pairs[place]]) <= MOST_NUMBERS):
            taken.append(pairs[place])
            group = [a if each == b else each for each in group]
            yield place
