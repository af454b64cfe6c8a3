"""A corpus that must not change while a run reads it again and again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from understudy.corpus.corpus import Batch, Corpus
from understudy.errors import CorpusError

_MODULUS = 1 << 256


class Contents:
    """Keyed hashes of all that rows hold (text, label, owner, secrets), in their order and whatever their order."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._total = 0
        self._chain = hashlib.blake2b(key=key, digest_size=32, person=b"order")

    def add(self, batch: Batch) -> None:
        """Count the rows of a batch in."""
        owners = batch.owners or [""] * len(batch.texts)
        secrets = batch.secrets or [[]] * len(batch.texts)
        for text, label, owner, held in zip(batch.texts, batch.labels.tolist(), owners, secrets, strict=True):
            parts = (text, str(label), owner, *held)
            row = b"".join(len(part).to_bytes(8) + part for part in (part.encode("utf-8") for part in parts))
            digest = hashlib.blake2b(row, key=self._key, digest_size=32, person=b"row").digest()
            self._total = (self._total + int.from_bytes(digest)) % _MODULUS
            self._chain.update(digest)

    @property
    def digest(self) -> str:
        """Of the rows in any order: 64 hexadecimal digits, which say nothing without the key."""
        total = self._total.to_bytes(32)
        return hashlib.blake2b(total, key=self._key, digest_size=32, person=b"rows").hexdigest()

    @property
    def in_order(self) -> str:
        """Of the rows in this order, likewise."""
        return self._chain.hexdigest()


def contents(corpus: Corpus, key: bytes) -> Contents:
    """The contents of a corpus. One pass."""
    found = Contents(key)
    for batch in corpus.batches():
        found.add(batch)
    return found


class VerifiedCorpus(Corpus):
    """The corpus whose :func:`contents` under ``key`` were charged: every pass sees at its end that it read the same
    rows in the same order (records are told by their places where the incidence of secrets is public).

    Checks are made and noise is sampled after a pass, so nothing is released of rows that nobody checked.
    """

    def __init__(self, corpus: Corpus, *, key: bytes, expected: Contents) -> None:
        self.__dict__.update(corpus.__dict__)  # the same open table
        self._corpus = corpus  # whose end is that of a temporary copy
        self._key = key
        self._expected = expected.in_order

    def batches(self, batch_size: int = 4096) -> Iterator[Batch]:
        """As :meth:`Corpus.batches`; a CorpusError at the end, too, if rows or order are not those that were
        charged.
        """
        found = Contents(self._key)
        for batch in super().batches(batch_size):
            found.add(batch)
            yield batch
        if found.in_order != self._expected:
            raise CorpusError(
                "The private data changed while the run was reading them.",
                "Stop modifying the file, or work on a copy; the same command resumes once the data are as they were.",
            )
