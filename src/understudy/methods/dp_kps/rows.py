"""Sequences for rows of typed columns: sampled for them, or, where a guide chose sequences, shared out among them.

    each row of label c:    terms sampled in proportion to  weight_c(t) * product over columns of lift(row, t)^power
    chosen by a guide:      which row goes with which sequence, in proportion to the product of the same lifts

Rows are sampled before their sequences, so that they are samples of the released distribution whatever is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from understudy.methods.dp_kps.lifts import Lifts
from understudy.text.writing.records import Row, Rows, Seed

_SWEEPS = 300


@dataclass(frozen=True)
class SequenceRows:
    """The rows of all sequences that are wanted.

    Args:
        rows: of each label.
        places: of each label ``Int64[rows, columns]``, their cells among those of the lifts.
        lifts: of the terms.
        power: of the lifts: as the label's own, which counts once in the scores, and again as the contrast says.
    """

    rows: tuple[tuple[Row, ...], ...]
    places: tuple[NDArray[np.int64], ...]
    lifts: Lifts
    power: float

    @classmethod
    def take(
        cls, rows: Rows, counts: Sequence[int], columns: tuple[int, ...], *, lifts: Lifts, power: float
    ) -> SequenceRows:
        """``counts[label]`` rows of each label; ``columns`` are the places of those that the lifts are of."""
        taken = tuple(tuple(rows.take(label) for _ in range(count)) for label, count in enumerate(counts))
        cells = [[[row.numbers[column] for column in columns] for row in some] for some in taken]
        places = [lifts.places(np.array(some, dtype=np.int64).reshape(-1, len(columns))) for some in cells]
        return cls(taken, tuple(places), lifts, power)

    def log_lifts(self, times: int) -> list[Callable[[slice], NDArray[np.float32]]]:
        """Per label, of some of its sequences: logarithms of the lifts of all terms, ``times`` sequences per row."""
        return [partial(self._log_lifts, np.repeat(places, times, axis=0)) for places in self.places]

    def _log_lifts(self, places: NDArray[np.int64], some: slice) -> NDArray[np.float32]:
        return np.float32(self.power) * self.lifts.of_rows(places[some])

    def beside(self, seeds: Sequence[Seed]) -> list[Seed]:
        """Seeds with their rows, of sequences that were sampled one per row, label by label."""
        rows = [row for some in self.rows for row in some]
        return [replace(seed, row=row) for seed, row in zip(seeds, rows, strict=True)]

    def shared_out(self, seeds: Sequence[Seed], terms: Sequence[str], generator: np.random.Generator) -> list[Seed]:
        """Seeds with rows that they go with: the rows of each label are shared out among its seeds, of which there are
        no more."""
        numbers, found = {term: number for number, term in enumerate(terms)}, []
        for label, (rows, places) in enumerate(zip(self.rows, self.places, strict=True)):
            mine = [seed for seed in seeds if seed.label == label]
            fits = [self.lifts.logarithms[:, [numbers[each] for each in seed.phrases]].sum(axis=1) for seed in mine]
            chosen = _matched(np.float32(self.power) * np.array(fits), places[: len(mine)], generator) if mine else ()
            found += [replace(seed, row=rows[row]) for seed, row in zip(mine, chosen, strict=True)]
        return found


def _matched(fits: NDArray[np.float32], places: NDArray[np.int64], generator: np.random.Generator) -> list[int]:
    """Which row goes with which sequence, sampled in proportion to the product of all lifts, by swaps of random pairs
    (Barker 1965).

    Args:
        fits: ``Float32[n, cells]``: the sum of the log-lifts of each sequence's terms under each cell.
        places: ``Int64[n, columns]``: the cells of each row.
    """
    order = generator.permutation(len(places))
    half = len(order) // 2
    for _ in range(_SWEEPS if half else 0):
        one, other = np.split(generator.permutation(len(order))[: 2 * half], 2)
        mine, others = places[order[one]].T, places[order[other]].T
        gain = np.zeros(half)
        for a, b in zip(mine, others, strict=True):
            gain += fits[one, b] + fits[other, a] - fits[one, a] - fits[other, b]
        swap = generator.random(half) < 1 / (1 + np.exp(np.clip(-gain, -50, 50)))
        order[one[swap]], order[other[swap]] = order[other[swap]], order[one[swap]]
    return [int(row) for row in order]
