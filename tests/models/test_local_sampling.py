"""Drawing tokens: the right distribution, from uniforms that belong to the request."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from understudy.models.local import choose_tokens, request_uniforms

MASSES = torch.tensor([0.1, 0.4, 0.0, 0.3, 0.2])


def choose(
    logits: torch.Tensor, uniform: torch.Tensor, *, temperature: float = 1.0, top_p: float = 1.0
) -> torch.Tensor:
    rows = len(uniform)
    found: torch.Tensor = choose_tokens(
        logits.expand(rows, -1),
        temperature=torch.full((rows,), temperature),
        top_p=torch.full((rows,), top_p),
        uniform=uniform,
    )
    return found


def shares(tokens: torch.Tensor, size: int = 5) -> torch.Tensor:
    return torch.bincount(tokens, minlength=size) / len(tokens)


def test_tokens_come_with_their_probabilities() -> None:
    found = shares(choose(MASSES.log(), torch.linspace(0, 1, 10_001)[:-1]))
    assert torch.allclose(found, MASSES, atol=1e-3)


def test_temperature_sharpens() -> None:
    found = shares(choose(MASSES.log(), torch.linspace(0, 1, 10_001)[:-1], temperature=0.5))
    assert torch.allclose(found, MASSES**2 / (MASSES**2).sum(), atol=1e-3)


def test_temperature_zero_takes_the_likeliest_token() -> None:
    assert choose(MASSES.log(), torch.rand(50), temperature=0.0).unique().tolist() == [1]


@pytest.mark.parametrize(("top_p", "kept"), [(0.3, [1]), (0.5, [1, 3]), (0.75, [1, 3, 4]), (0.95, [0, 1, 3, 4])])
def test_top_p_draws_from_the_smallest_set_with_that_mass(top_p: float, kept: list[int]) -> None:
    found = shares(choose(MASSES.log(), torch.linspace(0, 1, 10_001)[:-1], top_p=top_p))
    expected = torch.zeros(5)
    expected[kept] = MASSES[kept] / MASSES[kept].sum()
    assert torch.allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("size", [30, 200])
def test_a_nucleus_of_very_many_tokens_is_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.local._NUCLEI", (8, 64))
    found = choose(torch.zeros(size), torch.linspace(0, 1, 2_001)[:-1], top_p=0.9)
    assert abs(len(found.unique()) - 0.9 * size) <= 1


def test_rows_of_one_batch_are_drawn_each_in_its_own_way() -> None:
    tokens = choose_tokens(
        MASSES.log().expand(3, -1),
        temperature=torch.tensor([0.0, 1.0, 1.0]),
        top_p=torch.tensor([1.0, 1.0, 0.3]),
        uniform=torch.tensor([0.99, 0.99, 0.99]),
    )
    assert tokens.tolist() == [1, 4, 1]


def test_a_uniform_that_rounds_to_one_never_draws_an_impossible_token() -> None:
    logits = torch.tensor([0.0, 0.0, -1e9, -1e9])
    assert choose(logits, torch.tensor([1.0, 0.0])).tolist() == [1, 0]


def test_uniforms_depend_on_seed_and_request_only() -> None:
    first = request_uniforms(1, "key", count=8)
    assert np.array_equal(first, request_uniforms(1, "key", count=8))
    assert np.array_equal(first[:4], request_uniforms(1, "key", count=4))
    assert not np.array_equal(first, request_uniforms(2, "key", count=8))
    assert not np.array_equal(first, request_uniforms(1, "other", count=8))
    assert ((first >= 0) & (first < 1)).all()
