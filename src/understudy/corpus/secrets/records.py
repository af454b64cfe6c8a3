"""Which record of a table holds which secret, a record at a time, and the declared cap on records of one secret."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from understudy.corpus.corpus import Corpus
from understudy.corpus.secrets.detectors import make_detectors
from understudy.corpus.secrets.finder import SecretFinder
from understudy.errors import ConfigError, CorpusError
from understudy.files import UnreadableText, read_lines


def secret_finder(corpus: Corpus, *, file: str | Path | None = None, detectors: Sequence[str] = ()) -> SecretFinder:
    """The finder of all secrets of a table: of its secrets columns, of a file, and of detectors.

    Where the corpus has secrets columns their strings are collected in a pass of its own.
    Memory: O(distinct secrets).

    Args:
        corpus: the private table.
        file: a private file in UTF-8 with one secret a line; blank lines are none.
        detectors: their names.

    Raises:
        ConfigError: no secret is named in any of the ways, or a detector is unknown.
        CorpusError: the file or the table cannot be read.
    """
    if not corpus.schema.secrets and file is None and not detectors:
        raise ConfigError(
            "It is not said what the secrets are.",
            "Name columns (--secrets), a file (--secrets-file), or detectors (--secret-detectors).",
        )
    made = make_detectors(detectors)
    strings = [] if file is None else read_secrets(Path(file))
    return SecretFinder(strings, listed=_listed(corpus), detectors=made)


def secrets_of_records(corpus: Corpus, finder: SecretFinder) -> Iterator[set[str]]:
    """For each record in the table's order the keys of the secrets that it holds. Private.

    A record holds the secrets that the finder finds in its text, and those that its own row lists.
    Of a record made of several columns every value is searched.
    """
    is_json = bool(corpus.schema.record_columns)
    for batch in corpus.batches():
        listed = batch.secrets or [[] for _ in batch.texts]
        for text, strings in zip(batch.texts, listed, strict=True):
            if is_json:  # in JSON "\\n" and '\\"' would be parts of words
                text = "\n".join(_strings(list(json.loads(text).values())))
            found = finder.find(text)
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
    """Check that no secret is in more than ``max_records`` records, as was declared. One pass.

    Raises:
        CorpusError: one is. No record is ever dropped to mend this: one secret's records would displace another's.
    """
    if max(records_per_secret(corpus, finder).values(), default=0) > max_records:
        raise CorpusError(
            "A secret is in more records than was declared.",
            "Declare more with --max-records-per-secret (by what is known beyond this table), or take strings that are "
            "no secrets out of the secrets; `understudy secrets count` writes the counts to a private file.",
        )


def _listed(corpus: Corpus) -> Iterator[str]:
    if not corpus.schema.secrets:
        return
    for batch in corpus.batches():
        for strings in batch.secrets or ():
            yield from strings


def read_secrets(file: Path) -> list[str]:
    """The secrets of a file with one per line.

    Raises:
        CorpusError: it cannot be read.
    """
    try:
        return [line.strip() for line in read_lines(file) if line.strip()]
    except UnreadableText as error:
        raise CorpusError(
            f"The file of secrets cannot be read ({error}).", "Give a UTF-8 file with one secret per line."
        ) from None


def _strings(value: object) -> Iterator[str]:
    """Every string and number of a nested value, as text; names of inner fields too."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from _strings(each)
    else:
        yield value if isinstance(value, str) else json.dumps(value)
