"""What is computed in blocks is what is computed at once, and takes no memory for all pairs of texts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from understudy.evaluate.metrics import leakage
from understudy.evaluate.metrics.fidelity import embeddings
from understudy.evaluate.metrics.fidelity.embeddings import frechet_values, kernel_values, neighbour_values
from understudy.evaluate.metrics.fidelity.texts import distinct_values
from understudy.evaluate.metrics.leakage import measure_neighbours
from understudy.evaluate.metrics.sample import Sample, words_of
from understudy.text.vocabulary.words import split_words

SAMPLING = {"seed": 0, "resamples": 5}


def sample(count: int, seed: int, *, dimensions: int = 8, words: int = 40) -> Sample:
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(count, dimensions)) + 0.3
    texts = [" ".join(f"w{word}" for word in generator.integers(words, size=12)) for _ in range(count)]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return Sample(tuple(texts), None, unit.astype(np.float32))


OF_VECTORS: dict[str, Callable[[Sample, Sample], Any]] = {
    "frechet": lambda real, other: frechet_values(real, other, of="synthetic", **SAMPLING),
    "kernel": lambda real, other: kernel_values(real, other, of="synthetic", **SAMPLING),
    "neighbours": lambda real, other: neighbour_values(real, other, of="synthetic", **SAMPLING),
    "closest": lambda real, other: measure_neighbours(real, {"synthetic": other}, **SAMPLING),
}


@pytest.mark.parametrize("metric", OF_VECTORS)
def test_the_blocks_do_not_change_a_value(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    real, other = sample(150, 0), sample(130, 1)
    whole = OF_VECTORS[metric](real, other)
    for module, name in ((embeddings, "_ROWS"), (embeddings, "_COLUMNS"), (leakage, "_BLOCK")):
        monkeypatch.setattr(module, name, 7)
    for one, two in zip(whole, OF_VECTORS[metric](real, other), strict=True):
        assert one.value == pytest.approx(two.value, abs=1e-12)
        assert one.interval is not None
        assert (one.interval.low, one.interval.high) == pytest.approx((two.interval.low, two.interval.high), abs=1e-12)


@pytest.mark.parametrize("metric", OF_VECTORS)
def test_no_memory_grows_with_the_pairs_of_texts(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    for module, name, size in (
        (embeddings, "_BLOCK", 2**14),
        (embeddings, "_ROWS", 128),
        (embeddings, "_COLUMNS", 128),
        (leakage, "_BLOCK", 128),
    ):
        monkeypatch.setattr(module, name, size)
    peaks = []
    for count in (1000, 2000):
        real, other = sample(count, 0), sample(count, 1)
        OF_VECTORS[metric](real.take(range(120)), other.take(range(120)))
        tracemalloc.start()
        OF_VECTORS[metric](real, other)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 3 * peaks[0] + 2**20  # of all pairs it would be four times as much, and 8 MB at least
    assert peaks[1] < 2000 * 2000 * 8 / 2


def test_the_mean_and_the_covariance_are_those_of_numpy_in_any_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sample(100, 0).embeddings
    assert rows is not None
    chosen = np.random.default_rng(1).random(100) < 0.5
    for size in (1, 3, 8192):
        monkeypatch.setattr(embeddings, "_ROWS", size)
        mean, root = embeddings._gaussian(rows, chosen)
        assert mean == pytest.approx(rows[chosen].astype(float).mean(axis=0), abs=1e-14)
        assert root.T @ root == pytest.approx(np.cov(rows[chosen].astype(float), rowvar=False), abs=1e-14)


def test_neither_blocks_nor_bands_that_share_a_number_change_what_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    real = words_of(sample(150, 0).texts, split_words)
    others = [[*text[: 6 + place % 7], "new"] for place, text in enumerate(real[:80])]
    others += [[], ["w1"], real[3], *words_of(sample(40, 1).texts, split_words)]
    expected = leakage._Index(real, {"s": others}, 5).most_similar(others)
    assert 0 < (expected >= 0.8).sum() < len(others)
    monkeypatch.setattr(leakage, "_AT_ONCE", 3)
    monkeypatch.setattr(leakage, "_FACTOR", np.uint64(0))  # the last column alone: many share it
    assert leakage._Index(real, {"s": others}, 5).most_similar(others).tolist() == expected.tolist()


def test_equal_words_are_one_object() -> None:
    words = words_of(["the knee of", "of the knee", "a%s" % ("b" * 30), "a%s" % ("b" * 30)], split_words)
    assert words == [["the", "knee", "of"], ["of", "the", "knee"], ["a" + "b" * 30], ["a" + "b" * 30]]
    assert words[0][1] is words[1][2]
    assert words[2][0] is words[3][0]


def test_distinct_ngrams_take_no_object_each() -> None:
    texts = words_of(sample(4000, 0, words=3000).texts, split_words)
    tracemalloc.start()
    distinct_values(texts, "synthetic", total=10**9, seed=0, resamples=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4000 * 12 * 150  # an n-gram is some numbers, and no tuple in a dictionary
