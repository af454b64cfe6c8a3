"""Which secrets a text holds: listed strings at word boundaries, and what detectors find."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice

from understudy.corpus.secrets.detectors import Detector
from understudy.corpus.spelling import MARK, fold, marked, pieces, readings, tidy

_Forms = dict[str, list[tuple[frozenset[int], set[str]]]]
"""By its characters but blanks: where a secret has its blanks, and the keys of those that are spelt so."""


class SecretFinder:
    """Finds secrets in texts. Private; its ``repr`` shows nothing.

    A string is in a text where it stands there, however it is spelt (case, NFKC, white space: :func:`fold`), and
    neither of its ends lies inside a word: "Ann" is in "Ann's" and in "Ann Smith", not in "Annual". An invisible
    character, in a text or in a secret, may be nothing and may be a blank: what is found either way is found. All
    secrets are found, also those that overlap. A secret is known by its folded string, or where a detector knows all of
    that string by the detector's spelling: a telephone number in a list and one in a text are one secret. A string
    without a letter or a digit is no secret.

    Args:
        strings: secrets in the order of their public numbers.
        listed: further secrets, in any order.
        detectors: see :func:`~understudy.corpus.secrets.detectors.make_detectors`.
    """

    def __init__(
        self, strings: Iterable[str] = (), *, listed: Iterable[str] = (), detectors: Sequence[Detector] = ()
    ) -> None:
        self._detectors = tuple(detectors)
        self._own: dict[str, str] = {}
        self._forms: dict[str, set[str]] = {}
        lengths: dict[str, set[int]] = {}
        self._numbered = tuple(dict.fromkeys(key for string in strings if (key := self._add(string, lengths))))
        for string in listed:
            self._add(string, lengths)
        self._lengths = {word: tuple(sorted(several)) for word, several in lengths.items()}

    @property
    def numbered(self) -> tuple[str, ...]:
        """The keys of ``strings``, each once: key i is secret i. Private."""
        return self._numbered

    def __repr__(self) -> str:
        return "SecretFinder()"

    def find(self, text: str) -> set[str]:
        """The keys of the secrets in ``text``, in time linear in its length."""
        found: set[str] = set()
        several = readings(text)
        for reading in several:
            tidied = tidy(reading)
            found.update(fold(key) for detector in self._detectors for key in detector.find(tidied))
            if self._forms:
                self._match(pieces(fold(tidied)), found)
        if self._forms and len(several) > 1:
            self._match_through(pieces(fold(marked(text))), found)
        return found

    def key(self, string: str) -> str:
        """The key of a secret that is all of ``string``; empty where that is no secret."""
        folded = fold(string)
        known = self._own.get(folded)
        if known is not None:
            return known
        if not any(character.isalnum() for character in folded):
            return ""
        tidied = tidy(string)
        spellings = (detector.whole(tidied) for detector in self._detectors)
        return next((fold(spelling) for spelling in spellings if spelling is not None), folded)

    def keys(self, string: str) -> set[str]:
        """The keys of all secrets that are all of ``string``, read in any way."""
        found = {key for reading in readings(string) if (key := self.key(reading))}
        return found.union(*(self._forms.get(fold(reading), ()) for reading in readings(string)))

    def _add(self, string: str, lengths: dict[str, set[int]]) -> str:
        key = self.key(string)
        if key:
            self._own[fold(string)] = key
            for reading in readings(string):
                folded = fold(reading)
                self._forms.setdefault(folded, set()).add(key)
                cut = pieces(folded)
                lengths.setdefault(cut[0], set()).add(len(cut))
        return key

    def _match(self, cut: Sequence[str], found: set[str]) -> None:
        lookup, forms = self._lengths.get, self._forms
        for start, lengths in enumerate(map(lookup, cut)):
            if lengths is None:
                continue
            for length in lengths:
                keys = forms.get("".join(cut[start : start + length]))
                if keys is not None:
                    found |= keys

    def _match_through(self, cut: Sequence[str], found: set[str]) -> None:
        """Match with each :data:`MARK` read as nothing or as a blank, whatever the others are read as."""
        spelled, in_order = self._without_blanks
        for start in range(len(cut)):
            if cut[start] in (" ", MARK):
                continue
            run, blanks, marks = "", set[int](), set[int]()
            for piece in islice(cut, start, None):
                if piece == " ":
                    blanks.add(len(run))
                elif piece == MARK:
                    marks.add(len(run))
                else:
                    run += piece
                    place = bisect_left(in_order, run)
                    if place == len(in_order) or not in_order[place].startswith(run):
                        break
                    for own, keys in spelled.get(run, ()):
                        if blanks <= own <= blanks | marks:
                            found |= keys

    @cached_property
    def _without_blanks(self) -> tuple[_Forms, list[str]]:
        """Every secret without its blanks, and these spellings in order."""
        spelled: _Forms = {}
        for folded, keys in self._forms.items():
            words = folded.split(" ")
            ends = [sum(map(len, words[:count])) for count in range(1, len(words))]
            spelled.setdefault("".join(words), []).append((frozenset(ends), keys))
        return spelled, sorted(spelled)
