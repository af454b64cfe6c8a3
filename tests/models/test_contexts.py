"""Contexts that go on together: no row changes another's logits by a bit, and back is where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from understudy.base.errors import ModelError
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.shared_prefix import Contexts

WIDTH = 12


def load(spec: str, dtype: str) -> CausalModel:
    return load_causal(spec, device="cpu", dtype=dtype)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, llama: Path) -> CausalModel:
    return load(f"hf:{llama}", request.param)


def rows_of(lengths: Sequence[int], vocabulary: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(3, vocabulary, length).tolist() for length in lengths]


def contexts_of(
    model: CausalModel, rows: Sequence[Sequence[int]], *, rows_at_once: int = 4, tokens: int = 40
) -> Contexts:
    return model.contexts(
        rows, prefix=[9, 8, 7, 6], width=WIDTH, suffix=[20, 21], tokens=tokens, rows_at_once=rows_at_once
    )


def logits(contexts: Contexts, candidates: Any = None) -> torch.Tensor:
    return torch.cat([block.logits[: block.real] for block in contexts.blocks(candidates)])


def story(contexts: Contexts, row: int, candidates: torch.Tensor) -> list[torch.Tensor]:
    """A row's logits at the prompt, after steps over several columns of the cache, and after going back."""
    found = []
    for number in range(36):
        if number in (0, 1, 2, 17, 35):
            found += [logits(contexts)[row], logits(contexts, candidates)[row]]
        contexts.step(3 + 5 * number)
    contexts.rewind()
    contexts.step(11)
    return [*found, logits(contexts)[row]]


def check_invariance(model: CausalModel, *, rows_at_once: int, length: int) -> None:
    """The row that is looked at: alone, at the end of a block, in a later block, between long and short neighbours."""
    row, candidates = rows_of([length], model.vocabulary, 0)[0], torch.arange(5, model.vocabulary, 7)
    long = rows_of([WIDTH] * (2 * rows_at_once), model.vocabulary, 1)
    short = rows_of([1, 2, 3] * rows_at_once, model.vocabulary, 2)
    last = rows_at_once - 1
    crowds = [
        ([long[0], row], 1),
        ([long[0], *short[:last], *long[:last], row], 2 * rows_at_once - 1),
        ([short[0], *long[: last - 1], row], last),
        ([long[0], row, *short, *long], 1),
    ]
    first, *others = (
        story(contexts_of(model, rows, rows_at_once=rows_at_once), place, candidates) for rows, place in crowds
    )
    for other in others:
        assert all(torch.equal(one, two) for one, two in zip(first, other, strict=True))


@pytest.mark.parametrize(("rows_at_once", "length"), [(2, 1), (2, WIDTH), (4, 5), (9, 1), (9, WIDTH)])
def test_no_row_changes_anothers_logits_by_a_bit(model: CausalModel, rows_at_once: int, length: int) -> None:
    check_invariance(model, rows_at_once=rows_at_once, length=length)


def test_going_back_gives_the_prompts_logits_and_the_same_way_again(model: CausalModel) -> None:
    contexts = contexts_of(model, rows_of([3, 5, 12, 7, 1], model.vocabulary, 3))
    seen = []
    for _ in range(3):
        seen.append([logits(contexts)])
        for token in range(5, 40):
            contexts.step(token)
            seen[-1].append(logits(contexts))
        contexts.rewind()
        assert contexts.steps == 0
    for again in seen[1:]:
        assert all(torch.equal(one, two) for one, two in zip(seen[0], again, strict=True))


def test_candidates_are_columns_of_the_whole(llama: Path) -> None:
    model = load(f"hf:{llama}", "float32")
    contexts = contexts_of(model, rows_of([3, 5, 12], model.vocabulary, 3))
    chosen = torch.tensor([7, 3, 200, 258])
    assert torch.allclose(logits(contexts, chosen), logits(contexts)[:, chosen], atol=1e-4)
    assert torch.allclose(contexts.public_logits(), logits(contexts)[0], atol=1e-4)


def test_whole_logits_are_computed_once_where_row_0_s_and_all_are_wanted(model: CausalModel) -> None:
    contexts = contexts_of(model, rows_of([3, 5, 12], model.vocabulary, 3))
    for turn in ("prompt", "step", "rewound"):
        expected = logits(contexts)
        assert torch.equal(contexts.public_logits(whole=True), expected[0].float())
        assert next(contexts.blocks()).logits is next(contexts.blocks()).logits  # kept
        assert torch.equal(logits(contexts), expected)
        if turn == "prompt":
            contexts.step(4)
            assert not torch.equal(logits(contexts), expected)  # and not for longer than a token
        else:
            contexts.rewind()


def test_the_last_block_is_filled_with_row_0(model: CausalModel) -> None:
    rows = rows_of([3, 5, 12, 7, 1], model.vocabulary, 3)
    contexts = contexts_of(model, rows)
    first, last = contexts.blocks()
    assert [(block.first, block.real, len(block.logits)) for block in (first, last)] == [(0, 4, 4), (4, 1, 4)]
    for filled in last.logits[1:]:
        assert torch.equal(filled, first.logits[0])
    assert (len(contexts), contexts.rows_at_once) == (5, 4)


def test_room_ends_where_it_was_said_to(model: CausalModel) -> None:
    contexts = contexts_of(model, [[5, 6]], tokens=2)
    contexts.step(4)
    contexts.step(4)
    with pytest.raises(ModelError, match="room for more than 2 tokens"):
        contexts.step(4)
    contexts.rewind()
    contexts.step(4)


def test_public_logits_that_are_not_finite_are_one_clear_error(llama: Path) -> None:
    model = load(f"hf:{llama}", "float32")
    contexts = contexts_of(model, [[5, 6], [7]])
    contexts._blocks[0].hidden = contexts._blocks[0].hidden * float("nan")
    with pytest.raises(ModelError, match="not finite"):
        contexts.public_logits()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_the_cpus_logits(llama: Path) -> None:
    rows = rows_of([3, 5, 12, 7, 1], 250, 3)
    found = []
    for device in ("cpu", "cuda"):
        contexts = contexts_of(load_causal(f"hf:{llama}", device=device, dtype="float32"), rows)
        contexts.step(4)
        found.append(logits(contexts).cpu())
    assert torch.allclose(found[0], found[1], atol=1e-2)


def test_a_run_that_is_being_stopped_ends_before_the_next_block(model: CausalModel) -> None:
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.contexts([[5]] * 20, prefix=(), width=2, suffix=[7], tokens=1, rows_at_once=8, check=check)
    assert len(asked) == 2
