"""The clipped sum of per-example gradients: exact, one vector per row, whatever is computed beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_fixtures import make_llama
from numpy.typing import NDArray

from understudy.base.errors import PrivacyError
from understudy.methods.shared.queries.gradients import ClippedGradients, SampledRows, clipped_sum
from understudy.models.causal import CausalModel
from understudy.models.training import Block, LoRA, Shapes, TokenRow, require_separate_gradients
from understudy.privacy.gradients import DPSGD
from understudy.privacy.measurement import exact_sum

MECHANISM = DPSGD(1.0, 0.5, 3, clipping_norm=0.5)
GRID = DPSGD.grid
LENGTHS = (3, 20, 7, 1, 25, 12, 9)


@pytest.fixture(scope="module")
def lora(llama: Path) -> LoRA:
    causal = CausalModel(llama, name="tiny", device="cpu", dtype="float32")
    made = LoRA(causal, rank=2, targets=["q_proj", "down_proj"], layers=None)
    generator = np.random.default_rng(0)
    made.load(generator.normal(0, 0.1, made.size).astype(np.float32))
    return made


@pytest.fixture(scope="module")
def rows(lora: LoRA) -> list[TokenRow]:
    generator = np.random.default_rng(1)
    return [
        TokenRow(generator.integers(3, 250, size=5).tolist(), generator.integers(3, 250, size=size).astype(np.int32))
        for size in LENGTHS
    ]


def query(trainable: Any, *, at_once: int = 2, mechanism: DPSGD = MECHANISM) -> ClippedGradients:
    return ClippedGradients(trainable, Shapes(prompt=5, target=25, rows=at_once), mechanism)


def summed(trainable: Any, rows: list[TokenRow], **settings: Any) -> NDArray[np.int64]:
    return exact_sum(query(trainable, **settings), SampledRows(rows))


def plain(lora: LoRA, row: TokenRow) -> NDArray[np.float64]:
    """The gradient of a row alone, by ordinary autograd on one adapter and transformers' own loss."""
    leaves = [each.clone().requires_grad_() for each in lora._tensors]
    tokens = torch.tensor([[*row.prompt, *row.target.tolist()]])
    labels = tokens.clone()
    labels[:, : len(row.prompt)] = -100
    with torch.enable_grad(), lora.adapters.active(leaves):
        loss = lora.network(input_ids=tokens, labels=labels).loss
    found = torch.autograd.grad(loss, leaves[1::2])
    return torch.cat([each.flatten() for each in found]).double().numpy()


def clipped(gradient: NDArray[np.float64], clip: float = MECHANISM.clipping_norm) -> NDArray[np.float64]:
    return gradient / max(1.0, float(np.linalg.norm(gradient)) / clip)


@pytest.mark.parametrize("clip", [0.5, 1e4])
def test_the_sum_is_that_of_a_plain_loop_over_the_rows(lora: LoRA, rows: list[TokenRow], clip: float) -> None:
    mechanism = DPSGD(1.0, 0.5, 3, clip)
    expected = sum(clipped(plain(lora, row), clip) for row in rows)
    found = summed(lora, rows, mechanism=mechanism) * clip / GRID
    assert np.abs(found - expected).max() <= 1e-5 * max(1.0, float(np.abs(expected).max()))
    norms = [float(np.linalg.norm(plain(lora, row))) for row in rows]
    assert min(norms) > 0.5 or clip > max(norms)  # both sides of the clip are tried


def test_the_sum_is_the_same_in_any_order_and_nearly_so_for_any_block(lora: LoRA, rows: list[TokenRow]) -> None:
    ways = {size: summed(lora, rows, at_once=size) for size in (1, 2, 5, 8)}
    for size, found in ways.items():
        for order in (rows[::-1], rows[3:] + rows[:3]):
            assert np.array_equal(summed(lora, order, at_once=size), found)
        assert np.abs(found - ways[1]).max() < 1e-5 * GRID


def test_one_row_more_adds_its_own_vector_and_no_more_than_the_clip(lora: LoRA, rows: list[TokenRow]) -> None:
    whole = summed(lora, rows, at_once=4)
    for number, row in enumerate(rows):
        moved = whole - summed(lora, rows[:number] + rows[number + 1 :], at_once=4)
        assert np.array_equal(moved, summed(lora, [row], at_once=4))
        assert (1 - 1e-5) * GRID < np.linalg.norm(moved.astype(float)) <= GRID  # all are clipped here


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e10, 3e38])
def test_no_vector_is_longer_than_the_grid(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = torch.rand((50, 1, 100_000), generator=generator)
    for row in gradients:
        found = clipped_sum(row * size, 1, clipping_norm=0.7, grid=GRID)
        assert sum(each * each for each in found.tolist()) <= GRID**2


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_not_finite_counts_as_0(wrong: float) -> None:
    gradients = torch.ones((3, 4))
    gradients[1, 2] = wrong
    found = clipped_sum(gradients, 3, clipping_norm=1.0, grid=GRID)
    assert np.array_equal(found, clipped_sum(gradients[[0, 2]], 2, clipping_norm=1.0, grid=GRID))
    assert not clipped_sum(torch.full((1, 4), wrong), 1, clipping_norm=1.0, grid=GRID).any()


def test_rows_that_fill_a_block_up_count_nothing() -> None:
    assert np.array_equal(
        clipped_sum(torch.ones((3, 4)), 1, clipping_norm=1.0, grid=GRID),
        clipped_sum(torch.ones((1, 4)), 1, clipping_norm=1.0, grid=GRID),
    )


def test_an_empty_sample_gives_zeros_without_a_forward_pass(lora: LoRA, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(block: Block) -> Any:
        raise AssertionError

    monkeypatch.setattr(lora, "gradients", never)
    found = summed(lora, [])
    assert found.shape == (lora.size,)
    assert found.dtype == np.int64
    assert not found.any()


def test_a_sample_shows_nothing_of_its_rows(rows: list[TokenRow], lora: LoRA) -> None:
    for thing in (rows[0], SampledRows(rows), query(lora)):
        assert str(rows[0].prompt[0]) not in repr(thing).partition(" at 0x")[0]


@pytest.mark.parametrize(("rank", "at_once"), [(1, 8), (4, 8), (5, 2), (5, 8), (6, 3), (7, 8), (9, 2), (9, 8)])
def test_what_passes_the_trial_is_exact_where_the_adapter_has_learnt(
    lora: LoRA, rows: list[TokenRow], rank: int, at_once: int
) -> None:
    """At some ranks a row's last bits may show its place, but not while B is 0: the trial must see it."""
    made = LoRA(lora.causal, rank=rank, targets=["all"], layers=None)
    try:
        require_separate_gradients(made, Shapes(prompt=5, target=25, rows=at_once))
    except PrivacyError:
        return
    assert not made.named(made.start())["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"].any()
    made.load(np.random.default_rng(5).normal(0, 0.1, made.size).astype(np.float32))
    whole = summed(made, [*rows, *rows[::-1], *rows[2:]], at_once=at_once)
    parts = sum(summed(made, [row], at_once=at_once) for row in [*rows, *rows, *rows[2:]])
    assert np.array_equal(whole, parts)


def test_a_gradient_of_zeros_stays_so_however_tight_the_clip() -> None:
    found = clipped_sum(torch.zeros(2, 3), 2, clipping_norm=1e-30, grid=GRID)
    assert not found.any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_sum_to_its_precision(tmp_path: Path, rows: list[TokenRow], lora: LoRA) -> None:
    causal = CausalModel(make_llama(tmp_path / "llama"), name="tiny", device="cuda", dtype="float32")
    there = LoRA(causal, rank=2, targets=["q_proj", "down_proj"], layers=None)
    require_separate_gradients(there, Shapes(prompt=5, target=25, rows=8))  # which loads weights of its own
    there.load(np.random.default_rng(0).normal(0, 0.1, there.size).astype(np.float32))
    found, expected = summed(there, rows, at_once=8), summed(lora, rows, at_once=8)
    assert np.abs(found - expected).max() <= 1e-4 * GRID
