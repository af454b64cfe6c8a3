"""Fréchet and kernel distance: by hand, by another way of computing, and on odd tables."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import sqrtm

from understudy.evaluate.metrics.fidelity import embeddings
from understudy.evaluate.metrics.fidelity.embeddings import frechet_distance, kernel_distance


def normal(rows: int, columns: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def unit(rows: int, columns: int, seed: int = 0) -> NDArray[np.float32]:
    vectors = normal(rows, columns, seed) + 0.3 * seed
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("sizes", [(60, 80), (5, 7), (3, 40)])
def test_the_frechet_distance_is_that_by_the_root_of_the_product_of_covariances(sizes: tuple[int, int]) -> None:
    a, b = normal(sizes[0], 12, 1), normal(sizes[1], 12, 2) @ normal(12, 12, 3) + 0.5
    ridge = 1e-9 * np.eye(12)  # sqrtm needs whole rank, which few texts do not give
    one, two = np.cov(a.T) + ridge, np.cov(b.T) + ridge
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(one + two - 2 * np.real(sqrtm(one @ two)))
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("rows", "columns"), [(200, 16), (10, 64), (2, 8)])
def test_the_frechet_distance_of_a_table_from_itself_is_0_however_few_texts(rows: int, columns: int) -> None:
    table = normal(rows, columns) * np.logspace(0, -6, columns)
    assert frechet_distance(table, table[::-1]) == pytest.approx(0, abs=1e-12)


def by_definition(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    def mean(pairs: list[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> float:
        return float(np.mean([((1 + float(x.astype(float) @ y.astype(float))) / 2) ** 3 for x, y in pairs]))

    def of_different(rows: NDArray[np.float32]) -> float:
        return mean([(x, y) for i, x in enumerate(rows) for j, y in enumerate(rows) if i != j])

    return of_different(a) + of_different(b) - 2 * mean([(x, y) for x in a for y in b])


@pytest.mark.parametrize("block", [2**22, 7])
def test_the_kernel_distance_is_its_definition_of_any_chosen_rows_in_any_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "_BLOCK", block)
    a, b = unit(9, 5, 0), unit(12, 5, 1)
    ours = np.array([[True] * 9, [True, False] * 4 + [True]])
    theirs = np.array([[True] * 12, [False, True, True] * 4])
    found = kernel_distance(a, b, ours, theirs)
    assert found == pytest.approx([by_definition(a, b), by_definition(a[ours[1]], b[theirs[1]])], abs=1e-12)
