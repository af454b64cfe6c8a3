"""Finding vocabulary terms in texts: word-exact, longest match first, several megabytes a second."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.vocabulary.words import split_words

_Branch = tuple[int, int, dict[tuple[str, ...], int]]


class TermMatcher:
    """Matches the terms of a vocabulary in texts.

    A term matches where its words stand in a row. Where several terms begin at one word the longest wins, and
    matching goes on behind it. Terms are looked up by their words (:func:`split_words`), so case, hyphens and
    runs of blanks do not matter. Of several terms with the same words the first wins.

    Args:
        terms: the vocabulary; a match is reported as its index here.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        single: dict[str, int] = {}
        longer: dict[str, dict[tuple[str, ...], int]] = {}
        for index, term in enumerate(terms):
            words = split_words(term)
            if len(words) == 1:
                single.setdefault(words[0], index)
            elif words:
                longer.setdefault(words[0], {}).setdefault(tuple(words), index)
        # A word leads to a term's index, or to a branch: (index of the word alone or -1, most words, terms by words).
        self._starts: dict[str, int | _Branch] = dict(single)
        self._has_branches = bool(longer)
        for word, branch in longer.items():
            self._starts[word] = (single.get(word, -1), max(map(len, branch)), branch)

    def find(self, text: str) -> list[int]:
        """Indices of the terms in ``text``, in order of appearance, repetitions included."""
        if self._has_branches:
            return self._match(text, limit=None)
        return [index for index in map(self._starts.get, split_words(text)) if index is not None]  # type: ignore[misc]

    def first_distinct(self, text: str, limit: int) -> list[int]:
        """Indices of the first ``limit`` distinct terms in ``text``: a record's bounded contribution."""
        return self._match(text, limit=limit)

    def _match(self, text: str, *, limit: int | None) -> list[int]:
        words = split_words(text)
        lookup = self._starts.get
        found: list[int] = []
        distinct: dict[int, None] = {}
        skip_to = 0
        for position, start in enumerate(map(lookup, words)):
            if start is None or position < skip_to:
                continue
            if start.__class__ is int:
                index = start
            else:
                index, length = _longest(start, words, position)  # type: ignore[arg-type]
                if index < 0:
                    continue
                skip_to = position + length
            if limit is None:
                found.append(index)
            elif index not in distinct:
                distinct[index] = None
                if len(distinct) == limit:
                    break
        return found if limit is None else list(distinct)


def _longest(branch: _Branch, words: Sequence[str], position: int) -> tuple[int, int]:
    """(index, number of words) of the longest term at ``position``; index -1 if there is none."""
    alone, most, terms = branch
    for length in range(min(most, len(words) - position), 1, -1):
        index = terms.get(tuple(words[position : position + length]))
        if index is not None:
            return index, length
    return alone, 1
