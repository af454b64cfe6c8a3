"""Which secrets a text holds: listed strings at word boundaries, and what detectors find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from understudy.corpus.secrets.detectors import Detector
from understudy.corpus.secrets.text import fold, pieces, tidy


class SecretFinder:
    """Finds secrets in texts. Private; its ``repr`` shows nothing.

    A string is in a text where it stands there, however it is spelt (case, NFKC, white space: :func:`fold`), and
    neither of its ends lies inside a word: "Ann" is in "Ann's" and in "Ann Smith", not in "Annual". All secrets are
    found, also those that overlap. A secret is known by its folded string, or where a detector knows all of that
    string by the detector's spelling: a telephone number in a list and one in a text are one secret. A string without
    a letter or a digit is no secret.

    Args:
        strings: secrets in the order of their public numbers.
        listed: further secrets, in any order.
        detectors: see :func:`~understudy.corpus.secrets.detectors.make_detectors`.
    """

    def __init__(
        self, strings: Iterable[str] = (), *, listed: Iterable[str] = (), detectors: Sequence[Detector] = ()
    ) -> None:
        self._detectors = tuple(detectors)
        self._keys: dict[str, str] = {}
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
        tidied = tidy(text)
        found = {fold(key) for detector in self._detectors for key in detector.find(tidied)}
        if self._keys:
            self._match(pieces(fold(tidied)), found)
        return found

    def key(self, string: str) -> str:
        """The key of a secret that is all of ``string``; empty where that is no secret."""
        folded = fold(string)
        known = self._keys.get(folded)
        if known is not None:
            return known
        if not any(character.isalnum() for character in folded):
            return ""
        tidied = tidy(string)
        spellings = (detector.whole(tidied) for detector in self._detectors)
        return next((fold(spelling) for spelling in spellings if spelling is not None), folded)

    def _add(self, string: str, lengths: dict[str, set[int]]) -> str:
        folded, key = fold(string), self.key(string)
        if key:
            self._keys[folded] = key
            cut = pieces(folded)
            lengths.setdefault(cut[0], set()).add(len(cut))
        return key

    def _match(self, cut: Sequence[str], found: set[str]) -> None:
        lookup, keys = self._lengths.get, self._keys
        for start, lengths in enumerate(map(lookup, cut)):
            if lengths is None:
                continue
            for length in lengths:
                key = keys.get("".join(cut[start : start + length]))
                if key is not None:
                    found.add(key)
