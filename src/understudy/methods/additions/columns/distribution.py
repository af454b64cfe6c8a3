"""The distribution of rows: a graphical model, from which rows are sampled given any evidence. Post-processing.

    p(x) = exp(sum over factors f(x_S)) / Z

Variables are summed out one after another (bucket elimination, Dechter 1999) and then sampled in reverse order, so that
rows are exact samples, whichever values are allowed. The first variable is summed out last, which gives its marginal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, ReleaseError
from understudy.methods.additions.columns.variables import CHOSEN, LOGARITHMS, variables_of
from understudy.release import Release

Table = NDArray[np.float64]
Factor = tuple[tuple[int, ...], Table]
MOST_NUMBERS = 20_000_000
"""Largest number of values in all factors that summing out makes."""
_ROWS = 1 << 14


@dataclass(frozen=True, eq=False)
class Distribution:
    """A log-linear distribution over variables with ``sizes`` cells each.

    Args:
        factors: sets of variables, ascending, each with ``Float64`` logarithms, a dimension per variable.

    Raises ConfigError if summing out would take more than :data:`MOST_NUMBERS` numbers.
    """

    sizes: tuple[int, ...]
    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        require_narrow(self.sizes, [scope for scope, _ in self.factors])

    def shares(self, allowed: Sequence[NDArray[Any]]) -> Table:
        """Return, for each cell of the first variable, the probability that a row has this cell and is allowed:
        ``Float64[size]``. ``allowed``: per variable, the allowed share of each cell (``Float64[size]`` or ``Bool``)."""
        buckets, others = self._eliminated(allowed)
        found: Table = np.exp(np.minimum(buckets[-1][2] + others - self._whole, 0.0))
        return found

    @cached_property
    def _whole(self) -> float:
        """Return the logarithm of Z if everything is allowed."""
        buckets, others = self._eliminated([np.ones(size, dtype=np.bool_) for size in self.sizes])
        return others + float(_log_sum(buckets[-1][2]))

    def sample(self, count: int, allowed: Sequence[NDArray[Any]], generator: np.random.Generator) -> NDArray[np.int64]:
        """Sample independent allowed rows: ``Int64[count, variables]``. Raises ValueError if no row is allowed."""
        buckets, others = self._eliminated(allowed)
        if others == -math.inf or not np.isfinite(buckets[-1][2]).any():
            raise ValueError("no row is allowed")
        rows = np.zeros((count, len(self.sizes)), dtype=np.int64)
        for variable, scope, table in reversed(buckets):
            flat = table.reshape(-1, self.sizes[variable])
            peak = flat.max(axis=1, keepdims=True)
            weights = np.exp(flat - np.where(np.isfinite(peak), peak, 0.0)).cumsum(axis=1)
            given = [rows[:, each] for each in scope]
            shape = [self.sizes[each] for each in scope]
            places = np.ravel_multi_index(given, shape) if scope else np.zeros(count, dtype=np.int64)
            points = generator.random(count)
            for first in range(0, count, _ROWS):
                part = slice(first, first + _ROWS)
                reached = weights[places[part]]
                rows[part, variable] = (reached <= (points[part] * reached[:, -1])[:, None]).sum(axis=1)
        return rows

    @cached_property
    def _order(self) -> list[tuple[int, tuple[int, ...]]]:
        return elimination_order(self.sizes, [scope for scope, _ in self.factors])

    def _eliminated(self, allowed: Sequence[NDArray[Any]]) -> tuple[list[tuple[int, tuple[int, ...], Table]], float]:
        """Sum out all variables. Return each variable with the variables that its table depends on and that table,
        ``Float64[*those, its cells]``; and log Z of the variables that are not connected with the first one."""
        with np.errstate(divide="ignore"):
            left = [
                *self.factors,
                *(((place,), np.log(np.asarray(cells, dtype=np.float64))) for place, cells in enumerate(allowed)),
            ]
        buckets, total = [], 0.0
        for variable, scope in self._order:
            mine = [factor for factor in left if variable in factor[0]]
            left = [factor for factor in left if variable not in factor[0]]
            table = sum((_spread(each, (*scope, variable)) for each in mine), np.zeros(()))
            table = np.broadcast_to(table, (*(self.sizes[each] for each in scope), self.sizes[variable]))
            buckets.append((variable, scope, table))
            message = _log_sum(table)
            if scope:
                left.append((scope, message))
            elif variable:
                total += float(message)
        return buckets, total


def _spread(factor: Factor, scope: tuple[int, ...]) -> Table:
    """Return the factor's table with a dimension for each variable of ``scope``, of size 1 if the factor lacks it."""
    own, table = factor
    kept = [each for each in scope if each in own]
    moved = np.transpose(table, [own.index(each) for each in kept])
    sizes = iter(moved.shape)
    return moved.reshape([next(sizes) if each in own else 1 for each in scope])


def _log_sum(table: Table) -> Table:
    peak = table.max(axis=-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        found: Table = np.log(np.exp(table - peak).sum(axis=-1)) + peak[..., 0]
    return found


def elimination_order(sizes: Sequence[int], scopes: Sequence[tuple[int, ...]]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the order in which variables are summed out, each with the other variables in its bucket: the one with
    the smallest bucket first, and the first variable last."""
    beside: dict[int, set[int]] = {each: set() for each in range(len(sizes))}
    for scope in scopes:
        for each in scope:
            beside[each] |= set(scope) - {each}
    cells = {each: math.prod(sizes[other] for other in (each, *others)) for each, others in beside.items()}
    order = []
    while beside:
        chosen = min(beside, key=lambda each: (each == 0, cells[each], each))
        others = beside.pop(chosen)
        order.append((chosen, tuple(sorted(others))))
        for each in others:
            beside[each] = (beside[each] | others) - {each, chosen}
            cells[each] = math.prod(sizes[other] for other in (each, *beside[each]))
    return order


def numbers_of(sizes: Sequence[int], scopes: Sequence[tuple[int, ...]]) -> int:
    """Return the number of values in all buckets of the elimination, which decides memory and time."""
    order = elimination_order(sizes, scopes)
    return sum(math.prod(sizes[each] for each in (variable, *scope)) for variable, scope in order)


def require_narrow(sizes: Sequence[int], scopes: Sequence[tuple[int, ...]]) -> None:
    """Raise ConfigError if a model with these factors needs too much memory or time to be fitted and sampled from."""
    if numbers_of(sizes, scopes) > MOST_NUMBERS:
        raise ConfigError(
            "The columns depend on each other in circles that are too wide to sample from.",
            "Name fewer column_pairs, choose `selected`, or declare fewer values and bins.",
        )


def distribution_of(made: Release) -> Distribution:
    """Return the distribution of a Release's rows. Raises ReleaseError if it has none, or one that cannot be
    sampled."""
    variables = variables_of(made)
    sizes, chosen = variables.sizes, made.arrays[CHOSEN]
    sets = [tuple(sorted({*row})) for row in chosen.tolist()]
    scopes: list[tuple[int, ...]] = [*((each,) for each in range(len(sizes))), *sets]
    logarithms, first, factors = made.arrays[LOGARITHMS], 0, []
    if any(len(each) < 2 or each[0] < 0 or each[-1] >= len(sizes) for each in sets) or len({*sets}) < len(sets):
        raise _unusable()
    for scope in scopes:
        shape = [sizes[each] for each in scope]
        last = first + math.prod(shape)
        if last > len(logarithms):
            raise _unusable()
        factors.append((scope, np.asarray(logarithms[first:last], dtype=np.float64).reshape(shape)))
        first = last
    if first != len(logarithms):
        raise _unusable()
    try:
        return Distribution(sizes, tuple(factors))
    except ConfigError:
        raise _unusable() from None


def _unusable() -> ReleaseError:
    return ReleaseError("The columns of this Release do not fit together.", "Ask the sender for a new copy.")
