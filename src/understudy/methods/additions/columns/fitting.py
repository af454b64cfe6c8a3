"""Select which sets of columns are measured, and fit a distribution to all noisy histograms.

Post-processing of released values. The fit is Private-PGM by ``mbi`` (McKenna, Sheldon and Miklau 2019), which brings
JAX: the extra ``tables``. Only a release needs it; rows are sampled without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import quiet_libraries
from understudy.methods.additions.columns.distribution import Distribution, Factor, numbers_of
from understudy.methods.additions.columns.variables import Scope

_STEPS, _ENOUGH = 4_000, 1e-7
"""Largest number of steps, and the relative gain below which fitting stops."""
_LOWEST = -60.0
"""Lower bound of a cell's logarithm, relative to the factor's largest."""


def fit(
    sizes: Sequence[int],
    singles: Sequence[NDArray[np.float64]],
    sets: Sequence[Scope],
    histograms: Sequence[NDArray[np.float64]],
    *,
    single_std: float,
    set_stds: Sequence[float],
) -> Distribution:
    """Fit the graphical model over ``sets`` whose marginals are nearest to the noisy histograms, weighted by their
    noise (mirror descent, Algorithm 1 there). Histograms have one dimension per variable; the standard deviations are
    of the noise on a count, 0 without noise."""
    with quiet_libraries():  # on its precision and caches, which do not matter for some thousand cells
        import jax
        import mbi
    names = [str(place) for place in range(len(sizes))]
    domain = mbi.Domain(names, list(sizes))
    measured = [
        *(_measurement(mbi, (each,), values, single_std) for each, values in enumerate(singles)),
        *(_measurement(mbi, *each) for each in zip(sets, histograms, set_stds, strict=True)),
    ]
    with jax.default_device(jax.devices("cpu")[0]):
        model = mbi.estimation.MirrorDescent().estimate(
            domain, measured, known_total=_total(measured), iters=_STEPS, tol=_ENOUGH
        )
        found = {
            tuple(map(int, clique)): np.asarray(model.potentials[clique].values) for clique in model.potentials.cliques
        }
    return Distribution(tuple(sizes), _factors(sizes, sets, found))


def _measurement(mbi: Any, scope: tuple[int, ...], values: NDArray[np.float64], std: float) -> Any:
    return mbi.LinearMeasurement(values.ravel(), tuple(map(str, scope)), stddev=std or 1.0)


def _total(measured: Sequence[Any]) -> float:
    """Return the number of records: the mean of the histograms' sums, each weighted by its noise; at least 1."""
    known = [(each.noisy_measurement.sum(), each.noisy_measurement.size * each.stddev**2) for each in measured]
    weights = sum(1 / variance for _, variance in known)
    return max(1.0, float(sum(total / variance for total, variance in known) / weights))


def _factors(
    sizes: Sequence[int], sets: Sequence[Scope], found: dict[tuple[int, ...], NDArray[Any]]
) -> tuple[Factor, ...]:
    """Return one factor per variable and per set, in this order; the largest logarithm of each is 0."""
    scopes: list[tuple[int, ...]] = [*((each,) for each in range(len(sizes))), *sets]
    factors = []
    for scope in scopes:
        table = np.asarray(found.pop(scope, np.zeros([sizes[each] for each in scope])), dtype=np.float64)
        factors.append((scope, np.maximum(table - table.max(), _LOWEST)))
    assert not found, "mbi's model has the cliques that were measured"
    return tuple(factors)


MOST_NUMBERS = 300_000
"""Largest number of values in the model of selected sets with cycles: it is fitted in about a minute."""
_OF_LABEL = 2.0
"""How many times as much a set with the label is worth."""
_MEAN_NOISE = math.sqrt(2 / math.pi)
_LEAST_FILLED = 0.02
_NORMS = np.geomspace(1, 1e4, 40)
"""Norms of the cubic roots of the measured sets' cells at which costs are computed."""


def shares(sizes: Sequence[int], sets: Sequence[Scope]) -> NDArray[np.float64]:
    """Return a record's contribution to the histogram of each set: ``Float64[sets]`` of L2 norm 1.

    Proportional to the cubic root of its cells: these shares minimise the total of cells times noise.
    """
    roots = _roots(sizes, sets)
    return np.asarray(roots / np.linalg.norm(roots))


def _roots(sizes: Sequence[int], sets: Sequence[Scope]) -> NDArray[np.float64]:
    return np.cbrt([float(math.prod(sizes[each] for each in scope)) for scope in sets])


@dataclass(frozen=True, eq=False)
class Worth:
    """The expected gain and loss of measuring a set of columns, from its noisy score.

    The score, as a total variation distance t in [0, 1], says how far the columns are from independent. Their records
    then fill about 1 - t of the cells that independent columns would fill. So the gain ``learnt`` is -log(1 - t), which
    adds up over independent sets as information does. The loss ``cost`` is the mean size of the noise on filled cells,
    but at most twice the count that independence predicts, since the fit keeps counts from falling below 0. The score
    of a triple is first reduced by what chance alone would give, and by two standard deviations of its noise, because
    the best of many noisy scores is too high.
    """

    score: float  # how far from independence, in records; noisy, may be negative
    expected: NDArray[np.float64]  # what independence would give, in records, with a dimension per variable
    score_std: float = 0.0  # of the noise on the score

    @cached_property
    def _most(self) -> float:
        return 2 * max(1.0, float(self.expected.sum()))

    @cached_property
    def _apart(self) -> float:
        return (self.score - (2 * self.score_std if self.expected.ndim > 2 else 0)) / self._most

    @cached_property
    def _filled(self) -> float:
        return min(1.0, max(_LEAST_FILLED, 1 - self._apart))

    @property
    def learnt(self) -> float:
        return self.sure if self.expected.ndim > 2 else -math.log(min(2.0, max(_LEAST_FILLED, 1 - self._apart)))

    @cached_property
    def sure(self) -> float:
        """Return the expected gain, less the gain that chance alone would show in a sample."""
        sizes = np.sqrt(self.expected * self._filled)
        chance = float(np.minimum(_MEAN_NOISE * sizes, 2 * self.expected).sum()) / self._most
        return -math.log(min(2.0, max(_LEAST_FILLED, 1 - self._apart + chance)))

    def cost(self, std: float) -> float:
        """Return the expected loss by noise of standard deviation ``std`` on each cell."""
        noise = _MEAN_NOISE * std * self._filled
        return float(np.minimum(noise, 2 * self.expected).sum()) / self._most


def select_sets(
    sizes: Sequence[int],
    sets: Sequence[Scope],
    worths: Sequence[Worth],
    *,
    std: float,
    labelled: bool = False,
    tree: bool = False,
) -> tuple[Scope, ...]:
    """Choose the sets of columns whose measurement is expected to gain most in total, less the loss by noise; at least
    one set.

    The set that raises the total most is added until no set raises it. A triple gains less if more of its pairs are
    already measured, and replaces these pairs. More sets mean more noise on each. Sets that would make the model too
    large (:data:`MOST_NUMBERS`) are skipped. Sets with the label gain more (:data:`_OF_LABEL`), because most tables
    are used to predict it.

    Args:
        sizes: the number of cells of each variable.
        sets: the candidates: all pairs of variables, then sets of three.
        worths: the expected gain of each set, before the loss by noise.
        std: of the noise on a count if one set were measured.
        labelled: whether the first variable is the label.
        tree: choose instead the pairs that connect all variables with the largest gain (spanning tree, Kruskal 1956).
    """
    roots = _roots(sizes, sets)
    squares = roots**2
    weights = np.array([_OF_LABEL if labelled and scope[0] == 0 else 1.0 for scope in sets])
    learnt, sure = (weights * found for found in np.array([(worth.learnt, worth.sure) for worth in worths]).T)
    stds = std * _NORMS / roots[:, None]
    costs = weights[:, None] * [list(map(worth.cost, own)) for worth, own in zip(worths, stds.tolist(), strict=True)]
    places = {scope: place for place, scope in enumerate(sets) if len(scope) == 2}
    pairs = len(places)

    def at(norms: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Interpolate each row of ``costs`` at its norm, between those of :data:`_NORMS`."""
        steps = np.clip(np.log(norms / _NORMS[0]) / np.log(_NORMS[1] / _NORMS[0]), 0, len(_NORMS) - 1.001)
        rows, below = np.arange(len(costs)), steps.astype(int)
        return np.asarray(costs[rows, below] + (steps - below) * (costs[rows, below + 1] - costs[rows, below]))

    if tree:
        norm = np.full(pairs, math.sqrt((len(sizes) - 1) * squares[:pairs].mean()))
        joined: list[Scope] = []
        for place in np.argsort(at(norm, costs[:pairs]) - learnt[:pairs], kind="stable").tolist():
            if not _connected(sets[place], joined):
                joined.append(sets[place])
        return tuple(sorted(joined))
    holds = np.zeros((len(sets), pairs))
    for place, scope in enumerate(sets):
        holds[place, [places[pair] for pair in combinations(scope, 2)]] = 1
    known, taken, passed = np.zeros(pairs), np.zeros(len(sets)), np.zeros(len(sets), dtype=np.bool_)
    taught, value = 0.0, -math.inf
    while True:
        gains = learnt - holds @ (known * np.maximum(sure[:pairs], 0))
        replaced = holds * taken[:pairs]
        replaced[:pairs] = 0
        norms = np.sqrt(taken @ squares + squares - replaced @ squares[:pairs])
        noise, touched = taken @ costs + costs, replaced.any(axis=1)
        noise[touched] -= replaced[touched] @ costs[:pairs]
        values = taught + gains - at(norms, noise)
        values[passed | (taken > 0)] = -math.inf
        values[:pairs][known > 0] = -math.inf
        for best in np.argsort(-values, kind="stable").tolist():
            if values[best] <= value:
                return tuple(sorted(scope for scope, each in zip(sets, taken, strict=True) if each))
            kept = taken.copy()
            kept[:pairs] -= replaced[best]
            others = [scope for scope, each in zip(sets, kept, strict=True) if each]
            joins = best < pairs and not _connected(sets[best], others)
            if joins or numbers_of(sizes, [*others, sets[best]]) <= MOST_NUMBERS:
                break
            passed[best] = True
        kept[best], value, taught = 1, values[best], taught + gains[best]
        taken, known = kept, np.maximum(known, holds[best])


def _connected(pair: Scope, sets: Sequence[Scope]) -> bool:
    """Return whether sets connect one variable of the pair with the other."""
    reached = {pair[0]}
    while more := {each for scope in sets if reached.intersection(scope) for each in scope} - reached:
        reached |= more
    return pair[1] in reached
