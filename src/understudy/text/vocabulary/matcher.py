"""Finding vocabulary terms in texts: word-exact, longest match first, several megabytes per second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from understudy.text.vocabulary.words import split_words

_Branch = tuple[int, dict[str, Any]]
"""(index of the term that ends here or -1, next word -> index of a term that goes no further, or another branch)."""


class TermMatcher:
    """Matches the terms of a vocabulary in texts; a match is the term's index.

    A term matches where its words follow each other. Where several terms begin at one word the longest wins, and
    matching continues behind it. Terms are looked up by their words (:func:`split_words`), so case, hyphens and
    runs of blanks do not matter. Of several terms with the same words the first wins.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self._starts: dict[str, int | _Branch] = {}
        self._has_branches = False
        for index, term in enumerate(terms):
            words = split_words(term)
            if words:
                self._has_branches |= len(words) > 1
                _insert(self._starts, words, index)

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
                index, rest = start  # type: ignore[misc]
                if position + 1 < len(words) and words[position + 1] in rest:
                    index, skip_to = _longest(start, words, position)  # type: ignore[arg-type]
                if index < 0:
                    continue
            if limit is None:
                found.append(index)
            elif index not in distinct:
                distinct[index] = None
                if len(distinct) == limit:
                    break
        return found if limit is None else list(distinct)


def _insert(tree: dict[str, Any], words: Sequence[str], index: int) -> None:
    """Add a term to the tree; the first of those with the same words stays."""
    for word in words[:-1]:
        branch = tree.get(word, -1)
        if branch.__class__ is int:
            branch = tree[word] = (branch, {})
        tree = branch[1]
    last = tree.setdefault(words[-1], index)
    if last.__class__ is not int and last[0] < 0:
        tree[words[-1]] = (index, last[1])


def _longest(branch: _Branch, words: Sequence[str], position: int) -> tuple[int, int]:
    """(index, position behind it) of the longest term at ``position``; index -1 if there is none."""
    best, rest = branch
    end = position + 1
    for following in range(position + 1, len(words)):
        step = rest.get(words[following])
        if step is None:
            break
        if step.__class__ is int:
            return step, following + 1
        index, rest = step
        if index >= 0:
            best, end = index, following + 1
    return best, end
