"""Find the secrets of a table and the records that contain them, and check the declared cap on records per secret.

>>> from understudy.corpus import read_corpus
>>> from understudy.corpus.secrets import check_records_per_secret, incidence, secret_finder
>>> rows = [{"note": "Ann Smith, ann@example.org", "who": ["Ann"]}, {"note": "Seen with ANN.", "who": []}]
>>> corpus = read_corpus(rows, text="note", secrets="who")
>>> finder = secret_finder(corpus, detectors=["email"])
>>> check_records_per_secret(corpus, finder, 2)
>>> incidence(corpus, finder).to_csr().toarray().tolist()
[[1.0, 0.0], [1.0, 1.0]]
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.files import UnreadableText, atomic_file, read_lines
from understudy.base.lazy import pa, pq
from understudy.base.untrusted import leaves
from understudy.corpus.corpus import Corpus
from understudy.corpus.normalise import MARK, fold, marked, pieces, readings, tidy
from understudy.corpus.secrets.detectors import BUILT_IN, Detector, make_detectors

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "BUILT_IN",
    "Incidence",
    "SecretFinder",
    "check_records_per_secret",
    "incidence",
    "make_detectors",
    "records_per_secret",
    "secret_finder",
    "secrets_of_records",
]


_Forms = dict[str, list[tuple[frozenset[int], set[str]]]]
"""By a secret's characters without blanks: the places of its blanks, and the keys of secrets with this spelling."""


class SecretFinder:
    """Find secrets in texts. Private; its ``repr`` shows nothing.

    A string is in a text if it occurs there, however it is spelt (case, NFKC, white space: :func:`fold`), and
    neither of its ends is inside a word: "Ann" is in "Ann's" and in "Ann Smith", not in "Annual". An invisible
    character, in a text or in a secret, is read both as nothing and as a blank; matches of both readings count. All
    secrets are found, also those that overlap. A secret is identified by its folded string or, if a detector recognises
    the whole string, by the detector's spelling: a phone number in a list and one in a text are one secret. A string
    without a letter or a digit is not a secret.

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
        """Return the keys of ``strings`` without repetition: key i belongs to secret i. Private."""
        return self._numbered

    def __repr__(self) -> str:
        return "SecretFinder()"

    def find(self, text: str) -> set[str]:
        """Return the keys of the secrets in ``text``, in time linear in its length."""
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
        """Return the key of the secret that ``string`` is; empty if it is not a secret."""
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
        """Return the keys of all secrets that ``string`` can be read as."""
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
        """Add to ``found`` the secrets in ``cut`` if each :data:`MARK` may be read as nothing or as a blank,
        independently of the others."""
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
        """Return the secrets by their spelling without blanks, and the sorted list of these spellings."""
        spelled: _Forms = {}
        for folded, keys in self._forms.items():
            words = folded.split(" ")
            ends = [sum(map(len, words[:count])) for count in range(1, len(words))]
            spelled.setdefault("".join(words), []).append((frozenset(ends), keys))
        return spelled, sorted(spelled)


def secret_finder(corpus: Corpus, *, file: str | Path | None = None, detectors: Sequence[str] = ()) -> SecretFinder:
    """Return the finder of all secrets of a table: of its secrets columns, of a file, and of detectors.

    If the corpus has secrets columns, a separate pass collects their strings.
    Memory: O(distinct secrets). ``file`` is a private file in UTF-8 with one secret per line.
    """
    if not corpus.schema.secrets and file is None and not detectors:
        raise ConfigError(
            "No secrets are named.",
            "Name columns (--secrets), a file (--secrets-file), or detectors (--secret-detectors).",
        )
    made = make_detectors(detectors)
    strings = [] if file is None else read_secrets(Path(file))
    batches = corpus.batches() if corpus.schema.secrets else ()
    listed = (string for batch in batches for strings in batch.secrets or () for string in strings)
    return SecretFinder(strings, listed=listed, detectors=made)


def secrets_of_records(corpus: Corpus, finder: SecretFinder) -> Iterator[set[str]]:
    """Yield for each record in the table's order the keys of the secrets that it contains. Private.

    These are the secrets that the finder finds in its text (of several columns in every value) and those its row lists.
    """
    is_json = bool(corpus.schema.record_columns)
    for batch in corpus.batches():
        for text, _, _, strings, _ in batch.rows:
            if is_json:  # in JSON "\\n" and '\\"' would be parts of words
                text = "\n".join(leaves(list(json.loads(text).values()), everything=True))
            found = finder.find(corpus.schema.form.contents(text, everything=True))
            for string in strings:
                found |= finder.keys(string)
            yield found


def records_per_secret(corpus: Corpus, finder: SecretFinder) -> Counter[str]:
    """Return how many records contain each secret, by its key. Private. One pass; memory O(distinct secrets)."""
    counts: Counter[str] = Counter()
    for found in secrets_of_records(corpus, finder):
        counts.update(found)
    return counts


def check_records_per_secret(corpus: Corpus, finder: SecretFinder, max_records: int) -> None:
    """Check that no secret is in more than the declared ``max_records`` records; else a CorpusError. One pass.

    No record is ever dropped to fix this: one secret's records would displace another's.
    """
    if max(records_per_secret(corpus, finder).values(), default=0) > max_records:
        raise CorpusError(
            "A secret is in more records than the declared maximum.",
            "Declare more with --max-records-per-secret (by what is known beyond this table), or remove strings that "
            "are not secrets from the list; `understudy secrets count` writes the counts to a private file.",
        )


def read_secrets(file: Path) -> list[str]:
    """Return the secrets of a file with one per line."""
    try:
        return [line.strip() for line in read_lines(file) if line.strip()]
    except UnreadableText as error:
        raise CorpusError(
            f"The file of secrets cannot be read ({error}).", "Give a UTF-8 file with one secret per line."
        ) from None


FORMAT = "understudy-secret-incidence"
VERSION = 1
_METADATA = b"understudy"


@dataclass(frozen=True, eq=False, repr=False)
class Incidence:
    """The records that contain each secret. It stores numbers, never a string.

    Args:
        n_records: number of records; they are numbered from 0 in the table's order.
        n_secrets: number of secrets, numbered from 0.
        records: ``Int64[pairs]``, in ascending order.
        secrets: ``Int64[pairs]``: record ``records[i]`` contains secret ``secrets[i]``; ascending within a record.

    Raises ValueError if a number is out of range, or the pairs are not in order, each once.
    """

    n_records: int
    n_secrets: int
    records: NDArray[np.int64]
    secrets: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("records", "secrets"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int64))
        records, secrets = self.records, self.secrets
        if records.ndim != 1 or records.shape != secrets.shape or min(self.n_records, self.n_secrets) < 0:
            raise ValueError("expected two arrays of the same length, and sizes of 0 or more")
        for numbers, size in ((records, self.n_records), (secrets, self.n_secrets)):
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
                raise ValueError("a number is out of range")
        ahead = np.diff(records)
        if np.any(ahead < 0) or np.any((ahead == 0) & (np.diff(secrets) <= 0)):
            raise ValueError("the pairs are not in order, each once")

    def __repr__(self) -> str:
        return f"Incidence(sha256={self.sha256[:12]})"

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 of the content, independent of the file format: 64 hexadecimal digits."""
        content = hashlib.sha256(f"{FORMAT} {VERSION} {self.n_records} {self.n_secrets}\n".encode())
        for numbers in (self.records, self.secrets):
            content.update(numbers.astype("<i8").tobytes())
        return content.hexdigest()

    def to_csr(self) -> csr_array:
        """Return the 0/1 matrix ``Float64[n_secrets, n_records]``: a row per secret, as linear program constraints."""
        from scipy.sparse import csr_array

        ones = np.ones(len(self.records))
        return csr_array((ones, (self.secrets, self.records)), shape=(self.n_secrets, self.n_records))

    def write(self, path: str | Path) -> None:
        """Write a Parquet file atomically."""
        about = {
            "format": FORMAT,
            "version": VERSION,
            "records": self.n_records,
            "secrets": self.n_secrets,
            "sha256": self.sha256,
        }
        table = pa.table({"record": self.records, "secret": self.secrets})
        with atomic_file(Path(path)) as stream:
            pq.write_table(table.replace_schema_metadata({_METADATA: json.dumps(about)}), stream)

    @classmethod
    def read(cls, path: str | Path) -> Incidence:
        """Read what :meth:`write` wrote; ConfigError if the file is missing, damaged or of a newer version."""
        try:
            if not Path(path).is_file():  # a pipe would be waited for
                raise ValueError
            with pq.ParquetFile(path) as file:
                table = file.read()
            about: dict[str, Any] = json.loads((table.schema.metadata or {})[_METADATA])
            if about["format"] == FORMAT and about["version"] > VERSION:
                raise ConfigError(
                    f"The incidence file {Path(path).name!r} is of a newer version.", "Install a newer understudy."
                )
            columns = (table.column(name).to_numpy() for name in ("record", "secret"))
            made = cls(int(about["records"]), int(about["secrets"]), *columns)
            if about["format"] == FORMAT and about["sha256"] == made.sha256:
                return made
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            pass
        raise ConfigError(
            f"{Path(path).name!r} is not an incidence file, or is damaged.",
            "Make one with `understudy secrets incidence`.",
        )


def incidence(corpus: Corpus, finder: SecretFinder) -> Incidence:
    """Return the incidence of the finder's secrets in a table. One pass; memory O(pairs).

    Secrets of the finder's ``strings`` have the first numbers, in their order. All others follow in the order of the
    sets of records that contain them, so that no number reveals anything about a secret's value; secrets with the same
    records are interchangeable.
    """
    held: dict[str, array[int]] = {key: array("q") for key in finder.numbered}
    n_records = 0
    for n_records, found in enumerate(secrets_of_records(corpus, finder), 1):
        for key in found:
            held.setdefault(key, array("q")).append(n_records - 1)
    several = list(held.values())
    numbered = len(finder.numbered)
    several[numbered:] = sorted(several[numbered:])
    records = np.concatenate([np.frombuffer(one, dtype=np.int64) for one in several if one] or [np.empty(0, np.int64)])
    secrets = np.repeat(np.arange(len(several)), [len(one) for one in several])
    order = np.lexsort((secrets, records))
    return Incidence(n_records, len(several), records[order], secrets[order])
