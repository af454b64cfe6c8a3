"""A causal model on this machine: its tokens, its logits, its window, its memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from local_fixtures import WINDOW, make_llama
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from understudy.base.errors import ModelError
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.shared_prefix import Contexts
from understudy.models.types import Message


@pytest.fixture(scope="module")
def model(llama: Path) -> CausalModel:
    return load_causal(f"hf:{llama}", device="cpu", dtype="float32")


ROWS = [[5, 9, 30, 8], [40], [7, 7, 100, 41, 60, 33, 20], [200, 201], [3]]
PREFIX, SUFFIX = [50, 51, 52], [60, 61]


def logits(contexts: Contexts) -> torch.Tensor:
    return torch.cat([block.logits[: block.real] for block in contexts.blocks()])


def plainly(folder: Path, row: Sequence[int]) -> torch.Tensor:
    """What transformers answers to one row alone."""
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        found: torch.Tensor = network(input_ids=torch.tensor([list(row)])).logits[0, -1]
    return found


def as_folder(config: Any, folder: Path) -> Path:
    """A model of another architecture with random weights, and the tiny Llama's tokenizer."""
    make_llama(folder)
    torch.manual_seed(1)
    network = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    network.save_pretrained(folder)
    return folder


SMALL = {
    "vocab_size": 259,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
OTHERS = {
    "Qwen2": transformers.Qwen2Config(**SMALL),
    "Gemma2, soft caps": transformers.Gemma2Config(**SMALL, head_dim=8, sliding_window=64, final_logit_softcapping=5.0),
    "Granite, scaled logits": transformers.GraniteConfig(**SMALL, logits_scaling=4.0, attention_multiplier=0.3),
    "GPT-2": transformers.GPT2Config(vocab_size=259, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    "OPT": transformers.OPTConfig(
        vocab_size=259, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, word_embed_proj_dim=32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("suffix", [[], SUFFIX], ids=["no cue", "cue"])
@pytest.mark.parametrize("prefix", [[], PREFIX], ids=["no prefix", "prefix"])
def test_a_batch_gives_each_row_s_logits(llama: Path, model: CausalModel, prefix: list[int], suffix: list[int]) -> None:
    contexts = model.contexts(ROWS, prefix=prefix, width=9, suffix=suffix, tokens=40, rows_at_once=3)
    given: list[int] = []
    for token in (None, 77, 12, 30, *range(100, 136)):
        if token is not None:
            contexts.step(token)
            given.append(token)
        if token is None or token in (77, 30, 135):
            found = logits(contexts)
            for number, row in enumerate(ROWS):
                expected = plainly(llama, [*prefix, *row, *suffix, *given])
                assert torch.allclose(found[number], expected, atol=2e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures_give_their_own_logits(name: str, tmp_path: Path) -> None:
    folder = as_folder(OTHERS[name], tmp_path)
    model = load_causal(f"hf:{folder}", device="cpu", dtype="float32")
    assert model.head is not None
    contexts = model.contexts(ROWS, prefix=PREFIX, width=9, suffix=SUFFIX, tokens=3, rows_at_once=2)
    for number in range(3):
        contexts.step(70 + number)
    for number, row in enumerate(ROWS):
        expected = plainly(folder, [*PREFIX, *row, *SUFFIX, 70, 71, 72])
        assert torch.allclose(logits(contexts)[number], expected, atol=1e-3 * float(expected.abs().max()))


def test_a_head_of_its_own_kind_is_noticed_and_asked_through_the_whole_model(
    llama: Path, model: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = transformers.LlamaForCausalLM.forward

    def squared(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = forward(self, *args, **kwargs)
        output.logits = output.logits.square()
        return output

    rows = {"prefix": PREFIX, "width": 9, "suffix": SUFFIX, "tokens": 3, "rows_at_once": 2}
    known = model.contexts(ROWS, **rows)  # type: ignore[arg-type]
    monkeypatch.setattr(transformers.LlamaForCausalLM, "forward", squared)
    unknown = load_causal(f"hf:{llama}", device="cpu", dtype="float32")
    assert unknown.head is None
    contexts = unknown.contexts(ROWS, **rows)  # type: ignore[arg-type]
    for token in (None, 4, 5):
        if token is not None:
            known.step(token)
            contexts.step(token)
        assert torch.allclose(logits(contexts), logits(known).square(), rtol=1e-3, atol=1e-2)
        assert torch.allclose(contexts.public_logits(), known.public_logits().square(), rtol=1e-3, atol=1e-2)
        some = torch.tensor([3, 9, 200])
        assert torch.equal(next(contexts.blocks(some)).logits, next(contexts.blocks()).logits[:, some])


def test_a_model_whose_state_cannot_go_back_is_refused(tmp_path: Path) -> None:
    config = transformers.MambaConfig(vocab_size=259, hidden_size=32, num_hidden_layers=2, state_size=4)
    with pytest.raises(ModelError, match="reset to the end of the prompt"):
        load_causal(f"hf:{as_folder(config, tmp_path)}", device="cpu")


def test_the_window_is_no_wider_than_a_sliding_one(tmp_path: Path) -> None:
    config = transformers.Gemma2Config(**SMALL, head_dim=8, sliding_window=20)
    model = load_causal(f"hf:{as_folder(config, tmp_path)}", device="cpu", dtype="float32")
    assert model.window == 19
    frame: dict[str, Any] = {"prefix": PREFIX, "suffix": SUFFIX, "tokens": 5, "rows_at_once": 2}
    contexts = model.contexts(ROWS, width=9, **frame)
    for _ in range(5):
        contexts.step(70)
    expected = plainly(tmp_path, [*PREFIX, *ROWS[3], *SUFFIX, *[70] * 5])
    assert torch.allclose(logits(contexts)[3], expected, atol=1e-3 * float(expected.abs().max()))
    with pytest.raises(ModelError, match="window of 19 tokens"):
        model.contexts(ROWS, width=10, **frame)


@pytest.mark.parametrize("spec", ["openai:gpt-x", "none", "acme:model", "", "hf:"])
def test_a_model_that_is_not_on_this_machine_may_not_read_private_text(spec: str) -> None:
    with pytest.raises(ModelError, match="must run on this machine"):
        load_causal(spec)


def test_text_becomes_tokens_and_text_again(model: CausalModel) -> None:
    tokens = model.encode("Grüße, 17 °C")
    assert model.decode(tokens) == "Grüße, 17 °C"
    assert model.decode([*tokens, *model.ends]) == "Grüße, 17 °C"
    assert model.begin == []
    assert model.ends == {2}
    assert model.vocabulary == 259


def test_the_token_that_begins_a_text_is_named(tmp_path: Path) -> None:
    make_llama(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A <|im_end|>", special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)("a")["input_ids"][0] == 0
    model = load_causal(f"hf:{tmp_path}", device="cpu")
    assert model.begin == [0]
    assert 0 not in model.encode("a")


def test_messages_take_the_models_own_form(model: CausalModel, tmp_path: Path) -> None:
    messages = [Message("system", "Write."), Message("user", "Now")]
    assert model.has_chat_template
    assert model.render(messages).endswith("<|im_end|>\n<|im_start|>assistant\n")
    plain = load_causal(f"hf:{make_llama(tmp_path, template=None)}", device="cpu")
    assert not plain.has_chat_template
    assert plain.render(messages) == "system: Write.\nuser: Now\nassistant:"


def test_the_fingerprint_is_the_weights(model: CausalModel, tmp_path: Path) -> None:
    same = load_causal(f"hf:{make_llama(tmp_path / 'same')}", device="cpu")
    other = load_causal(f"hf:{make_llama(tmp_path / 'other', seed=1)}", device="cpu")
    assert len(model.fingerprint) == 64
    assert model.fingerprint == same.fingerprint != other.fingerprint
    assert model.model_id.endswith(f"@{model.fingerprint[:12]}")


def test_what_does_not_fit_the_window_is_one_clear_error(model: CausalModel) -> None:
    fits = {"prefix": PREFIX, "suffix": SUFFIX, "rows_at_once": 2, "tokens": 10}
    model.contexts(ROWS, width=WINDOW - 15, **fits)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=f"prompt of {WINDOW - 9} tokens and 10 new ones"):
        model.contexts(ROWS, width=WINDOW - 14, **fits)  # type: ignore[arg-type]


def test_batches_in_flight_fill_half_of_the_free_memory(model: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.token_bytes == 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, bytes
    monkeypatch.setattr("understudy.models.causal.worker_count", lambda device: 4)
    for free, batches in ((1, 1), (100, 1), (399, 1), (400, 2), (650, 3), (10**9, 4)):
        monkeypatch.setattr("understudy.models.causal._free_bytes", lambda device, free=free: free * model.token_bytes)
        assert model.batches_in_flight(10, 10) == batches


@pytest.mark.parametrize("size", [1, 7, 16, 64, 256, 1000])
def test_blocks_hold_the_expected_rows_with_a_little_room(model: CausalModel, size: int) -> None:
    rows = model.rows_at_once(size)
    assert 1 <= rows <= 128
    filled = -(-(size + 1) // rows) * rows
    assert rows % 8 == 0
    assert size + 1 <= filled <= size + 1 + 2 * size**0.5 + 8 * filled // rows


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_one_clear_error(llama: Path) -> None:
    with pytest.raises(ModelError, match="sees no CUDA device"):
        load_causal(f"hf:{llama}", device="cuda")


def test_a_model_computes_in_the_precision_that_is_asked_for(llama: Path, model: CausalModel) -> None:
    assert model.network.dtype == torch.float32
    assert load_causal(f"hf:{llama}", device="cpu", dtype="bfloat16").network.dtype == torch.bfloat16
