"""Which record holds which secret: the cap on records of one secret, and the public input of SecPE's public mode."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.files import UnreadableText, atomic_file, read_lines
from understudy.base.untrusted import leaves
from understudy.corpus.corpus import Corpus
from understudy.corpus.secrets.detectors import make_detectors
from understudy.corpus.secrets.finder import SecretFinder

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def secret_finder(corpus: Corpus, *, file: str | Path | None = None, detectors: Sequence[str] = ()) -> SecretFinder:
    """The finder of all secrets of a table: of its secrets columns, of a file, and of detectors.

    Where the corpus has secrets columns their strings are collected in a pass of its own.
    Memory: O(distinct secrets). ``file`` is a private file in UTF-8 with one secret per line.

    Raises:
        ConfigError: no secret is named in any of the ways, or a detector is unknown.
        CorpusError: the file or the table cannot be read.
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
    """For each record in the table's order the keys of the secrets that it holds. Private.

    It holds what the finder finds in its text, of several columns in every value, and what its own row lists.
    """
    is_json = bool(corpus.schema.record_columns)
    for batch in corpus.batches():
        listed = batch.secrets or [[] for _ in batch.texts]
        for text, strings in zip(batch.texts, listed, strict=True):
            if is_json:  # in JSON "\\n" and '\\"' would be parts of words
                text = "\n".join(leaves(list(json.loads(text).values()), everything=True))
            found = finder.find(corpus.schema.form.contents(text, everything=True))
            for string in strings:
                found |= finder.keys(string)
            yield found


def records_per_secret(corpus: Corpus, finder: SecretFinder) -> Counter[str]:
    """How many records hold each secret, by its key. Private. One pass; memory O(distinct secrets)."""
    counts: Counter[str] = Counter()
    for found in secrets_of_records(corpus, finder):
        counts.update(found)
    return counts


def check_records_per_secret(corpus: Corpus, finder: SecretFinder, max_records: int) -> None:
    """Check that no secret is in more than ``max_records`` records, as was declared; else a CorpusError. One pass.

    No record is ever dropped to fix this: one secret's records would displace another's.
    """
    if max(records_per_secret(corpus, finder).values(), default=0) > max_records:
        raise CorpusError(
            "A secret is in more records than was declared.",
            "Declare more with --max-records-per-secret (by what is known beyond this table), or take strings that are "
            "no secrets out of the secrets; `understudy secrets count` writes the counts to a private file.",
        )


def read_secrets(file: Path) -> list[str]:
    """The secrets of a file with one per line."""
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
    """Which record holds which secret. Holds numbers, never a string.

    Args:
        n_records: number of records; they are numbered from 0 in the table's order.
        n_secrets: number of secrets, numbered from 0.
        records: ``Int64[pairs]``, in ascending order.
        secrets: ``Int64[pairs]``: record ``records[i]`` holds secret ``secrets[i]``; ascending within a record.

    Raises a ValueError where a number is out of range, or the pairs are not in order, each once.
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
            raise ValueError("expected two arrays of one length, and no negative sizes")
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
        """SHA-256 of the content, whatever the file around it: 64 hexadecimal digits."""
        content = hashlib.sha256(f"{FORMAT} {VERSION} {self.n_records} {self.n_secrets}\n".encode())
        for numbers in (self.records, self.secrets):
            content.update(numbers.astype("<i8").tobytes())
        return content.hexdigest()

    def to_csr(self) -> csr_array:
        """The 0/1 matrix ``Float64[n_secrets, n_records]``: a row per secret, as a linear program's constraints."""
        from scipy.sparse import csr_array

        ones = np.ones(len(self.records))
        return csr_array((ones, (self.secrets, self.records)), shape=(self.n_secrets, self.n_records))

    def write(self, path: str | Path) -> None:
        """Write a Parquet file, whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

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
        """Read what :meth:`write` wrote; ConfigError where there is none, or it is damaged or of a newer version."""
        import pyarrow as pa
        import pyarrow.parquet as pq

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
            f"{Path(path).name!r} is no incidence file, or damaged.", "Make one with `understudy secrets incidence`."
        )


def incidence(corpus: Corpus, finder: SecretFinder) -> Incidence:
    """The incidence of the finder's secrets in a table. One pass; memory O(pairs).

    Secrets of the finder's ``strings`` have the first numbers, in their order. All others follow in the order of the
    sets of records that hold them, so that no number says anything about a secret's value; secrets with the same
    records are alike.
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


def check_incidence(corpus: Corpus, finder: SecretFinder, declared: Incidence) -> None:
    """Check that a table has exactly the incidence that was declared public, in this order of rows: else a CorpusError.

    One pass.
    """
    if incidence(corpus, finder).sha256 != declared.sha256:
        raise CorpusError(
            "The table does not have the incidence of secrets that was declared public.",
            "Make the file with `understudy secrets incidence` from this table, with the same options.",
        )
