"""How often each record may be sampled, where it is public which records hold which secret.

SecPE (Wang et al. 2025) gives the records weights by a linear program, and samples record i with probability
min(1, V w_i / sum w). Everything here is a function of the incidence and of declared numbers alone.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.privacy.events import Inclusion

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_DIGITS = 4


def largest_weights(incidence: csr_array, caps: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights with the largest sum that keep to a cap for each secret.

    Maximise sum_i w_i, subject to sum over the records i that hold secret j of w_i <= caps[j], and 0 <= w_i <= 1.

    Args:
        incidence: ``[n, secrets]``, sparse; record i holds secret j where it is not 0.
        caps: ``Float64[secrets]``, 0 or more.

    Returns:
        ``Float64[n]``. Records that hold the same secrets have the same weight, records without secrets have 1. A cap
        is exceeded by no more than rounding in doubles.

    Raises ConfigError if there is not one cap of 0 or more for each secret, or the solver gives up.
    """
    from scipy.optimize import linprog

    caps = np.asarray(caps, dtype=np.float64)
    if caps.shape != (incidence.shape[1],) or not np.all(caps >= 0):
        raise ConfigError("Expected one cap of 0 or more for each secret.", "Give a weight of 0 or more a secret.")
    weights, held = np.ones(incidence.shape[0]), _in_order(incidence)
    if not held.nnz:
        return weights
    kind_of, first = _kinds(held)
    records = np.bincount(kind_of[kind_of >= 0]).astype(np.float64)
    kinds, bounds = held[first], np.column_stack([np.zeros(len(first)), records])
    # interior points: where a record holds ten secrets, the dual simplex takes ten times as long
    solved = linprog(-np.ones(len(first)), A_ub=kinds.T, b_ub=caps, bounds=bounds, method="highs-ipm")
    if not solved.success:
        raise ConfigError("The linear program of the weights was not solved.", "Use a smaller incidence file.")
    totals = np.clip(solved.x, 0, records)
    load = kinds.T @ totals
    shrink = np.divide(caps, load, out=np.ones_like(load), where=load > caps)  # the solver is exact up to 1e-7
    totals *= np.minimum.reduceat(shrink[kinds.indices], kinds.indptr[:-1])
    weights[kind_of >= 0] = (totals / records)[kind_of[kind_of >= 0]]
    return weights


def inclusion_probabilities(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """rho_i = min(1, V w_i / sum w): how often each record is sampled.

    V is sum(w) / max(w), so that the heaviest records are always sampled. (The printed 1 / max(w) samples about one
    record of the whole corpus.)

    Args:
        weights: ``Float64[n]``, 0 or more.
    """
    most = float(np.max(weights, initial=0))
    if most == 0:
        return np.zeros(len(weights))
    return np.asarray(np.minimum(1, weights * (1 / most)), dtype=np.float64)


def grouped_inclusion(rates: NDArray[np.float64], incidence: csr_array) -> tuple[Inclusion, ...]:
    """For each secret the rates of its records, as :class:`~understudy.privacy.events.MixtureEvent` states them.

    Rates are rounded up to 4 digits, so that equal ones can be counted: a higher rate can only be told apart more
    easily, so what is stated is never too little.

    Args:
        rates: ``Float64[n]``, in [0, 1].
        incidence: ``[n, secrets]``, sparse.

    Returns:
        One entry per secret, in the order of the columns; empty for a secret in no record that may be sampled.
    """
    by_secret = _in_order(incidence).tocsc()
    different, which = np.unique(np.asarray(rates, dtype=np.float64), return_inverse=True)
    rounded = np.array([_rounded_up(rate) for rate in different])[which]
    groups = []
    for start, end in zip(by_secret.indptr[:-1], by_secret.indptr[1:], strict=True):
        drawn = rounded[by_secret.indices[start:end]]
        found, counts = np.unique(drawn[drawn > 0], return_counts=True)
        groups.append(tuple((float(r), int(c)) for r, c in zip(found[::-1], counts[::-1], strict=True)))
    return tuple(groups)


def _rounded_up(rate: float) -> float:
    return float(Context(prec=_DIGITS, rounding=ROUND_CEILING).create_decimal(repr(float(rate))))


def _in_order(incidence: csr_array) -> csr_array:
    """A copy by rows, each pair once, in the order of the columns."""
    from scipy.sparse import csr_array

    held = csr_array(incidence, copy=True)
    held.sum_duplicates()
    held.eliminate_zeros()
    held.data = np.ones(held.nnz)
    return held


def _kinds(held: csr_array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Records that hold the same secrets, some at least, are of one kind: of each record its kind or -1, of each kind
    its first record."""
    kinds: dict[bytes, int] = {}
    kind_of, first = np.full(held.shape[0], -1), []
    for record in np.flatnonzero(np.diff(held.indptr)):
        key = held.indices[held.indptr[record] : held.indptr[record + 1]].tobytes()
        if key not in kinds:
            kinds[key] = len(kinds)
            first.append(record)
        kind_of[record] = kinds[key]
    return kind_of, np.array(first)
