"""Models in which one row of a batch changes another are refused, or kept to where it cannot."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from local_fixtures import make_llama
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig

from understudy.base.errors import ModelError, PrivacyError
from understudy.models.causal import CausalModel
from understudy.models.kv_cache import columns
from understudy.models.row_invariance import Shape, require_row_invariance, require_separate_rows, separate_positions
from understudy.models.shared_prefix import Contexts, Head, _ContextBlock

FIRST = 64
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": FIRST,
    "factor": 8.0,
}


class Stub(torch.nn.Module):
    def __init__(self, config: Any, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.config = config
        self.layers = torch.nn.ModuleList(layers)


def configured(**settings: Any) -> Stub:
    config = LlamaConfig()
    for name, value in settings.items():
        setattr(config, name, value)
    return Stub(config).eval()


def made_of(*layers: torch.nn.Module) -> Stub:
    return Stub(LlamaConfig(), *layers).eval()


def test_a_dense_model_may_be_used() -> None:
    require_separate_rows(made_of(torch.nn.Linear(32, 48), torch.nn.Embedding(7, 3)), name="llama")
    assert separate_positions(made_of(), 2048) == 2048


@pytest.mark.parametrize(
    "model",
    [
        Stub(MixtralConfig()).eval(),
        made_of(type("TinySparseMoeBlock", (torch.nn.Module,), {})()),
        configured(n_routed_experts=256),
        configured(moe_num_experts=64),
        configured(num_experts=8),
    ],
)
def test_a_model_with_routed_experts_is_refused(model: Stub) -> None:
    with pytest.raises(ModelError, match="routed experts"):
        require_separate_rows(model, name="experts")


def test_experts_that_all_tokens_go_through_are_no_reason() -> None:
    require_separate_rows(configured(n_shared_experts=2, num_experts_per_tok=2, num_experts=1), name="shared")


def test_a_quantised_model_is_refused() -> None:
    with pytest.raises(ModelError, match="quantised"):
        require_separate_rows(configured(quantization_config={"load_in_8bit": True}), name="small")
    small = torch.nn.Module()
    small.weight = torch.nn.Parameter(torch.zeros(16, 16, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ModelError, match="quantised"):
        require_separate_rows(made_of(small), name="small")


def test_a_model_that_normalises_over_the_batch_or_is_in_training_is_refused() -> None:
    require_separate_rows(made_of(torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5)), name="with statistics of its own")
    batch = made_of(torch.nn.BatchNorm1d(16, track_running_stats=False))
    left_on = made_of(torch.nn.Dropout(0.5))
    left_on.layers[0].train()
    for model in (batch, left_on):
        with pytest.raises(ModelError, match="normalises over the texts of a batch, or samples"):
            require_separate_rows(model, name="mixing")


def test_attention_that_drops_the_padding_is_refused() -> None:
    for kernel in ("flash_attention_2", "kernels-community/flash-attn3", "flex_attention"):
        model = made_of()
        model.config._attn_implementation_internal = kernel
        with pytest.raises(ModelError, match=f"attention by '{kernel}'"):
            require_separate_rows(model, name="flash")


def test_widths_that_leave_numbers_over_after_whole_vectors_are_refused(tmp_path: Path) -> None:
    for layer in (torch.nn.Linear(33, 32), torch.nn.Linear(32, 72)):
        with pytest.raises(ModelError, match=f"width {33 if layer.in_features == 33 else 72}, no multiple of 16"):
            require_separate_rows(made_of(layer), name="odd")
    folder = make_llama(tmp_path)
    LlamaForCausalLM(
        LlamaConfig(**{**LlamaConfig.from_pretrained(folder).to_dict(), "intermediate_size": 33})
    ).save_pretrained(folder)
    with pytest.raises(ModelError, match="width 33"):
        CausalModel(folder, name="odd", device="cpu")


def test_positions_that_hang_on_the_longest_row_stay_below_where_they_change() -> None:
    assert separate_positions(configured(rope_parameters=LONG_ROPE), 512) == FIRST
    nested = {"full_attention": LONG_ROPE, "sliding_attention": {"rope_type": "default"}}
    assert separate_positions(configured(rope_parameters=nested), 512) == FIRST
    above = {key: value for key, value in LONG_ROPE.items() if key != "original_max_position_embeddings"}
    model = configured(rope_parameters=above, original_max_position_embeddings=128)
    assert separate_positions(model, 512) == 128
    dynamic = {"rope_type": "dynamic", "factor": 4.0}
    assert separate_positions(configured(rope_parameters=dynamic, max_position_embeddings=96), 512) == 96
    assert separate_positions(configured(rope_parameters={**LONG_ROPE, "rope_type": "yarn"}), 512) == 512


def test_a_row_long_enough_to_change_the_others_positions_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_llama(tmp_path / "long", window=512)
    config = json.loads((folder / "config.json").read_text())
    config |= {"rope_parameters": LONG_ROPE, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    model = CausalModel(folder, name="long", device="cpu", dtype="float32")
    assert model.window == FIRST
    with pytest.raises(ModelError, match="do not fit the window"):
        model.contexts([[5], [6] * 60], prefix=[1] * 8, width=60, tokens=4, rows_at_once=8)
    short = model.contexts([[5], [6, 7]], prefix=[1] * 8, width=40, tokens=4, rows_at_once=8).public_logits()
    beside = model.contexts([[5], [6] * 40], prefix=[1] * 8, width=40, tokens=4, rows_at_once=8).public_logits()
    assert torch.equal(short, beside)
    model.window = 512  # the twin without the limit: one long row moves the public one
    with pytest.raises(PrivacyError, match="change with the other texts"):
        model.contexts([[5], [6, 7]], prefix=[1] * 8, width=100, tokens=4, rows_at_once=8)
    monkeypatch.setattr("understudy.models.causal.require_row_invariance", lambda *_, **__: None)
    alone = model.contexts([[5], [6, 7]], prefix=[1] * 8, width=100, tokens=4, rows_at_once=8).public_logits()
    moved = model.contexts([[5], [6] * 100], prefix=[1] * 8, width=100, tokens=4, rows_at_once=8).public_logits()
    assert not torch.equal(alone, moved)


# -- the probe of a private model catches what it must, each by a twin that breaks one thing only ---------------------


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


def check_caught_now_and_not_before(model: CausalModel, shape: Shape = SHAPE) -> None:
    assert before(model, shape)
    with pytest.raises(PrivacyError, match="change with the other texts"):
        require_row_invariance(model, shape, in_flight=1)


@pytest.mark.parametrize("candidates", [None, 1, 20, 256])
@pytest.mark.parametrize("tokens", [0, 1, 60])
@pytest.mark.parametrize("suffix", [0, 2])
def test_a_model_of_separate_rows_passes(model: CausalModel, candidates: int | None, tokens: int, suffix: int) -> None:
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
def test_a_head_that_mixes_rows_is_caught(model: CausalModel, monkeypatch: pytest.MonkeyPatch, fewest: int) -> None:
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


def test_a_cache_that_mixes_rows_after_growth_is_caught(model: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    start = columns(SHAPE.prefix + 1 + SHAPE.width + SHAPE.suffix)
    change_hidden(monkeypatch, lambda block, hidden: hidden + hidden.mean() * TINY if block.columns > start else hidden)
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


def test_batches_in_flight_that_change_others_are_caught(model: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, counting, running, met = _ContextBlock._forward, threading.Lock(), [0], threading.Event()
    met.set()

    def mixing(self: _ContextBlock, model: CausalModel) -> Any:
        with counting:
            running[0] += 1
            beside = running[0] - 1
        if beside:
            met.set()
        if threading.current_thread() is not threading.main_thread():  # where the first block is alone
            met.wait(60)
        hidden = forward(self, model) * (1.0 + TINY * beside)
        with counting:
            running[0] -= 1
        return hidden

    monkeypatch.setattr(_ContextBlock, "_forward", mixing)
    assert before(model, SHAPE)
    require_row_invariance(model, SHAPE, in_flight=1)
    met.clear()
    with pytest.raises(PrivacyError, match="change with the other texts"):
        require_row_invariance(model, SHAPE, in_flight=2)


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
