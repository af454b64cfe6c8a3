"""A word trigram model of the synthetic texts: small, exact, and sharp about words that should not be there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from understudy.vocabulary.words import split_words

_ORDER = 3


class NGramModel:
    """Interpolated trigrams with Witten-Bell weights, down to equal chances for all words::

        p(w | h) = (c(h w) + t(h) p(w | h without its first word)) / (c(h) + t(h))

    c counts in the texts, t(h) is how many different words follow h. Memory: of contexts, those alone are kept
    whose words are all in ``words``.

    Args:
        texts: to learn from.
        words: all words that will be asked about, contexts included.

    Source: Witten and Bell 1991, method C; Chen and Goodman 1999, section 2.
    """

    def __init__(self, texts: Iterable[str], *, words: Iterable[str]) -> None:
        known = frozenset(words)
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._total: Counter[tuple[str, ...]] = Counter()
        self._types: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            found = split_words(text)
            for position, word in enumerate(found):
                for start in range(position, max(-1, position - _ORDER), -1):
                    context = tuple(found[start:position])
                    if context and context[0] not in known:
                        break
                    gram = (*context, word)
                    self._total[context] += 1
                    self._types[context] += gram not in self._counts
                    self._counts[gram] += 1
        self._uniform = 1 / (len(known) + self._types[()] + 1)

    def log_probability(self, words: Sequence[str], *, after: Sequence[str] = ()) -> float:
        """log p(words | after), summed over the words; natural logarithm."""
        whole = [*after, *words]
        return sum(
            math.log(self._probability(whole[position], tuple(whole[max(0, position - _ORDER + 1) : position])))
            for position in range(len(after), len(whole))
        )

    def _probability(self, word: str, context: tuple[str, ...]) -> float:
        """Interpolated from the shortest context to the longest."""
        value = self._uniform
        for start in range(len(context), -1, -1):
            history = context[start:]
            types = self._types[history]
            if types == 0:
                break
            value = (self._counts[(*history, word)] + types * value) / (self._total[history] + types)
        return value
