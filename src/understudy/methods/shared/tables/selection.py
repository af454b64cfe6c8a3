"""Which pairs of columns are measured: those of which more is to be learnt than their noise costs. Post-processing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.methods.shared.tables.distribution import numbers_of
from understudy.methods.shared.tables.variables import Pair

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
