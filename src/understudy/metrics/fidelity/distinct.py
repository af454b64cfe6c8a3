"""How many of a table's n-grams are different ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.fidelity.subsamples import over_subsamples
from understudy.metrics.value import Figure, Metric

ORDERS = (1, 2, 3)

DISTINCT = Metric(
    name="distinct_n",
    title="Distinct n-grams",
    family="fidelity",
    definition=(
        "Number of different n-grams of words over the number of n-grams, none across texts; in [0, 1], the higher the "
        "more diverse. Lower for more text, so every table is cut to the same number of words, its texts in random "
        "order."
    ),
    source="Li et al. 2016 (distinct-1, distinct-2)",
    better="same",
)

Words = Sequence[Sequence[str]]
"""The words of each text."""


def first_words(words: Words, total: int, *, seed: int) -> list[Sequence[str]]:
    """Texts in random order until they have ``total`` words together, the last one cut short."""
    kept: list[Sequence[str]] = []
    for row in np.random.default_rng(seed).permutation(len(words)):
        if total <= 0:
            break
        kept.append(words[row][:total])
        total -= len(kept[-1])
    return kept


def distinct(numbers: NDArray[np.int64]) -> float:
    """The share of different numbers among ``numbers``; 0 of none."""
    return float(np.count_nonzero(np.bincount(numbers)) / len(numbers)) if len(numbers) else 0.0


def ngrams(words: Words, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every n-gram in order: a number, the same for equal ones, and the place of its text."""
    known: dict[tuple[str, ...], int] = {}
    numbers = [known.setdefault(gram, len(known)) for text in words for gram in _of_text(text, n)]
    counts = [max(0, len(text) - n + 1) for text in words]
    return np.asarray(numbers, np.int64), np.repeat(np.arange(len(words)), counts)


def distinct_figures(words: Words, of: str, *, total: int, seed: int, draws: int) -> tuple[Figure, ...]:
    """The shares for n = 1, 2, 3 of ``total`` words of a table, with intervals from subsamples of its texts."""
    kept = first_words(words, total, seed=seed)

    def figure(n: int) -> Figure:
        numbers, texts = ngrams(kept, n)
        if not len(numbers):
            return Figure(DISTINCT, None, of, settings={"n": n}, note=f"No {n} words stand together.")
        return over_subsamples(
            DISTINCT,
            lambda chosen: distinct(numbers[chosen[texts]]),
            [len(kept)],
            of,
            seed=seed,
            draws=draws,
            high=1.0,
            n=n,
        )

    return tuple(figure(n) for n in ORDERS)


def _of_text(text: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(text[start:] for start in range(n)), strict=False)
