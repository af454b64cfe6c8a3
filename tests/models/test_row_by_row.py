"""Models in which one row of a batch changes another are refused, or kept to where it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from local_fixtures import make_llama
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig

from understudy.base.errors import ModelError, PrivacyError
from understudy.models.causal import CausalModel
from understudy.models.row_invariance import require_separate_rows, separate_positions

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
    with pytest.raises(PrivacyError, match="change with the texts beside it"):
        model.contexts([[5], [6, 7]], prefix=[1] * 8, width=100, tokens=4, rows_at_once=8)
    monkeypatch.setattr("understudy.models.causal.require_row_invariance", lambda *_, **__: None)
    alone = model.contexts([[5], [6, 7]], prefix=[1] * 8, width=100, tokens=4, rows_at_once=8).public_logits()
    moved = model.contexts([[5], [6] * 100], prefix=[1] * 8, width=100, tokens=4, rows_at_once=8).public_logits()
    assert not torch.equal(alone, moved)
