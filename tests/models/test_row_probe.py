"""The probe of a private model catches what it must, each by a twin that breaks one thing only.

``before`` is the probe as it was: the head over the whole vocabulary, after the prompt and one token more, with texts
no longer than there are rows. It lets every twin pass.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from local_fixtures import make_llama

from understudy.base.errors import PrivacyError
from understudy.models.causal import CausalModel
from understudy.models.contexts import Contexts, Head, _ContextBlock
from understudy.models.kv_cache import columns
from understudy.models.row_invariance import Shape, require_row_invariance

SHAPE = Shape(prefix=5, width=30, suffix=2, tokens=60, rows_at_once=8, candidates=20)
TINY = 1e-5


@pytest.fixture(scope="module")
def model(llama: Path) -> CausalModel:
    return CausalModel(llama, name="tiny", device="cpu", dtype="float32")


def before(model: CausalModel, shape: Shape) -> bool:
    """Whether the probe as it was lets the model pass."""
    draw = torch.Generator().manual_seed(0)

    def some(length: int) -> list[int]:
        return torch.randint(model.vocabulary, (length,), generator=draw).tolist()

    count, width, prefix, suffix = shape.rows_at_once, shape.width, some(shape.prefix), some(shape.suffix)
    rows = [some(number % width + 1) for number in range(count)]
    beside_long = [some(width) if number % 2 else row for number, row in enumerate(rows)]

    def seen(block: list[list[int]]) -> Any:
        contexts = Contexts(model, block, prefix=prefix, width=width, suffix=suffix, tokens=1, rows_at_once=count)
        first = next(contexts.blocks()).logits
        contexts.step(0)
        return torch.stack([first, next(contexts.blocks()).logits], dim=1)

    expected = seen(rows)
    further = all(
        torch.equal(seen([*rows[-by:], *rows[:-by]]), expected.roll(by, 0)) for by in (1, shape.rows_at_once // 2)
    )
    return further and torch.equal(seen(beside_long)[::2], expected[::2])


def check_caught_now_and_not_before(model: CausalModel, shape: Shape = SHAPE, *, in_flight: int = 1) -> None:
    assert before(model, shape)
    with pytest.raises(PrivacyError, match="change with the texts beside it"):
        require_row_invariance(model, shape, in_flight=in_flight)


@pytest.mark.parametrize("candidates", [None, 1, 20, 256])
@pytest.mark.parametrize("tokens", [0, 1, 60])
@pytest.mark.parametrize("suffix", [0, 2])
def test_a_model_whose_rows_are_kept_apart_passes(
    model: CausalModel, candidates: int | None, tokens: int, suffix: int
) -> None:
    require_row_invariance(model, Shape(5, 30, suffix, tokens, 8, candidates), in_flight=2)


def test_in_bfloat16_too(model: CausalModel, tmp_path: Path) -> None:
    half = CausalModel(make_llama(tmp_path), name="tiny", device="cpu", dtype="bfloat16")
    require_row_invariance(half, SHAPE, in_flight=2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("candidates", [None, 20])
def test_on_a_gpu_with_two_batches_in_flight(tmp_path: Path, dtype: str, candidates: int | None) -> None:
    model = CausalModel(make_llama(tmp_path), name="tiny", device="cuda", dtype=dtype)
    require_row_invariance(model, Shape(5, 30, 2, 60, 48, candidates), in_flight=2)


@pytest.mark.parametrize("fewest", [0, 32], ids=["all candidates", "more than were asked for"])
def test_a_head_for_candidates_that_mixes_rows_is_caught(
    model: CausalModel, monkeypatch: pytest.MonkeyPatch, fewest: int
) -> None:
    through = Head.__call__

    def mixing(self: Head, hidden: Any) -> Any:
        logits = through(self, hidden)
        return logits + hidden.mean() * TINY if fewest < len(self.weight) < model.vocabulary else logits

    monkeypatch.setattr(Head, "__call__", mixing)
    check_caught_now_and_not_before(model)


def change_hidden(monkeypatch: pytest.MonkeyPatch, change: Callable[[_ContextBlock, Any], Any]) -> None:
    """The twin: hidden states that are what ``change`` makes of them."""
    forward = _ContextBlock._forward
    monkeypatch.setattr(_ContextBlock, "_forward", lambda self, model: change(self, forward(self, model)))


def test_a_cache_that_mixes_rows_once_it_has_grown_is_caught(
    model: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = columns(SHAPE.prefix + 1 + SHAPE.width + SHAPE.suffix)
    change_hidden(
        monkeypatch,
        lambda block, hidden: hidden + hidden.mean() * TINY if block.columns > start else hidden,
    )
    check_caught_now_and_not_before(model)


def test_going_back_that_mixes_rows_is_caught(model: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rewind = _ContextBlock.rewind

    def mixing(self: _ContextBlock, steps: int) -> None:
        rewind(self, steps)
        self.hidden = self.hidden + self.hidden.mean() * TINY

    monkeypatch.setattr(_ContextBlock, "rewind", mixing)
    check_caught_now_and_not_before(model)


@pytest.mark.parametrize("length", ["longer than there are rows", "as long as can be", "empty"])
def test_rows_of_every_length_are_tried(model: CausalModel, monkeypatch: pytest.MonkeyPatch, length: str) -> None:
    """The twin lets rows of some lengths see the block; before they were 1, 2, ..., R long, full ones unlooked at."""
    chosen = {"longer than there are rows": range(9, 30), "as long as can be": [30], "empty": [0]}[length]

    def mixing(block: _ContextBlock, hidden: Any) -> Any:
        own = block._mask[:, : block.length].sum(1) - SHAPE.prefix - SHAPE.suffix - int(block.last.shape[1] == 1)
        return torch.where(torch.isin(own, torch.tensor(list(chosen)))[:, None], hidden + hidden.mean() * TINY, hidden)

    change_hidden(monkeypatch, mixing)
    check_caught_now_and_not_before(model)


def test_every_place_of_a_block_is_tried(model: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin shows place 5 in a block whose rows are all as long: copies of one, of which there were none."""

    def mixing(block: _ContextBlock, hidden: Any) -> Any:
        hidden[5] += TINY if len(block._mask[:, : block.length].sum(1).unique()) == 1 else 0.0
        return hidden

    change_hidden(monkeypatch, mixing)
    check_caught_now_and_not_before(model)


def test_batches_in_flight_that_change_one_another_are_caught(
    model: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, counting, running = _ContextBlock._forward, threading.Lock(), [0]

    def mixing(self: _ContextBlock, model: CausalModel) -> Any:
        with counting:
            running[0] += 1
        time.sleep(0.01)
        hidden = forward(self, model) * (1.0 + TINY * (running[0] - 1))
        with counting:
            running[0] -= 1
        return hidden

    monkeypatch.setattr(_ContextBlock, "_forward", mixing)
    require_row_invariance(model, SHAPE, in_flight=1)
    check_caught_now_and_not_before(model, in_flight=2)


def test_a_release_tries_what_it_will_use(model: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[Shape, int]] = []
    monkeypatch.setattr(
        "understudy.models.causal.require_row_invariance",
        lambda _model, shape, in_flight: tried.append((shape, in_flight)),
    )
    monkeypatch.setattr(CausalModel, "batches_in_flight", lambda *_: 2)
    frame: dict[str, Any] = {"prefix": [1] * 5, "width": 9, "suffix": [2], "tokens": 7, "rows_at_once": 8}
    for candidates in (20, None, 20):
        model.contexts([[5], [6]], candidates=candidates, **frame)
    assert tried == [(Shape(5, 9, 1, 7, 8, 20), 2), (Shape(5, 9, 1, 7, 8, None), 2)]
