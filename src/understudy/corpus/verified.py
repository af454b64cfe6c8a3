"""Check that a corpus does not change while a run reads it several times."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from understudy.base.errors import CorpusError
from understudy.corpus.bad_rows import Noted
from understudy.corpus.bounding import PER_WORKER
from understudy.corpus.corpus import Batch, Corpus
from understudy.corpus.identity import TextsHash, keyed_number, multiset_digest
from understudy.privacy.measurement import Engine


@dataclass(frozen=True, repr=False)
class Contents:
    """Keyed hashes of a table's contents; they reveal nothing without the key.

    Attributes:
        digest: 64 hexadecimal digits, of the rows' contents (text, label, owner, cells, secrets), in any order.
        texts: of the texts only, as :attr:`TextsHash.digests`.
        bad_share: the share of all rows that were skipped, 0 to 1.
        clamped: by column how many values beyond its range count as its end.
        cells: the lowest hashes of the texts' cells, as :attr:`TextsHash.cells`.
        pieces: the table in parts, in order, each with the hash of its rows in their order.
    """

    digest: str
    texts: tuple[str, ...]
    pieces: tuple[tuple[Corpus, str], ...]
    bad_share: float = 0.0
    cells: tuple[int, ...] = ()
    clamped: Mapping[str, int] = field(default_factory=dict)


def _in_order(key: bytes) -> hashlib.blake2b:
    """Return a keyed hash of rows in their order, each preceded by its length."""
    return hashlib.blake2b(key=key, digest_size=32, person=b"order")


def _rows_of(batch: Batch) -> Iterator[bytes]:
    """Return the contents of each row, as bytes that are equal only for equal rows."""
    owners = batch.owners or [""] * len(batch.texts)
    secrets = batch.secrets or [[]] * len(batch.texts)
    cells = [""] * len(batch.texts) if batch.cells is None else map(str, batch.cells.tolist())
    for text, label, owner, held, row in zip(batch.texts, batch.labels.tolist(), owners, secrets, cells, strict=True):
        parts = (text, str(label), owner, row, *held)
        yield b"".join(len(part).to_bytes(8) + part for part in (part.encode("utf-8") for part in parts))


@dataclass(frozen=True, repr=False)
class _Found:
    """The contents of one piece: sums, the hash of its rows in order, and its bad rows; or that reading it failed."""

    total: int = 0
    texts: int | None = None
    in_order: str = ""
    rows: int = 0
    skipped: int = 0
    noted: tuple[Noted, ...] = ()
    failed: bool = False
    cells: tuple[int, ...] = ()
    clamped: Mapping[str, int] = field(default_factory=dict)


def contents(corpus: Corpus, key: bytes, engine: Engine | None = None) -> Contents:
    """Return the contents of a corpus, in one pass: piece by piece on the engine."""
    pieces = [corpus] if engine is None else corpus.pieces(PER_WORKER * engine.workers)
    found: list[_Found] = []
    if engine is None or len(pieces) == 1:
        found = [_contents_of(corpus, key)]
    else:
        found = list(engine.map(partial(_contents_of_piece, key=key), pieces))
        if any(each.failed for each in found):
            for _ in corpus.batches():  # reports what is wrong, wherever it is
                pass
            raise _changed()
        corpus.keep_bad_rows((each for piece in found for each in piece.noted), _clamped(found))
    texts = TextsHash(key, corpus.schema)
    for each in found:
        texts.add_total(each.texts)
        for number in each.cells:
            texts.cells.add(number)
    digest = multiset_digest(sum(each.total for each in found), key, b"rows")
    orders = (each.in_order for each in found)
    skipped = sum(each.skipped for each in found)
    share = skipped / max(1, skipped + sum(each.rows for each in found))
    parts = tuple(zip(pieces, orders, strict=True))
    return Contents(digest, texts.digests, parts, share, texts.cells.hashes, _clamped(found))


def _clamped(found: Iterable[_Found]) -> Mapping[str, int]:
    return sum((Counter(each.clamped) for each in found), Counter[str]())


def _contents_of(corpus: Corpus, key: bytes) -> _Found:
    total, rows, texts, order = 0, 0, TextsHash(key, corpus.schema), _in_order(key)
    for batch in corpus.batches():
        rows += len(batch.texts)
        texts.add(batch.texts)
        for row in _rows_of(batch):
            order.update(len(row).to_bytes(8) + row)
            total += keyed_number(row, key, b"row")
    noted, cells = tuple(corpus.noted or ()), texts.cells.hashes
    return _Found(
        total, texts.total, order.hexdigest(), rows, corpus.skipped, noted, cells=cells, clamped=corpus.clamped
    )


def _contents_of_piece(piece: Corpus, *, key: bytes) -> _Found:
    try:
        return _contents_of(piece, key)
    except CorpusError:
        return _Found(failed=True)


class VerifiedCorpus(Corpus):
    """A corpus that checks that the rows it reads are those that were charged for, by their hash with ``key``
    (:func:`contents`). Every pass, and every piece of one, checks at its end that rows and order are the
    same. The order matters if the incidence of secrets is public, because the incidence refers to records by their
    positions.

    Noise is sampled after a pass, so no result of unchecked rows is released.
    """

    def __init__(self, corpus: Corpus, *, key: bytes, expected: Contents) -> None:
        self.__dict__.update(corpus.__dict__)  # the same open table
        self.noted = None  # bad rows are kept once
        self._corpus = corpus  # its end removes a temporary copy
        self._key = key
        self.expected = expected

    def pieces(self, wanted: int) -> list[Corpus]:
        """Return the parts for which :func:`contents` stored a hash, each verified when read; ``wanted`` is ignored."""
        del wanted
        if len(self.expected.pieces) == 1:
            return [self]
        return [
            VerifiedCorpus(piece, key=self._key, expected=Contents("", (), ((piece, in_order),)))
            for piece, in_order in self.expected.pieces
        ]

    def batches(self, batch_size: int = 4096) -> Iterator[Batch]:
        """Yield batches as :meth:`Corpus.batches`; raises CorpusError at the end, too, if rows or order are not those
        that were charged.
        """
        pieces = self.pieces(1)
        if len(pieces) > 1:
            for piece in pieces:
                yield from piece.batches(batch_size)
            return
        found = _in_order(self._key)
        for batch in super().batches(batch_size):
            for row in _rows_of(batch):
                found.update(len(row).to_bytes(8) + row)
            yield batch
        ((_, expected),) = self.expected.pieces
        if found.hexdigest() != expected:
            raise _changed()


def _changed() -> CorpusError:
    return CorpusError(
        "The private data changed while the run was reading them.",
        "Stop modifying the file, or work on a copy; the same command resumes once the data are as they were.",
    )
