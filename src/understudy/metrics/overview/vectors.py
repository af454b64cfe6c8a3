"""Where texts lie: their embeddings or, without, what their words say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.sample import Sample

_DIMENSIONS = 50


def with_vectors(
    tables: Mapping[str, Sample], words: Mapping[str, Sequence[Sequence[str]]], *, seed: int
) -> Mapping[str, Sample]:
    """The tables as they are if all have embeddings, else with those of latent semantic analysis.

    That is TF-IDF of the words of all tables, cut to 50 singular values.
    """
    if all(table.embeddings is not None for table in tables.values()):
        return tables
    vectors = _from_words([text for of_table in words.values() for text in of_table], seed)
    ends = np.cumsum([len(table) for table in tables.values()])
    split = np.split(vectors, ends[:-1])
    return {name: table.with_embeddings(part) for (name, table), part in zip(tables.items(), split, strict=True)}


def _from_words(words: Sequence[Sequence[str]], seed: int) -> NDArray[np.float32]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(words):
        return np.zeros((len(words), 1), dtype=np.float32)
    weights = TfidfVectorizer(analyzer=list, dtype=np.float32).fit_transform(words)
    if min(weights.shape) > _DIMENSIONS:
        return np.asarray(TruncatedSVD(_DIMENSIONS, random_state=seed).fit_transform(weights), dtype=np.float32)
    return np.asarray(weights.toarray(), dtype=np.float32)
