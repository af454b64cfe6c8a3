"""Made-up private tables of any size, an embedder and a chat model of hashes: speed needs no sense.

Words are those of the built-in list by Zipf's law. The first ``_COMMON`` are common to all labels; the rarer ones are
shifted from label to label, so that labels differ.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from understudy.models.types import ChatRequest, Completion
from understudy.text.vocabulary.terms import built_in_terms

SEED = 0
LABELS = 4
"""Of a table, where no other number is asked for."""
DIMENSION = 384
"""Of an embedding, as the built-in model's."""
_COMMON, _SHIFT = 200, 5_000
_SHORTEST, _LONGEST = 20, 60  # words of a text
_AT_ONCE = 50_000  # rows of a row group
_RECORDS_PER_OWNER, _RECORDS_PER_SECRET, _ONE_IN = 10, 5, 10  # one record in ten holds a secret
_TABLE = 4096


def label_names(count: int) -> list[str]:
    return [f"label {number}" for number in range(count)]


def texts(count: int, *, labels: int = LABELS, seed: int = SEED) -> Iterator[tuple[list[str], NDArray[np.int64]]]:
    """Texts of 20 to 60 words and the numbers of their labels, many at a time; the same for the same seed."""
    words = np.array(built_in_terms(), dtype=object)
    cumulative = np.cumsum(1 / np.arange(1, len(words) + 1))
    source = np.random.default_rng(seed)
    for start in range(0, count, _AT_ONCE):
        rows = min(_AT_ONCE, count - start)
        lengths = source.integers(_SHORTEST, _LONGEST + 1, rows)
        drawn = source.integers(0, labels, rows)
        ranks = np.searchsorted(cumulative, source.random(int(lengths.sum())) * cumulative[-1])
        shifted = _COMMON + (ranks - _COMMON + np.repeat(drawn, lengths) * _SHIFT) % (len(words) - _COMMON)
        chosen = words[np.where(ranks < _COMMON, ranks, shifted)]
        ends = np.cumsum(lengths)
        yield [" ".join(chosen[end - length : end]) for end, length in zip(ends, lengths, strict=True)], drawn


def write_table(path: Path, count: int, *, labels: int = LABELS, seed: int = SEED) -> Path:
    """A Parquet file with ``text``, ``label``, ``owner`` (ten records each on average) and ``secret``: a list of one
    in every tenth record, of none in the others, five records each."""
    schema = pa.schema(
        [("text", pa.string()), ("label", pa.string()), ("owner", pa.string()), ("secret", pa.list_(pa.string()))]
    )
    source = np.random.default_rng(seed + 1)
    first, names = 0, label_names(labels)
    with pq.ParquetWriter(path, schema) as writer:
        for made, drawn in texts(count, labels=labels, seed=seed):
            owners = source.integers(0, max(1, count // _RECORDS_PER_OWNER), len(made))
            rows = range(first, first + len(made))
            group = _RECORDS_PER_SECRET * _ONE_IN
            columns = [
                made,
                [names[label] for label in drawn],
                [f"owner {owner}" for owner in owners],
                [[f"case {row // group}"] if row % _ONE_IN == 0 else [] for row in rows],
            ]
            writer.write_table(pa.table(columns, schema=schema))
            first += len(made)
    return path


class HashEmbedder:
    """Unit vectors from a hash of each text: what reading and voting cost when embeddings cost next to nothing.

    Two of 4,096 random vectors each, added: 16 million different texts.
    """

    model_id = "benchmark:hash"
    fingerprint = "b" * 64
    local = True
    longest, batch_tokens = 8, 64  # so that it is quickly tried

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        hashes = np.fromiter((zlib.crc32(text.encode()) for text in texts), np.int64, len(texts))
        vectors = _vectors()[hashes % _TABLE]
        vectors += _vectors()[hashes // _TABLE % _TABLE]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


@cache
def _vectors() -> NDArray[np.float32]:
    return np.random.default_rng(SEED).standard_normal((_TABLE, DIMENSION), dtype=np.float32)


class HashChat:
    """Answers each request with words of its hash."""

    model_id = "benchmark:hash"

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        words = built_in_terms()
        for index, request in enumerate(requests):
            source = np.random.default_rng(int(request.key(self.model_id)[:12], 16))
            chosen = [words[number] for number in source.integers(0, 5_000, 30)]
            yield index, Completion(" ".join(chosen), "stop", 30, 30)


def prompt_file(path: Path, examples: Sequence[str] | None = None, **settings: object) -> str:
    """A prompt file that changes these settings of the shipped template, or its examples."""
    shown = {} if examples is None else {"examples": list(examples), "examples_are_public": True}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**shown, "settings": settings}), "utf-8")
    return str(path)
