"""Splitting into words: one rule for texts and for vocabulary terms, so that they always agree.

A word is a maximal run of letters, digits and combining marks of any script (Unicode, lower case, NFC, one Greek
sigma). Hyphens, apostrophes and all other characters separate words: "X-ray" is the two words "x ray", in a text and in
a vocabulary alike. Scripts without spaces (Chinese, Japanese, Thai) need word breaks in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

_ASCII = bytes(ord(chr(c).lower()) if c < 128 and chr(c).isalnum() else ord(" ") for c in range(256))

_WHERE_MARKS_ARE = (range(0x300, 0x20000), range(0xE0000, 0xE0200))  # planes 2 to 13 and 15 on have none


@cache
def _unicode_word() -> re.Pattern[str]:
    r"""Return the pattern of a word. ``[^\W_]`` alone leaves out combining marks, which Indic and other scripts need
    inside words."""
    marks = [c for codes in _WHERE_MARKS_ARE for c in codes if unicodedata.category(chr(c)).startswith("M")]
    ranges: list[list[int]] = []
    for mark in marks:
        if ranges and mark == ranges[-1][1] + 1:
            ranges[-1][1] = mark
        else:
            ranges.append([mark, mark])
    combining = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return re.compile(f"[^\\W_]+(?:[{combining}]+[^\\W_]*)*")


def split_words(text: str) -> list[str]:
    """Return the words of ``text`` in order, normalised.

    >>> split_words("X-ray of the patient's  Knie, größer")
    ['x', 'ray', 'of', 'the', 'patient', 's', 'knie', 'größer']
    """
    if text.isascii():
        # Three times the speed of a regular expression.
        return text.encode("ascii").translate(_ASCII).decode("ascii").split()
    # Lower-casing may allow new compositions (J and a caron), and whether a sigma is final depends on its neighbours.
    return _unicode_word().findall(unicodedata.normalize("NFC", text.lower()).replace("ς", "σ"))


def kept_phrases(text: str, phrases: Sequence[str]) -> tuple[str, ...]:
    """Return the phrases whose words occur one after another in ``text``, by :func:`split_words`."""
    words = f" {' '.join(split_words(text))} "
    return tuple(phrase for phrase in phrases if f" {' '.join(split_words(phrase))} " in words)


def missing_phrases(text: str, phrases: Sequence[str]) -> list[str]:
    """Return the phrases that ``text`` does not contain."""
    kept = kept_phrases(text, phrases)
    return [phrase for phrase in phrases if phrase not in kept]


_Branch = tuple[int, dict[str, Any]]
"""(index of the term that ends here or -1, next word -> index of a term that ends with it, or another branch)."""


class TermMatcher:
    """Finds the terms of a vocabulary in texts. A match is the index of a term.

    A term matches if its words follow each other. If several terms begin at one word, the longest wins, and
    matching continues after it. Terms are looked up by their words (:func:`split_words`), so case, hyphens and
    runs of blanks do not matter. Of several terms with the same words the first wins.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self._starts: dict[str, int | _Branch] = {}
        self._has_branches = False
        self.size = len(terms)
        for index, term in enumerate(terms):
            words = split_words(term)
            if words:
                self._has_branches |= len(words) > 1
                _insert(self._starts, words, index)

    def find(self, text: str) -> list[int]:
        """Return the indices of the terms in ``text``, in order of appearance, with repetitions."""
        if self._has_branches:
            return self._match(text, limit=None)
        return [index for index in map(self._starts.get, split_words(text)) if index is not None]  # type: ignore[misc]

    def first_distinct(self, text: str, limit: int) -> list[int]:
        """Return the indices of the first ``limit`` distinct terms in ``text``: a record's bounded contribution."""
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
    """Return (index, position after it) of the longest term at ``position``; index -1 if there is none."""
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
