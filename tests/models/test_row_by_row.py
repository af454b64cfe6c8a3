"""Models in which one row of a batch changes another are refused, or kept to where it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from local_fixtures import make_llama
from transformers import LlamaConfig, MixtralConfig

from understudy.errors import ModelError
from understudy.models.causal import CausalModel
from understudy.models.row_by_row import require_separate_rows, separate_positions

FIRST = 64
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": FIRST,
    "factor": 8.0,
}


class Stub:
    def __init__(self, config: Any) -> None:
        self.config = config


def configured(**settings: Any) -> Stub:
    config = LlamaConfig()
    for name, value in settings.items():
        setattr(config, name, value)
    return Stub(config)


def test_a_dense_model_may_be_used() -> None:
    require_separate_rows(Stub(LlamaConfig()), name="llama")
    assert separate_positions(Stub(LlamaConfig()), 2048) == 2048


@pytest.mark.parametrize(
    "model",
    [
        Stub(MixtralConfig()),
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


def test_positions_that_hang_on_the_longest_row_stay_below_where_they_change() -> None:
    assert separate_positions(configured(rope_parameters=LONG_ROPE), 512) == FIRST
    nested = {"full_attention": LONG_ROPE, "sliding_attention": {"rope_type": "default"}}
    assert separate_positions(configured(rope_parameters=nested), 512) == FIRST
    above = {key: value for key, value in LONG_ROPE.items() if key != "original_max_position_embeddings"}
    model = configured(rope_parameters=above, original_max_position_embeddings=128)
    assert separate_positions(model, 512) == 128
    assert separate_positions(configured(rope_parameters={**LONG_ROPE, "rope_type": "yarn"}), 512) == 512


def test_a_row_long_enough_to_change_the_others_positions_does_not_fit(tmp_path: Path) -> None:
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
    model._window = 512  # the twin without the limit: one long row moves the public one
    model._tried.add((8, 100, 0, 8))
    alone = model.contexts([[5], [6, 7]], prefix=[1] * 8, width=100, tokens=4, rows_at_once=8).public_logits()
    moved = model.contexts([[5], [6] * 100], prefix=[1] * 8, width=100, tokens=4, rows_at_once=8).public_logits()
    assert not torch.equal(alone, moved)
