"""Choosing among synthetic texts by a guide: those that speak for their label, spread as the label's texts are.

Herding (Chen, Welling and Smola 2010): texts are taken one by one, each the one that brings the sum of those taken
nearest to that many times the target, a mean. What is already said often enough is then not said again, where the most
typical texts alone would all say the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.methods.shared.guide.guide import Guide, Vectors

CONTRAST = 2.0
"""How far the target is from the centre, in distances of the label's mean: two, so that what tells labels apart is
said more often than by chance."""


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Args:
        chosen: ``Int64[counts[label]]`` per label: indices of texts, in the order in which they were taken. Fewer where
            there are not so many.
        confirmed: texts that speak for the label that they were made for.
        moved: chosen texts that were made for another label.
    """

    chosen: tuple[NDArray[np.int64], ...]
    confirmed: int
    moved: int


def choose(
    guide: Guide, vectors: Vectors, labels: NDArray[np.int64], counts: Sequence[int], *, moves: bool = False
) -> Choice:
    """``counts[label]`` of the texts for each label.

    Texts that speak for another label are left out, as long as others are there: then those whose margin is the
    largest fill up. With ``moves``, texts of other labels that speak for this one, and that these labels can spare,
    come before these.

    Without labels the mean of the chosen texts follows that of the private ones, and of the candidates the more typical
    ones are chosen among, twice as many as are wanted.

    Args:
        vectors: ``Float32[n, d]`` of unit length.
        labels: ``Int64[n]``, which each text was made for.
        counts: how many are wanted of each label.
    """
    if len(counts) == 1:
        typical = np.argsort(-(vectors @ guide.centre), kind="stable")[: max(2 * counts[0], 1)]
        return Choice((typical[herd(vectors[typical], guide.centre, counts[0])],), len(vectors), 0)
    margins = guide.margins(vectors, labels)
    confirmed = margins > 0
    middle = np.zeros(vectors.shape[1]) if not len(vectors) else vectors.mean(axis=0, dtype=np.float64)
    taken = np.zeros(len(vectors), dtype=np.bool_)
    chosen: list[NDArray[np.int64]] = []
    for label, count in enumerate(counts):
        mine = np.flatnonzero((labels == label) & ~taken)
        pool = mine[confirmed[mine]]
        if moves and len(pool) < count:
            pool = np.concatenate([pool, _guests(guide, vectors, labels, counts, taken, label)])[:count]
        if len(pool) < count:
            others = mine[~confirmed[mine]]
            pool = np.concatenate([pool, others[np.argsort(-margins[others], kind="stable")][: count - len(pool)]])
        target = middle + CONTRAST * (guide.means[label] - guide.centre)
        chosen.append(pool[herd(vectors[pool], target, count)])
        taken[chosen[-1]] = True
    moved = sum(int((labels[each] != label).sum()) for label, each in enumerate(chosen))
    return Choice(tuple(chosen), int(confirmed.sum()), moved)


def _guests(
    guide: Guide,
    vectors: Vectors,
    labels: NDArray[np.int64],
    counts: Sequence[int],
    taken: NDArray[np.bool_],
    label: int,
) -> NDArray[np.int64]:
    """Texts of other labels that speak for this one, best first: as many of each as its own label can spare."""
    leads = guide.margins(vectors, np.full(len(vectors), label))
    found = [np.empty(0, dtype=np.int64)]
    for other, count in enumerate(counts):
        mine = (labels == other) & ~taken
        spare = int(mine.sum()) - (count if other > label else 0)
        guests = np.flatnonzero(mine & (leads > 0))
        if other != label and spare > 0:
            found.append(guests[np.argsort(-leads[guests], kind="stable")][:spare])
    guests = np.concatenate(found)
    return guests[np.argsort(-leads[guests], kind="stable")]


def herd(vectors: Vectors, target: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Indices of ``count`` of the vectors (all, if there are no more) whose mean follows ``target``, in order.

    Time grows with the square of the number: more than a thousand are chosen in parts, each a share of the vectors.
    """
    count = min(count, len(vectors))
    parts = max(1, math.ceil(count / _AT_ONCE))
    sizes = [count // parts + (part < count % parts) for part in range(parts)]
    found = [
        np.arange(part, len(vectors), parts)[_herd(vectors[part::parts], target, size)]
        for part, size in enumerate(sizes)
    ]
    return np.concatenate(found)


_AT_ONCE = 1000


def _herd(vectors: Vectors, target: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    chosen = np.empty(count, dtype=np.int64)
    towards = vectors @ target
    said = np.zeros(len(vectors))
    free = np.ones(len(vectors), dtype=np.bool_)
    for number in range(count):
        gains = np.where(free, (number + 1) * towards - said, -np.inf)
        best = int(gains.argmax())
        chosen[number], free[best] = best, False
        said += vectors @ vectors[best]
    return chosen
