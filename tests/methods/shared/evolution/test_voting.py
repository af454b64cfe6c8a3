"""Votes are exact: the same whatever the block, the order, the thread count, the library and the device."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from understudy.methods.shared.evolution import voting
from understudy.methods.shared.evolution.embeddings import LARGEST_NORM, integer_vectors
from understudy.methods.shared.evolution.voting import nearest

DIMENSION = 48


class Records(NamedTuple):
    vectors: NDArray[np.int16]
    labels: NDArray[np.int32]

    def blocks(self, rows: int) -> Iterator[Records]:
        for start in range(0, len(self.labels), rows):
            yield Records(self.vectors[start : start + rows], self.labels[start : start + rows])


def random_records(count: int, *, labels: int = 3, seed: int = 0, dimension: int = DIMENSION) -> Records:
    """Clustered, with a few large coordinates, so that scores are close to one another and of many bits."""
    generator = np.random.default_rng(seed)
    centre = np.random.default_rng(99).standard_normal(dimension) * np.geomspace(30, 1, dimension)
    exact = centre + generator.standard_normal((count, dimension))
    unit = exact / np.linalg.norm(exact, axis=1, keepdims=True)
    return Records(integer_vectors(unit.astype(np.float32)), generator.integers(labels, size=count).astype(np.int32))


def found(
    records: Records, candidates: Records, *, rows: int = 100, distance: str = "cosine", k: int = 1, device=None
) -> NDArray[np.int32]:
    every = nearest(records.blocks(rows), *candidates, distance=distance, k=k, device=device)
    return np.concatenate([np.zeros((0, k), dtype=np.int32), *every])


def by_hand(records: Records, candidates: Records, *, distance: str = "cosine", k: int = 1) -> NDArray[np.int32]:
    """In integers, by a stable sort. A zero vector is near to nothing."""
    x, y = records.vectors.astype(np.int64), candidates.vectors.astype(np.int64)
    scores = 2 * x @ y.T - ((y**2).sum(axis=1) if distance == "l2" else 0)
    chosen = np.full((len(x), k), -1, dtype=np.int32)
    for row, label in enumerate(records.labels):
        members = np.flatnonzero(candidates.labels == label)
        if distance == "centred" and len(members):
            scores[row, members] = centred_scores(x[row], y[members])
        best = members[np.argsort(-scores[row, members], kind="stable")][:k] if x[row].any() else members[:0]
        chosen[row, : len(best)] = best
    return chosen


def centred_scores(x: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of one record: products with the candidates' directions from their mean, in order (scaled to integers)."""
    mean = y.mean(axis=0)
    directions = np.trunc((y - mean) * 4000 / np.maximum(np.linalg.norm(y - mean, axis=1, keepdims=True), 1)).astype(
        np.int64
    )
    return ((x @ directions.T).astype(np.float32) - (directions @ mean).astype(np.float32)).astype(np.float64) * 1024


RECORDS, CANDIDATES = random_records(500, seed=1), random_records(60, seed=2)
distances = pytest.mark.parametrize("distance", ["centred", "cosine", "l2"])


def test_centred_votes_are_those_of_the_cosine_about_the_mean() -> None:
    x = RECORDS.vectors.astype(np.float64)
    chosen = found(RECORDS, CANDIDATES, distance="centred")[:, 0]
    for label in range(3):
        members, rows = np.flatnonzero(CANDIDATES.labels == label), np.flatnonzero(RECORDS.labels == label)
        y = CANDIDATES.vectors[members].astype(np.float64)
        a, b = x[rows] - y.mean(axis=0), y - y.mean(axis=0)
        cosines = a @ b.T / np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
        of_chosen = cosines[np.arange(len(rows)), np.searchsorted(members, chosen[rows])]
        assert np.all(of_chosen > cosines.max(axis=1) - 1e-3)


@distances
@pytest.mark.parametrize("device", [None, "cpu"], ids=["numpy", "torch"])
@given(
    st.integers(0, 60), st.integers(0, 12), st.integers(1, 3), st.integers(0, 99), st.sampled_from([1, 3, 100, 1 << 23])
)
@settings(max_examples=60)
def test_the_nearest_are_those_found_by_hand_in_blocks_and_products_of_any_size(
    device: str | None, distance: str, count: int, others: int, labels: int, seed: int, scores: int
) -> None:
    """Of equal candidates the first is nearer; a label may have no candidate; some records have no vector."""
    if device:
        pytest.importorskip("torch")
    records = random_records(count, labels=3, seed=seed)
    records.vectors[::5] = 0
    some = random_records(others, labels=labels, seed=seed + 100)
    candidates = Records(
        np.concatenate([some.vectors, some.vectors[:3]]), np.concatenate([some.labels, some.labels[:3]])
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(voting, "_SCORES", scores)
        for k, rows in ((1, 7), (5, 60)):
            expected = by_hand(records, candidates, distance=distance, k=k)
            assert np.array_equal(
                found(records, candidates, rows=rows, distance=distance, k=k, device=device), expected
            )


def test_without_records_there_is_an_answer_of_the_right_shape() -> None:
    nothing = Records(np.zeros((0, DIMENSION), dtype=np.int16), np.zeros(0, dtype=np.int32))
    (empty,) = nearest([nothing], *CANDIDATES, k=2)
    assert empty.shape == (0, 2)
    assert list(nearest([], *CANDIDATES)) == []


def close_calls(dimension: int) -> tuple[Records, Records]:
    """Long vectors of almost one direction: scores near 2^24 that differ by single units."""
    generator = np.random.default_rng(dimension)
    base = generator.standard_normal(dimension)
    base *= (LARGEST_NORM - 30) / np.linalg.norm(base)
    exact = np.trunc(base) + generator.integers(-1, 2, (300, dimension))
    assert np.linalg.norm(exact, axis=1).max() <= LARGEST_NORM
    vectors = exact.astype(np.int16)
    return Records(vectors[:200], np.zeros(200, np.int32)), Records(vectors[200:], np.zeros(100, np.int32))


@pytest.mark.parametrize("dimension", [3, 16, 384, 768])
def test_scores_that_differ_by_one_in_sixteen_million_are_told_apart(dimension: int) -> None:
    records, candidates = close_calls(dimension)
    for rows in (1, 200):
        assert np.array_equal(found(records, candidates, rows=rows), by_hand(records, candidates))
        by_l2 = found(records, candidates, rows=rows, distance="l2")
        assert np.array_equal(by_l2, found(records, candidates, rows=50, distance="l2"))
    exact = records.vectors.astype(np.int64) @ candidates.vectors.astype(np.int64).T
    product = records.vectors.astype(np.float32) @ candidates.vectors.astype(np.float32).T
    assert np.array_equal(product, exact)
    assert exact.max() > 2**23


def test_vectors_four_times_as_long_would_not_be_exact() -> None:
    """The broken twin: it is the bound on the norm that makes a product exact, not the integers."""
    records, candidates = close_calls(384)
    x, y = 4 * records.vectors.astype(np.int64) + 1, 4 * candidates.vectors.astype(np.int64) + 1
    assert not np.array_equal(x.astype(np.float32) @ y.astype(np.float32).T, x @ y.T)


def test_the_number_of_threads_does_not_matter() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    records, candidates = close_calls(384)
    answers = []
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads):
            answers.append(found(records, candidates, k=3))
    assert np.array_equal(*answers)


def test_memory_does_not_grow_with_the_number_of_records() -> None:
    """All scores at once would take 128 MB more for the longer corpus."""
    candidates = random_records(2_000, labels=1, dimension=8)
    peaks = []
    for count in (8_000, 24_000):
        records = random_records(count, labels=1, dimension=8)
        tracemalloc.start()
        for _ in nearest(records.blocks(1_000), *candidates, device=None):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 60e6
    assert peaks[1] < peaks[0] + 1e6


# -- torch ------------------------------------------------------------------------------------------------------------


@distances
def test_torch_and_numpy_say_the_same_of_close_calls(distance: str) -> None:
    pytest.importorskip("torch")
    records, candidates = close_calls(384)
    for rows in (1, 50, 500):
        on_torch = found(records, candidates, rows=rows, distance=distance, k=3, device="cpu")
        assert np.array_equal(on_torch, found(records, candidates, distance=distance, k=3))


def test_a_process_that_allows_lower_precision_gets_the_same_votes() -> None:
    torch = pytest.importorskip("torch")
    records, candidates = close_calls(384)
    expected = found(records, candidates)
    torch.set_float32_matmul_precision("medium")
    try:
        group = voting._TorchGroup(candidates.vectors, 1, "cosine", "cpu")
        assert group._type == torch.float64  # not every processor would show the difference
        assert np.array_equal(found(records, candidates, device="cpu"), expected)
    finally:
        torch.set_float32_matmul_precision("highest")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert np.array_equal(found(records, candidates, device="cpu"), expected)


def test_without_torch_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    voting._accelerator.cache_clear()
    monkeypatch.setattr(voting, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it raises
    assert np.array_equal(found(RECORDS, CANDIDATES), by_hand(RECORDS, CANDIDATES))
    voting._accelerator.cache_clear()


def test_a_gpu_is_used_by_itself_and_says_the_same() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    assert voting._accelerator() == "cuda"
    for records, candidates in ((RECORDS, CANDIDATES), close_calls(384)):
        assert np.array_equal(found(records, candidates, k=3), by_hand(records, candidates, k=3))
        by_l2 = found(records, candidates, distance="l2", k=3)
        assert np.array_equal(by_l2, found(records, candidates, distance="l2", k=3, device="cpu"))
