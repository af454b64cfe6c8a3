"""Precision, recall, density, coverage: by their definitions, on known layouts, and in any blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from understudy.evaluate.metrics.fidelity import embeddings
from understudy.evaluate.metrics.fidelity.embeddings import Neighbourhoods, neighbourhoods


def cloud(rows: int, seed: int, *, columns: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def values(found: Neighbourhoods, draw: int = 0) -> list[float]:
    return [float(each[draw]) for each in (found.precision, found.recall, found.density, found.coverage)]


def by_definition(real: NDArray[np.float32], other: NDArray[np.float32], k: int) -> list[float]:
    reach = np.sort(cdist(real, real), axis=1)[:, k]  # the nearest is the text itself
    reach_other = np.sort(cdist(other, other), axis=1)[:, k]
    between = cdist(real, other)
    inside = between <= reach[:, None]
    return [
        inside.any(axis=0).mean(),
        (between <= reach_other).any(axis=1).mean(),
        inside.sum(axis=0).mean() / k,
        (between.min(axis=1) <= reach).mean(),
    ]


@given(st.integers(0, 2**32), st.integers(7, 40), st.integers(7, 40), st.sampled_from([1, 3, 5]))
def test_all_four_are_their_definitions(seed: int, n: int, m: int, k: int) -> None:
    real, other = cloud(n, seed), cloud(m, seed + 1) * 0.8 + 0.2
    assert values(neighbourhoods(real, other, k=k)) == pytest.approx(by_definition(real, other, k))


@pytest.mark.parametrize("block", [2**22, 50])
def test_a_choice_is_measured_as_if_there_were_nothing_else(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "_BLOCK", block)
    real, other = cloud(60, 0), cloud(50, 1)
    generator = np.random.default_rng(2)
    ours, theirs = np.ones((4, 60), bool), np.ones((4, 50), bool)
    for draw in range(1, 4):
        ours[draw], theirs[draw] = generator.permutation(60) < 30, generator.permutation(50) < 25
    found = neighbourhoods(real, other, ours, theirs)
    for draw in range(4):
        assert values(found, draw) == pytest.approx(by_definition(real[ours[draw]], other[theirs[draw]], 5))


def test_copies_are_at_no_distance_whatever_rounding_says(monkeypatch: pytest.MonkeyPatch) -> None:
    points, generator = cloud(40, 0, columns=384) / 20, np.random.default_rng(1)
    real, other = (generator.permutation(np.repeat(points, copies, axis=0)) for copies in (7, 14))
    monkeypatch.setattr(embeddings, "_BLOCK", 3 * len(real))  # products of other shapes, which round otherwise
    assert values(neighbourhoods(real, other)) == [1, 1, 7 / 5, 1]
