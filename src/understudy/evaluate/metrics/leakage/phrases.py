"""Which phrases two tables of texts share: exactly, for every length at once, in O(n log n) for n words.

Every word gets the rank, among all, of the 2^k words that start there, for k = 0, 1, 2 ... (prefix doubling: Karp,
Miller and Rosenberg 1972; Manber and Myers 1993, section 4). Two phrases of 2^k words are the same exactly where their
ranks are. The last ranks sort all endings of all texts, and the longest phrase that one has in common with a table is
the one in common with its neighbours from that table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.spelling import fold, pieces

Ints = NDArray[np.int64]


def normal_words(text: str) -> list[str]:
    """The words of ``text`` without case and punctuation; of scripts that write no blanks, the characters.

    >>> normal_words("Don't  PANIC, Zoë: 漢字!")
    ['don', 't', 'panic', 'zoë', '漢', '字']
    """
    return [piece for piece in pieces(fold(text)) if piece[0].isalnum()]


class Phrases:
    """The phrases of ``others`` that stand in ``real``. A phrase never crosses the end of a text."""

    def __init__(self, real: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> None:
        texts = [*real, *others]
        sizes = np.fromiter((len(words) + 1 for words in texts), dtype=np.int64, count=len(texts))
        numbers: dict[str, int] = {}  # 0 is the end of a text
        self._words = np.fromiter(
            chain.from_iterable(
                (*(numbers.setdefault(word, len(numbers) + 1) for word in words), 0) for words in texts
            ),
            dtype=np.int32,
            count=int(sizes.sum()),
        )
        self._starts = np.cumsum(sizes) - sizes
        self._text = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
        self._end = np.repeat(self._starts + sizes - 1, sizes)
        self._real = len(real)
        self._first = int(sizes[: len(real)].sum())

    def longest(self) -> Ints:
        """``Int64[len(others)]``: how many words the longest phrase has that a text shares with any real text."""
        return self._by_text(np.maximum, self._copied)

    def covered(self, n: int) -> tuple[Ints, Ints]:
        """Of each other text the words that lie in copied phrases of ``n`` words or more, and all its words."""
        copied = self._copied
        change = np.zeros(len(copied) + 1, dtype=np.int64)
        starts = np.flatnonzero(copied >= n)
        np.add.at(change, starts, 1)
        np.add.at(change, starts + copied[starts], -1)
        inside = np.cumsum(change[:-1]) > 0
        return self._by_text(np.add, inside), self._by_text(np.add, self._left > 0)

    def ngrams(self, n: int) -> tuple[Ints, Ints, Ints]:
        """Of each other text how many of its n-grams stand in a real text, in exactly one real text, and all."""
        level = n.bit_length() - 1
        ranks = self._ranks[min(level, len(self._ranks) - 1)]
        at = np.flatnonzero(self._end - np.arange(len(self._end)) >= n)
        codes = _dense(ranks[at], ranks[at + n - 2**level])
        texts = self._text[at]
        mine = texts < self._real
        pairs = np.unique(codes[mine].astype(np.int64) * self._real + texts[mine])
        holders = np.bincount(pairs // max(self._real, 1), minlength=int(codes.max(initial=-1)) + 1)[codes[~mine]]
        counts = np.zeros((3, len(self._starts) - self._real), dtype=np.int64)
        for row, counted in zip(counts, (holders > 0, holders == 1, holders >= 0), strict=True):
            np.add.at(row, texts[~mine][counted] - self._real, 1)
        return counts[0], counts[1], counts[2]

    @property
    def _left(self) -> Ints:
        return self._end[self._first :] - np.arange(self._first, len(self._end))

    def _by_text(self, combine: np.ufunc, values: NDArray[np.generic]) -> Ints:
        starts = self._starts[self._real :] - self._first
        combined: Ints = combine.reduceat(values.astype(np.int64), starts) if len(starts) else starts
        return combined

    @cached_property
    def _ranks(self) -> list[NDArray[np.int32]]:
        """For k = 0, 1, ... the rank of the 2^k words from each place on, cut at the text's end; until all is told."""
        ranks = [self._words]
        distinct, places = 0, np.arange(len(self._words))
        while (now := int(ranks[-1].max(initial=0))) > distinct:
            following = np.minimum(places + 2 ** (len(ranks) - 1), self._end)
            distinct = now
            ranks.append(_dense(ranks[-1], ranks[-1][following]))
        return ranks[:-1] or ranks

    @cached_property
    def _copied(self) -> Ints:
        """From each place of the other texts on: how many words long the longest phrase is that a real text has."""
        order = np.argsort(self._ranks[-1], kind="stable")
        longest = np.zeros(len(self._words), dtype=np.int64)
        for places in (order, order[::-1]):
            is_real = places < self._first
            last_real = np.maximum.accumulate(np.where(is_real, np.arange(len(places)), -1))
            mine = np.flatnonzero(~is_real & (last_real >= 0))
            here, there = places[mine], places[last_real[mine]]
            longest[here] = np.maximum(longest[here], self._common(here, there))
        return longest[self._first :]

    def _common(self, here: Ints, there: Ints) -> Ints:
        last = self._ranks[-1]  # tells all endings apart that differ at all
        length = np.where(last[here] == last[there], len(last), 0)
        for level in reversed(range(len(self._ranks))):
            ranks = self._ranks[level]
            left = ranks[np.minimum(here + length, self._end[here])]
            right = ranks[np.minimum(there + length, self._end[there])]
            length += np.where(left == right, 2**level, 0)
        return np.minimum(length, np.minimum(self._end[here] - here, self._end[there] - there))


def _dense(first: NDArray[np.integer], second: NDArray[np.integer]) -> NDArray[np.int32]:
    """Numbers from 0 on for pairs of numbers, in the order of the pairs. (NumPy's unique takes twice the memory.)"""
    keys = first.astype(np.int64) * (int(second.max(initial=0)) + 1) + second
    order = np.argsort(keys)
    keys = keys[order]
    codes = np.zeros(len(keys), dtype=np.int32)
    codes[order[1:]] = np.cumsum(keys[1:] != keys[:-1], dtype=np.int32)
    return codes
