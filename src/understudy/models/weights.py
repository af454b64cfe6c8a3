"""Load a causal language model from a local folder: weights, tokenizer, chat form, and attention for decoding.

torch's attention for one new token per row is slow on CPUs in bfloat16 (measured: four times the time of this module's
on a padded batch, twenty times on an unpadded one), and takes half of a decoding step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understudy.base.errors import ModelError
from understudy.base.files import files_sha256
from understudy.base.lazy import torch
from understudy.models.machine import named_in_environment
from understudy.models.types import Message


def load_weights(folder: Path, *, name: str, device: str, dtype: str | None) -> tuple[Any, Any, str]:
    """Return the model in evaluation mode on ``device``, its tokenizer, and the SHA-256 over weights and tokenizer.

    ModelError if the folder has no such model. Arguments as for :class:`understudy.models.local.LocalChat`.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        fingerprint = files_sha256(folder, [*folder.glob("*.safetensors"), *folder.glob("tokenizer*")])
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            dtype=getattr(torch, dtype or _best_dtype(device)),
        )
    except Exception as error:  # the libraries raise whatever they like on a foreign folder
        raise ModelError(
            f"The folder of {name} contains no causal language model that can be loaded ({type(error).__name__}).",
            "Give a transformers model with weights in safetensors and no custom code.",
        ) from error
    use_grouped_attention(model)
    return model.eval().to(device), tokenizer, fingerprint


def model_window(model: Any) -> int:
    """Return the most tokens of a prompt and its continuation together."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", 2**31))


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end an answer."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return frozenset(end for end in [*ends, tokenizer.eos_token_id] if end is not None)


def render(tokenizer: Any, messages: Sequence[Message]) -> str:
    """Return the messages in the model's chat form, up to the assistant's answer.

    If the template has no system turns, the user's turn contains that text. A tokenizer without a template belongs to a
    base model: it sees lines ``role: content`` and completes the assistant's line.
    """
    if tokenizer.chat_template is None:
        return "\n".join([*(f"{message.role}: {message.content}" for message in messages), "assistant:"])
    turns = [{"role": message.role, "content": message.content} for message in messages]
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    except Exception:  # jinja2.TemplateError, raised by the template itself
        if len(turns) < 2 or turns[0]["role"] != "system":
            raise
        merged = {"role": "user", "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}
        turns = [merged, *turns[2:]]
        return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def _best_dtype(device: str) -> str:
    """Return bfloat16 if the processor multiplies matrices in it, else float32; or the value of ``UNDERSTUDY_DTYPE``.

    With AMX, bfloat16 was measured four times as fast; with AVX-512 alone, float32 is 1.4 times as fast (64 rows)."""
    if said := named_in_environment("UNDERSTUDY_DTYPE", ("float32", "bfloat16")):
        return said
    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    return "bfloat16" if torch.cpu.get_capabilities().get("amx_bf16") else "float32"


_NAME = "understudy-grouped"

KERNELS = frozenset({_NAME, "sdpa", "eager", None})
"""Names of attention that computes each row separately, including padding; None if a model has no choice."""


def use_grouped_attention(model: Any) -> None:
    """Switch a transformers model to grouped attention, if it uses torch's standard one now."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if model.config._attn_implementation == "sdpa":
        AttentionInterface.register(_NAME, _attention)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)


def _attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float | None = None, **rest: Any
) -> tuple[Any, None]:
    """Attend with ``query[B, H, T, D]`` to ``key``, ``value[B, K, L, D]``, K dividing H; returns ``[B, T, H, D]``."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    rows, heads, length, width = query.shape
    if length > 1 or rest.get("position_bias") is not None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **rest)
        return output, None
    groups = key.shape[1]
    scores = torch.matmul(query.reshape(rows, groups, heads // groups, width), key.transpose(2, 3))
    scores = scores * (width**-0.5 if scaling is None else scaling)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value).reshape(rows, 1, heads, width), None
