"""How much more often records with one value of a column use a term than others do: empirical Bayes on noisy counts.

For cell a of a column, the noisy score s(a, t) of term t is compared with its expectation if the column were
independent of the terms, e(a, t) = share of a * score of t under all cells. The relative difference d(a, t) is taken to
be normal with variance tau^2, which is estimated from all scores of the column, on the low side: three standard errors
are subtracted, so that noise alone gives 0, and it is capped at its largest possible value, the number of cells. Then

    s(a, t) - e(a, t)  =  e(a, t) d(a, t) + noise,    variance of the noise: the added noise's, plus e(a, t)

(a weight of at most 1 per record: sampling varies it by no more). The lift of a term is 1 + the posterior mean of d:
near 1 if there is mostly noise, and for all terms of a column that is independent of them. Post-processing, free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from understudy.text.records import Row, Rows, Seed
from understudy.text.vocabulary.shrinkage import KnownNoise, shrink

_LEAST, _MOST = 0.05, 20.0
"""Bounds on lifts; many columns together may still leave a row with few terms."""


@dataclass(frozen=True)
class Lifts:
    """The lifts of terms: how much more often records with a given value of a column use them."""

    logarithms: NDArray[np.float32]  # ``Float32[cells, N]``, the columns' cells concatenated
    spreads: tuple[float, ...]  # tau of each column: 0 if it is independent of the terms
    sizes: tuple[int, ...]  # cells of each column

    @classmethod
    def of(cls, scores: NDArray[np.float64], sizes: Sequence[int], noise: KnownNoise) -> Lifts:
        """Estimate the lifts from noisy ``scores``, ``Float64[cells, N]``."""
        found = [_log_lifts(block, noise) for block in np.split(scores, np.cumsum(sizes)[:-1])]
        return cls(np.concatenate([logs for logs, _ in found]), tuple(spread for _, spread in found), tuple(sizes))

    def places(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of :attr:`logarithms` for cells ``Int64[n, columns]``."""
        return cells + np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def of_rows(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the logarithms of the lifts of every term for these rows: ``Float32[n, N]``. The lifts of a row's
        columns multiply."""
        total = np.zeros((len(places), self.logarithms.shape[1]), dtype=np.float32)
        for column in places.T:
            total += self.logarithms[column]
        return total


def _log_lifts(scores: NDArray[np.float64], noise: KnownNoise) -> tuple[NDArray[np.float32], float]:
    """Return the lifts of one column: logarithms ``Float32[cells, N]``, and tau."""
    every = shrink(scores.sum(axis=0), KnownNoise("gaussian", noise.std * len(scores) ** 0.5)).mean
    shares = np.maximum(scores.sum(axis=1), 0.0)
    expected = shares[:, None] / max(float(shares.sum()), 1e-12) * every
    apart, variance = scores - expected, noise.std**2 + np.maximum(expected, 1e-12)
    precision = float(((expected**2 / variance) ** 2).sum())
    # least squares of apart^2 - variance on expected^2, weighted by 1 / variance^2, less three standard errors
    found = float(((apart**2 - variance) * expected**2 / variance**2).sum()) - 3 * (2 * precision) ** 0.5
    squared = min(max(found, 0.0) / max(precision, 1e-30), len(scores))
    difference = squared * expected * apart / (squared * expected**2 + variance)
    return np.log(np.clip(1 + difference, _LEAST, _MOST)).astype(np.float32), squared**0.5


_SWEEPS = 300


@dataclass(frozen=True)
class SequenceRows:
    """The rows of all requested sequences: sequences are sampled for rows, or matched with them.

        each row of label c:    terms sampled in proportion to  weight_c(t) * product over columns of lift(row, t)^power
        with a guide:           rows are matched with sequences, in proportion to the product of the same lifts

    Rows are sampled before their sequences, so that they follow the released distribution whatever is written.

    Args:
        places: for each label ``Int64[rows, columns]``, the rows' cells among those of the lifts.
    """

    rows: tuple[tuple[Row, ...], ...]  # of each label
    places: tuple[NDArray[np.int64], ...]
    lifts: Lifts  # of the terms
    power: float  # power of the lifts: like the label's, which counts once in the scores and again by the contrast

    @classmethod
    def take(
        cls, rows: Rows, counts: Sequence[int], columns: tuple[int, ...], *, lifts: Lifts, power: float
    ) -> SequenceRows:
        """Draw ``counts[label]`` rows of each label; the sequences that are sampled later fit these rows.

        ``columns`` are the positions of the columns that have lifts: how much likelier a term is given their values.
        """
        taken = tuple(tuple(rows.take(label) for _ in range(count)) for label, count in enumerate(counts))
        cells = [[[row.numbers[column] for column in columns] for row in some] for some in taken]
        places = [lifts.places(np.array(some, dtype=np.int64).reshape(-1, len(columns))) for some in cells]
        return cls(taken, tuple(places), lifts, power)

    def log_lifts(self, times: int) -> list[Callable[[slice], NDArray[np.float32]]]:
        """Return, per label, a function that gives the log-lifts of all terms for a slice of its sequences, ``times``
        sequences per row."""

        def of_some(places: NDArray[np.int64], some: slice) -> NDArray[np.float32]:
            return np.float32(self.power) * self.lifts.of_rows(places[some])

        return [partial(of_some, np.repeat(places, times, axis=0)) for places in self.places]

    def beside(self, seeds: Sequence[Seed]) -> list[Seed]:
        """Return the seeds with their rows, if one sequence was sampled per row, label by label."""
        rows = [row for some in self.rows for row in some]
        return [replace(seed, row=row) for seed, row in zip(seeds, rows, strict=True)]

    def shared_out(self, seeds: Sequence[Seed], terms: Sequence[str], generator: np.random.Generator) -> list[Seed]:
        """Return the seeds with rows that fit: each label's rows are divided among its seeds. There are at most as many
        seeds as rows."""
        numbers, found = {term: number for number, term in enumerate(terms)}, []
        for label, (rows, places) in enumerate(zip(self.rows, self.places, strict=True)):
            mine = [seed for seed in seeds if seed.label == label]
            known = [[numbers[each] for each in seed.phrases if each in numbers] for seed in mine]
            fits = [self.lifts.logarithms[:, terms].sum(axis=1) for terms in known]
            chosen = _matched(np.float32(self.power) * np.array(fits), places[: len(mine)], generator) if mine else ()
            found += [replace(seed, row=rows[row]) for seed, row in zip(mine, chosen, strict=True)]
        return found


def _matched(fits: NDArray[np.float32], places: NDArray[np.int64], generator: np.random.Generator) -> list[int]:
    """Match rows (``Int64[n, columns]``, their cells) with sequences (``Float32[n, cells]``: the sum of the log-lifts
    of their terms), sampled in proportion to the product of all lifts, by swaps of random pairs (Barker 1965).
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
