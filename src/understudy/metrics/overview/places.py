"""The map: a place in two dimensions for each text, near those that are like it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.picture import Point
from understudy.metrics.sample import Sample

_FEWEST = 30
"""Texts from which on there is enough for t-SNE."""

_DIMENSIONS = 50
_PERPLEXITY = 30
_LONGEST = 280


def draw_map(tables: Mapping[str, Sample], points: int, *, seed: int) -> tuple[Point, ...]:
    """At most ``points`` texts, the same share of it for each table. All must have embeddings."""
    shown = {name: table.at_most(points // len(tables), seed=seed) for name, table in tables.items() if len(table)}
    vectors = [table.embeddings for table in shown.values() if table.embeddings is not None]
    if not vectors:
        return ()
    texts = [
        (of, label, _shortened(text))
        for of, table in shown.items()
        for text, label in zip(table.texts, table.labels or [""] * len(table), strict=True)
    ]
    found = places(np.concatenate(vectors), seed=seed).tolist()
    return tuple(Point(x, y, of, label, text) for (x, y), (of, label, text) in zip(found, texts, strict=True))


def places(vectors: NDArray[np.float32], *, seed: int) -> NDArray[np.float64]:
    """``Float64[n, 2]`` in [0, 1]: t-SNE of the first 50 principal components; of fewer than 30 texts the first two.

    Source: van der Maaten and Hinton 2008; begun with the principal components, as Kobak and Berens 2019 advise.
    """
    from sklearn.manifold import TSNE

    flat = principal(vectors, _DIMENSIONS)
    if len(flat) < _FEWEST or not flat.any():
        return _scaled(flat[:, :2])
    perplexity = min(_PERPLEXITY, (len(flat) - 1) / 3)
    return _scaled(TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(flat))


def principal(vectors: NDArray[np.float32], dimensions: int) -> NDArray[np.float64]:
    """The first principal components, ``Float64[n, dimensions]``, filled up with zeros where there are fewer."""
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    known = int(np.sum(sizes[:dimensions] > 1e-6))
    found = np.zeros((len(vectors), dimensions))
    found[:, :known] = left[:, :known] * sizes[:known]
    return found


def _scaled(found: NDArray[np.floating]) -> NDArray[np.float64]:
    """Both coordinates by one factor, so that all lies in the middle of the unit square."""
    low, high = found.min(axis=0), found.max(axis=0)
    widest = float((high - low).max()) or 1.0
    scaled: NDArray[np.float64] = np.clip(0.5 + (found - (low + high) / 2.0) / widest, 0.0, 1.0).astype(np.float64)
    return scaled


def _shortened(text: str) -> str:
    """At most 280 characters, all of which can be written in UTF-8."""
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return short.encode("utf-8", "replace").decode("utf-8")
