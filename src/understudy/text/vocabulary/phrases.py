"""Terms of one to three words that stand in texts, of which no list is known beforehand."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import bug
from understudy.base.lazy import pa, pc
from understudy.text.vocabulary.words import split_words

LONGEST_PHRASE = 3
LONGEST_WORD = 30
"""Bytes in UTF-8; no phrase goes across a longer one."""
LONGEST_TEXT = 1 << 20
"""Characters of a text that are read."""
_BREAK = re.compile(r"[\n\r\t\v\f()\[\]{}<>|\"“”„«»…–—。！？；：，、]+|[.,:;!?-]+(?!\w)")
_BROKEN = " xphrasexendx "
"""Stands for such marks: a word that no phrase goes across."""
_CONTRACTED = frozenset("aren couldn didn doesn hadn hasn haven isn mustn shouldn wasn weren wouldn".split())  # noqa: SIM905
"""What is left of English words before an apostrophe: it says nothing, and is in no list of stop words."""
_BITS = 21
_MASK = (1 << _BITS) - 1
_BESIDE_OTHERS, _ALONE = 1, 2


class PhraseFinder(dict[str, int]):
    """Finds words in a row of one sentence, none of which is a stop word or a lone letter.

    A mark that ends a sentence, or a part of one, divides phrases, unless a letter or digit follows it at once, as in
    "2.5". Numbers are words; alone they have two digits at least. A phrase is a code of its words, which the finder
    numbers as they come. 0 ends a phrase. One that met 2^21 would give two phrases one code: whoever calls it replaces
    it long before, and it raises rather than do so.

    Args:
        listed: words that do not count alone.
        stop_words: as :func:`~understudy.text.vocabulary.terms.load_stop_words` reads them.
    """

    def __init__(self, listed: frozenset[str], stop_words: frozenset[str]) -> None:
        super().__init__({"": 0, _BROKEN.strip(): 0})
        self._listed, self._says_nothing = listed, stop_words | _CONTRACTED
        self._words, self._kinds, self._hashes = [""], array("b", [0]), array("Q", [0])

    def __repr__(self) -> str:
        return "<PhraseFinder>"  # without the private words that it met

    def __missing__(self, word: str) -> int:
        if len(word.encode()) > LONGEST_WORD:
            return 0
        kind = 0
        if word not in self._says_nothing and not (len(word) == 1 and "a" <= word <= "z"):
            alone = word not in self._listed and (len(word) > 1 or not word.isascii())
            kind = _BESIDE_OTHERS | (_ALONE if alone else 0)
        number = len(self._words)
        if number > _MASK:
            raise bug("A finder of phrases met more words than it has numbers for.")
        self[word] = number
        self._words.append(word)
        self._kinds.append(kind)
        self._hashes.append(int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()))
        return number

    def find(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """As often as they stand there: the places of the phrases' texts, their codes, and hashes of their words."""
        words: list[str] = []
        lengths = []
        for text in texts:
            said = split_words(_BREAK.sub(_BROKEN, text[:LONGEST_TEXT]))
            words += said
            words.append("")
            lengths.append(len(said) + 1)
        numbers = np.fromiter(map(self.__getitem__, words), dtype=np.int64, count=len(words))
        kinds = np.frombuffer(self._kinds, dtype=np.int8)[numbers]
        hashes = np.frombuffer(self._hashes, dtype=np.uint64)[numbers]
        places, found = np.repeat(np.arange(len(texts)), lengths), []
        for size in range(1, LONGEST_PHRASE + 1):
            fits = kinds & (_ALONE if size == 1 else _BESIDE_OTHERS)
            for ahead in range(1, size):
                fits = fits[:-1] & kinds[ahead:]
            starts = np.flatnonzero(fits)
            code, hashed = numbers[starts], hashes[starts]
            for ahead in range(1, size):
                code |= numbers[starts + ahead] << (_BITS * ahead)
                hashed = mixed(hashed * np.uint64(3) + hashes[starts + ahead])
            found.append((places[starts], code, hashed))
        place, code, hashed = (np.concatenate(each) for each in zip(*found, strict=True))
        return place, code, hashed

    def codes(self, names: Sequence[str]) -> NDArray[np.int64]:
        words = (map(self.__getitem__, name.split(" ")) for name in names)
        found = (sum(number << (_BITS * ahead) for ahead, number in enumerate(each)) for each in words)
        return np.fromiter(found, dtype=np.int64, count=len(names))

    def in_order(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """``Int64[n]``: how to sort codes by name. A blank is below all that words are of: so word by word."""
        ranks, sortable = np.zeros(len(self._words), dtype=np.int64), np.zeros_like(codes)
        ranks[sorted(range(len(ranks)), key=self._words.__getitem__)] = np.arange(len(ranks))
        for ahead in range(LONGEST_PHRASE):
            sortable = sortable << _BITS | ranks[(codes >> (_BITS * ahead)) & _MASK]
        return np.argsort(sortable)

    def names(self, codes: NDArray[np.int64]) -> Any:
        """The phrases of these codes, as an Arrow array of strings."""
        words = pa.array([None, *self._words[1:]], pa.string())
        parts = [words.take(pa.array((codes >> (_BITS * ahead)) & _MASK)) for ahead in range(LONGEST_PHRASE)]
        return pc.binary_join_element_wise(*parts, " ", null_handling="skip")


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of 64-bit integers, one to one: the last steps of SplitMix64 (Steele, Lea and Flood 2014)."""
    found = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(found ^ (found >> np.uint64(31)))
