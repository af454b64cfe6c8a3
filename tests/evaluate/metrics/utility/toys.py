"""Small labelled tables: topics told apart by their words, and by the directions of their embeddings."""

from __future__ import annotations

import numpy as np

from understudy.evaluate.metrics.sample import Sample

WORDS = {
    "sea": ("wave", "harbour", "tide", "sail", "anchor"),
    "sky": ("cloud", "wing", "star", "wind", "height"),
    "soil": ("root", "worm", "seed", "field", "plough"),
}
SHARED = ("today", "again", "people", "the", "near", "old")


def toy(count: int, *, seed: int = 0, dimension: int = 8, noise: float = 0.3, labels: str = "sea sky soil") -> Sample:
    """``count`` texts of three words of their topic and three others; embeddings near one axis a topic."""
    generator = np.random.default_rng(seed)
    names = labels.split()
    topics = [names[row % len(names)] for row in range(count)]
    texts = [" ".join([*generator.choice(WORDS[topic], 3), *generator.choice(SHARED, 3)]) for topic in topics]
    return Sample(tuple(texts), tuple(topics), directions(topics, generator, dimension, noise))


def directions(topics: list[str], generator: np.random.Generator, dimension: int, noise: float) -> np.ndarray:
    """``Float32[n, dimension]`` of unit length, each near its topic's axis."""
    rows = generator.normal(scale=noise, size=(len(topics), dimension))
    rows[np.arange(len(topics)), [sorted(WORDS).index(topic) for topic in topics]] += 1
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def relabelled(sample: Sample, labels: list[str] | None) -> Sample:
    return Sample(sample.texts, None if labels is None else tuple(labels), sample.embeddings)
