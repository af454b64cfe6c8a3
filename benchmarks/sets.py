"""The real text sets in ``../shared/data`` (never committed), and what benchmarks need of them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from understudy.models.catalog import load_embedder

DATA = Path(os.environ.get("UNDERSTUDY_BENCHMARK_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
CACHE = Path(os.environ.get("UNDERSTUDY_BENCHMARK_CACHE", Path(__file__).parents[1] / ".cache" / "benchmarks"))
VOCABULARIES = DATA / "vocab"


@dataclass(frozen=True)
class TextSet:
    """One labelled set: training file (private), test texts and labels (for evaluation only)."""

    name: str
    train: Path
    labels: tuple[object, ...]
    label_names: tuple[str, ...]
    test_texts: list[str]
    test_labels: NDArray[np.int64]


@cache
def load_set(name: str) -> TextSet:
    """``ag_news`` or ``dbpedia14``."""
    table = pq.read_table(DATA / name / "test.parquet")
    labels = table.column("label").to_pylist()
    names = dict(zip(labels, table.column("label_name").to_pylist(), strict=True))
    order = sorted(names)
    index = {label: position for position, label in enumerate(order)}
    return TextSet(
        name,
        DATA / name / "train.parquet",
        tuple(order),
        tuple(names[label] for label in order),
        table.column("text").to_pylist(),
        np.array([index[label] for label in labels]),
    )


def embed(texts: list[str]) -> NDArray[np.float32]:
    """``Float32[n, d]`` by the built-in embedder, kept on disk by content."""
    key = hashlib.sha256("\x00".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    file = CACHE / f"{key}.npy"
    if file.exists():
        return np.load(file)
    embeddings = embedder().embed(texts)
    CACHE.mkdir(parents=True, exist_ok=True)
    np.save(file, embeddings)
    return embeddings


@cache
def embedder():
    return load_embedder("builtin")
