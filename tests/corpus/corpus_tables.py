"""What the corpus tests share: compressions, rows as plain values, and a look through all an error carries."""

from __future__ import annotations

import bz2
import gzip
import lzma
import traceback

import pyarrow as pa

from understudy.corpus import Corpus

COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def rows_of(corpus: Corpus) -> list[tuple[object, ...]]:
    """Every good row as (text, typed label), with the owner where there is one."""
    rows: list[tuple[object, ...]] = []
    for batch in corpus.batches():
        labels = [corpus.labels[i] if corpus.labels else None for i in batch.labels]
        rows += zip(batch.texts, labels, *([batch.owners] if batch.owners is not None else []), strict=True)
    return rows


def texts_of(corpus: Corpus) -> list[str]:
    return [text for batch in corpus.batches() for text in batch.texts]


def everything_in(error: BaseException) -> str:
    """All that an error carries: its words, arguments, printed traceback, and the same of causes and contexts."""
    parts, seen, queue = [], set(), [error]
    while queue:
        each = queue.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        parts += [str(each), repr(each), repr(each.args), repr(vars(each)), *traceback.format_exception(each)]
        queue += [other for other in (each.__cause__, each.__context__) if other is not None]
    return "\n".join(parts)
