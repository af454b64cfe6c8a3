"""Public vocabularies: where the terms come from, and which are excluded."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path

from understudy.base.errors import ConfigError
from understudy.base.files import UnreadableText, cannot_read, lines_of, read_whole
from understudy.base.lazy import pa
from understudy.text.vocabulary.words import TermMatcher, split_words

BUILT_IN, ALL_LANGUAGES = "built-in", "all-languages"
LANGUAGES = frozenset(
    """aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja
    jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb
    nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq
    sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu""".split()  # noqa: SIM905
)
"""The codes of ISO 639-1."""
COMMON = 20_000
"""Words of the English list, by frequency, that count as common: among all its 82,500 are "etat" and "rubrik". The
labels of eight English tables had .57 of their words or more among these, those of ten in other languages .40 at most
(docs/decisions/061)."""
LARGEST = 5_000_000  # terms: the noise of each takes some microseconds


@dataclass(frozen=True)
class Vocabulary:
    """A public list of terms, the most frequent first if frequencies are known."""

    terms: tuple[str, ...]  # distinct by their words, stop words and one-letter terms left out
    source: str  # how it was named, for the statement
    sha256: str  # of the terms, for the statement

    @classmethod
    def of(cls, terms: Iterable[str], *, source: str, stop_words: frozenset[str]) -> Vocabulary:
        """Normalise ``terms``: drop empty, one-letter, purely numeric and stop-word terms and all but the first of
        those with the same words. ConfigError if nothing is left, or more than LARGEST terms.
        """
        kept: dict[tuple[str, ...], str] = {}
        for term in terms:
            words = tuple(split_words(term))
            if _is_useful(words, stop_words):
                kept.setdefault(words, " ".join(term.split()))
                if len(kept) > LARGEST:
                    raise ConfigError(
                        f"The vocabulary {source} contains more than {LARGEST} terms.",
                        "Give fewer terms, the most frequent ones.",
                    )
        if not kept:
            raise ConfigError(
                f"The vocabulary {source} is empty.", "Give a file with one term per line that are not all stop words."
            )
        return cls._hashed(tuple(kept.values()), source)

    @classmethod
    def _hashed(cls, terms: tuple[str, ...], source: str) -> Vocabulary:
        return cls(terms, source, hashlib.sha256("\n".join(terms).encode("utf-8")).hexdigest())

    def first(self, size: int) -> Vocabulary:
        """Return the vocabulary of the first ``size`` terms."""
        if size >= len(self.terms):
            return self
        return self._hashed(self.terms[:size], f"{self.source}, the first {size}")

    @cached_property
    def matcher(self) -> TermMatcher:
        """Return the matcher that finds the terms in texts."""
        return TermMatcher(self.terms)

    @property
    def public_input(self) -> dict[str, str]:
        """Return the source and SHA-256 of the vocabulary, for a statement."""
        return {"source": self.source, "sha256": self.sha256}


def load_vocabulary(source: str | Path = BUILT_IN, *, stop_words: str | Path | None = None) -> Vocabulary:
    """Load a public vocabulary.

    Args:
        source: ``built-in`` (the English word list of symspellpy, 78,000 words by frequency), or a file: text with one
            term per line (``.txt``, also ``.gz``, ``.bz2``, ``.xz``; "term<tab>frequency" lines are ordered by
            frequency), or ``.csv`` / ``.parquet`` with a column ``term`` (or ``word``) and optionally one of
            ``count``, ``frequency`` (high is frequent) or ``centibels`` (low in magnitude is frequent).
        stop_words: a file with one word per line; None for the built-in English list; ``none`` for no stop words;
            ``all-languages`` for those of every language that the package stop-words has, two letters of ISO 639-1
            for those of one language.

    Raises ConfigError: the file cannot be read or has no terms.
    """
    files = (_stamp(source), _stamp(stop_words))
    return _load(str(source), None if stop_words is None else str(stop_words), files)


@lru_cache(maxsize=4)
def _load(source: str, stop_words: str | None, _files: object) -> Vocabulary:
    """Load a vocabulary. Cached, because a run needs it at every step; read again when a file has changed."""
    terms = built_in_terms() if source == BUILT_IN else _read_terms(Path(source))
    name = "built-in (English words of symspellpy)" if source == BUILT_IN else Path(source).name
    return Vocabulary.of(terms, source=name, stop_words=load_stop_words(stop_words))


def _stamp(file: str | Path | None) -> tuple[int, int, int] | None:
    try:
        status = Path(file or "").stat()
    except OSError:
        return None  # a word such as ``built-in``, or a file that cannot be read
    return status.st_ino, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=1)
def built_in_terms() -> tuple[str, ...]:
    """Return the English words of symspellpy's frequency dictionary (MIT), the most frequent first.

    It was counted on the web. Slurs and obscenities (``offensive_en.txt``) are left out, and rare words that are only
    names of persons and places (``names_en.txt``, from SCOWL): texts hardly have them, but noise would raise some.
    """
    text = resources.files("symspellpy").joinpath("frequency_dictionary_en_82_765.txt").read_text("utf-8-sig")
    left_out = frozenset(_packaged("names_en.txt")) | _offensive()[0]
    listed = (line.split(" ", 1)[0] for line in text.splitlines())
    return tuple(term for term in listed if term not in left_out and not _offensive()[1].search(term))


def _packaged(name: str) -> list[str]:
    lines = resources.files(__package__).joinpath(name).read_text("utf-8").splitlines()
    return [word for line in lines if not line.startswith("#") for word in line.split()]


@lru_cache(maxsize=1)
def _offensive() -> tuple[frozenset[str], re.Pattern[str]]:
    """Return words, and parts of words (marked by a star), of ``offensive_en.txt``."""
    listed = _packaged("offensive_en.txt")
    words = frozenset(word for word in listed if not word.endswith("*"))
    return words, re.compile("|".join(word[:-1] for word in listed if word.endswith("*")))


@lru_cache(maxsize=4)
def _unwanted(tongue: str) -> frozenset[str]:
    """Return the list of a language (ISO 639-1) of the package glin-profanity (MIT licence), and the English one."""
    folder = resources.files("glin_profanity.data").joinpath("dictionaries")
    files = (folder.joinpath(f"{_PROFANE[code]}.json") for code in {"en", tongue} & _PROFANE.keys())
    listed = (word for file in files for word in json.loads(file.read_text("utf-8"))["words"])
    spelled = (word for word in listed if re.sub(r"[\s-]", "", word).isalpha())  # without "a$$", which splits into "a"
    return _offensive()[0] | {" ".join(split_words(word)) for word in spelled}


_PROFANE = {
    **{"ar": "arabic", "zh": "chinese", "cs": "czech", "da": "danish", "nl": "dutch", "en": "english"},
    **{"eo": "esperanto", "fi": "finnish", "fr": "french", "de": "german", "hi": "hindi", "hu": "hungarian"},
    **{"it": "italian", "ja": "japanese", "ko": "korean", "no": "norwegian", "fa": "persian", "pl": "polish"},
    **{"pt": "portuguese", "ru": "russian", "es": "spanish", "sv": "swedish", "th": "thai", "tr": "turkish"},
}


def is_unwanted(term: str, tongue: str = "en") -> bool:
    """Return whether ``term`` or one of its words is in a public list of obscenities, slurs and sexual words. A table
    for customers should have such a term only if the texts are full of it.

    >>> is_unwanted("Sex"), is_unwanted("sextant"), is_unwanted("virtual card")
    (True, False, False)
    """
    words = split_words(term)
    listed, (_, stem) = _unwanted(tongue), _offensive()
    return " ".join(words) in listed or any(word in listed or stem.search(word) for word in words)


def load_stop_words(source: str | Path | None) -> frozenset[str]:
    """Return the built-in English list for None or ``built-in``, no words for ``none``, else the lines of a file.

    For the code of a language (ISO 639-1) the list of the package stop-words (BSD licence) is added to the English one;
    for ``all-languages``, and for a language that the package does not have, those of all its 33 languages.
    """
    lines: list[str] = []
    languages = stop_word_languages(str(source))
    if source in (None, BUILT_IN) or languages:
        lines = resources.files(__package__).joinpath("stop_words_en.txt").read_text("utf-8").split("\n")
    elif str(source) != "none":
        lines = _read_lines(Path(source))
    if languages:
        from stop_words import get_stop_words

        lines += [word for language in languages for word in get_stop_words(language)]
    return frozenset(word for line in lines for word in split_words(line))


_listed = lru_cache(maxsize=4)(load_stop_words)


def is_telling(term: str, tongue: str = "en") -> bool:
    """Return whether ``term`` has content: whether one of its words is in no stop word list of its language, of which
    the package stop-words has longer ones than the built-in list.

    >>> is_telling("know"), is_telling("which"), is_telling("guitar"), is_telling("looking for strings")
    (False, False, True, True)
    """
    return not set(split_words(term)) <= _listed(tongue)


def stop_word_languages(source: str | None) -> tuple[str, ...]:
    """Return the languages whose stop words ``source`` names; none for a file or the built-in English list."""
    if source != ALL_LANGUAGES and source not in LANGUAGES:
        return ()
    from stop_words import LANGUAGE_MAPPING

    code = _ALIASES.get(source, source)
    return (code,) if code in LANGUAGE_MAPPING else tuple(sorted(LANGUAGE_MAPPING))


_ALIASES = {"no": "nb", "nn": "nb"}
"""Codes of languages that the package lists under another code."""


@lru_cache(maxsize=1)
def _english() -> frozenset[str]:
    return frozenset(built_in_terms()) | load_stop_words(None)


def is_english(text: str) -> bool:
    """Return whether at least half of the distinct words of ``text``, of its first 2,000 characters, are in the English
    list. Of texts in other languages some 20 % are; numbers do not count."""
    words = {word for word in split_words(text[:2000]) if word.isalpha() and len(word) > 1}
    return bool(words) and 2 * len(words & _english()) >= len(words)


def _is_useful(words: tuple[str, ...], stop_words: frozenset[str]) -> bool:
    """Return whether at least one word is not a stop word, a number, or a lone ASCII letter."""
    return any(
        word not in stop_words and not word.isdigit() and (len(word) > 1 or not word.isascii()) for word in words
    )


def _read_terms(path: Path) -> list[str]:
    if path.suffix in (".parquet", ".csv"):
        return _read_table(path)
    lines = _read_lines(path)
    rows = [line.rsplit("\t", 1) for line in lines if line.strip()]
    if rows and all(len(row) == 2 and _is_number(row[1]) for row in rows):
        rows.sort(key=lambda row: -float(row[1]))
    return [row[0] for row in rows]


def _read_lines(path: Path) -> list[str]:
    openers = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    try:
        return lines_of(read_whole(path, opener=openers.get(path.suffix, open)))  # type: ignore[arg-type]
    except (EOFError, lzma.LZMAError, zlib.error, UnreadableText) as error:
        raise cannot_read(
            f"The file {path.name}", error, "Give an existing UTF-8 file with one term per line."
        ) from None


def _read_table(path: Path) -> list[str]:
    import pyarrow.csv
    import pyarrow.parquet

    try:
        file = pa.BufferReader(read_whole(path))
        table = pyarrow.csv.read_csv(file) if path.suffix == ".csv" else pyarrow.parquet.read_table(file)
    except (OSError, pa.ArrowInvalid, MemoryError, UnreadableText) as error:
        raise cannot_read(f"The vocabulary {path.name}", error, "Give a readable CSV or Parquet file.") from None
    name = next((name for name in ("term", "word", "name") if name in table.column_names), None)
    if name is None:
        raise ConfigError(f"The vocabulary {path.name} has no column 'term'.", "Name the column of terms 'term'.")
    terms = [str(term) for term in table.column(name).to_pylist() if term is not None]
    for column, sign in (("count", -1), ("frequency", -1), ("centibels", 1)):
        if column in table.column_names and len(terms) == table.num_rows:
            values = table.column(column).to_pylist()
            if not all(value is None or _is_number(str(value)) for value in values):
                raise ConfigError(
                    f"The column {column!r} of the vocabulary {path.name} contains something that is not a number.",
                    "Give numbers, or rename the column.",
                )
            weights = [sign * abs(float(value or 0)) for value in values]
            return [terms[i] for i in sorted(range(len(terms)), key=weights.__getitem__)]
    return terms


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
