"""Terms of one to three words that stand in texts and in no list: words in a row, of which none needs to be known."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.text.vocabulary.words import split_words

LONGEST_PHRASE = 3
LONGEST_WORD = 30
"""Bytes in UTF-8; no phrase goes across a longer one. So a phrase has at most 92 bytes."""
_BREAK = re.compile(r"[\n\r\t\v\f()\[\]{}<>|\"“”„«»…–—。！？；：，、]+|[.,:;!?-]+(?!\w)")
_BROKEN = " xphrasexendx "
"""Stands for such marks: a word that no phrase goes across."""
_BITS = 21
_MOST_WORDS = 1 << _BITS
_VERBS = (
    "ai",
    "are",
    "could",
    "did",
    "does",
    "had",
    "has",
    "have",
    "is",
    "must",
    "need",
    "should",
    "was",
    "were",
    "would",
)
_CONTRACTED = frozenset(f"{verb}n" for verb in _VERBS)
"""What split_words leaves of English words with an apostrophe: they say nothing, and are in no list of stop words."""
_INNER, _EDGE, _ALONE = 1, 2, 4
_AT_ONCE = 1 << 20  # characters
_MOST_AT_ONCE = 1 << 12  # texts


class Unlisted:
    """What counts as a phrase: words in a row of one sentence that do not begin or end with a stop word or a lone
    letter, and are no term of a public list.

    A mark that ends a sentence or a part of one divides phrases, unless a letter or digit follows it at once, as in
    "2.5" or "10:30". Numbers are words; alone they have two digits at least.

    Args:
        listed: the terms of the public list.
        stop_words: as :func:`~understudy.text.vocabulary.terms.load_stop_words` reads them.
    """

    def __init__(self, listed: Iterable[str], *, stop_words: frozenset[str]) -> None:
        terms = [tuple(split_words(term)) for term in listed]
        self.single = frozenset(words[0] for words in terms if len(words) == 1)
        self.stop_words = stop_words
        several = [_hash_of(words) for words in terms if 1 < len(words) <= LONGEST_PHRASE]
        self.several = np.unique(np.array(several, dtype=np.uint64))

    def kind(self, word: str) -> int:
        if word in self.stop_words or word in _CONTRACTED or (len(word) == 1 and word.isascii() and word.isalpha()):
            return _INNER
        alone = word not in self.single and (len(word) > 1 or not word.isascii())
        return _INNER | _EDGE | (_ALONE if alone else 0)


class Found(NamedTuple):
    """Phrases in some texts, as often as they stand there.

    Args:
        place: ``Int64[n]``: of the text, in ascending order for phrases of the same number of words.
        code: ``Int64[n]``: of the phrase, in the finder that found it.
        hash: ``UInt64[n]``: of the phrase's words, the same everywhere.
    """

    place: NDArray[np.int64]
    code: NDArray[np.int64]
    hash: NDArray[np.uint64]


class PhraseFinder(dict[str, int]):
    """Finds phrases, as codes of the words that it met: it numbers them as they come. 0 ends a phrase."""

    def __init__(self, unlisted: Unlisted) -> None:
        super().__init__({"": 0, _BROKEN.strip(): 0})
        self._unlisted = unlisted
        self._words = [""]
        self._kinds = np.zeros(1 << 12, dtype=np.int8)
        self._hashes = np.zeros(1 << 12, dtype=np.uint64)

    def __missing__(self, word: str) -> int:
        if len(word.encode()) > LONGEST_WORD:
            return 0
        number = len(self._words)
        if number == len(self._kinds):
            self._kinds = np.concatenate([self._kinds, np.zeros_like(self._kinds)])
            self._hashes = np.concatenate([self._hashes, np.zeros_like(self._hashes)])
        self._words.append(word)
        self._kinds[number] = self._unlisted.kind(word)
        self._hashes[number] = _hash_of((word,))
        self[word] = number
        return number

    def find(self, texts: Sequence[str]) -> Found:
        words: list[str] = []
        lengths = []
        for text in texts:
            said = split_words(_BREAK.sub(_BROKEN, text))
            words += said
            words.append("")
            lengths.append(len(said) + 1)
        numbers = np.fromiter(map(self.__getitem__, words), dtype=np.int64, count=len(words))
        if len(self) > _MOST_WORDS:
            raise OverflowError("more words than codes have room for")  # by far more than one call can bring
        kinds, hashes = self._kinds[numbers], self._hashes[numbers]
        places = np.repeat(np.arange(len(texts)), lengths)
        found = [self._of(np.flatnonzero(kinds & _ALONE), places, numbers, hashes, 1)]
        edge, inner = (kinds & _EDGE) > 0, (kinds & _INNER) > 0
        found.append(self._of(np.flatnonzero(edge[:-1] & edge[1:]), places, numbers, hashes, 2))
        found.append(self._of(np.flatnonzero(edge[:-2] & inner[1:-1] & edge[2:]), places, numbers, hashes, 3))
        return Found(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def _of(
        self,
        starts: NDArray[np.int64],
        places: NDArray[np.int64],
        numbers: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        words: int,
    ) -> Found:
        code, hashed = numbers[starts], hashes[starts]
        for ahead in range(1, words):
            code |= numbers[starts + ahead] << (_BITS * ahead)
            hashed = _joined(hashed, hashes[starts + ahead])
        found = Found(places[starts], code, hashed)
        if words == 1 or not len(self._unlisted.several):
            return found
        at = np.searchsorted(self._unlisted.several, hashed)
        new = self._unlisted.several[np.minimum(at, len(self._unlisted.several) - 1)] != hashed
        return Found(*(each[new] for each in found))

    def codes(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Of phrases that a finder named."""
        words = (map(self.__getitem__, name.split(" ")) for name in names)
        found = (sum(number << (_BITS * ahead) for ahead, number in enumerate(each)) for each in words)
        return np.fromiter(found, dtype=np.int64, count=len(names))

    def in_order(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """``Int64[n]``: the order in which the names of these codes are sorted. A blank is below all that words are of:
        so by the first words, and of those with the same first words by the second ones.
        """
        ranks = np.zeros(len(self._words), dtype=np.int64)
        ranks[sorted(range(1, len(ranks)), key=self._words.__getitem__)] = np.arange(1, len(ranks))
        parts = ((codes >> (_BITS * ahead)) & (_MOST_WORDS - 1) for ahead in range(LONGEST_PHRASE))
        sortable = np.zeros_like(codes)
        for part in parts:
            sortable = sortable << _BITS | ranks[part]
        return np.argsort(sortable)

    def names(self, codes: NDArray[np.int64]) -> Any:
        """The phrases of these codes, as an Arrow array of strings."""
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pa.array([None, *self._words[1:]], pa.string())
        numbers = ((codes >> (_BITS * ahead)) & (_MOST_WORDS - 1) for ahead in range(LONGEST_PHRASE))
        parts = [words.take(pa.array(each)) for each in numbers]
        return pc.binary_join_element_wise(*parts, " ", null_handling="skip")


def in_pieces(texts: Sequence[str]) -> Iterator[slice]:
    """A few texts at a time, of so many characters together that memory does not grow with their number."""
    first, size = 0, 0
    for place, text in enumerate(texts):
        if place > first and (size + len(text) > _AT_ONCE or place - first == _MOST_AT_ONCE):
            yield slice(first, place)
            first, size = place, 0
        size += len(text)
    if first < len(texts):
        yield slice(first, len(texts))


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of 64-bit integers, one to one: the last steps of SplitMix64 (Steele, Lea and Flood 2014)."""
    found = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(found ^ (found >> np.uint64(31)))


def _joined(first: NDArray[np.uint64], following: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return mixed(first * np.uint64(3) + following)


def _hash_of(words: Sequence[str]) -> int:
    hashes = [np.frombuffer(hashlib.blake2b(word.encode(), digest_size=8).digest(), dtype="<u8") for word in words]
    found = hashes[0]
    for following in hashes[1:]:
        found = _joined(found, following)
    return int(found[0])
