"""A causal language model from a local folder: weights, tokenizer, chat form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understudy.errors import ModelError
from understudy.models.attention import use_grouped_attention
from understudy.models.cache import sha256_files
from understudy.models.types import Message


def load_weights(folder: Path, *, name: str, device: str, dtype: str | None) -> tuple[Any, Any, str]:
    """The model in evaluation mode on ``device``, its tokenizer, and the SHA-256 over weights and tokenizer.

    To be called where the extra ``local`` is known to be there.

    Args:
        folder: configuration, tokenizer and weights in safetensors. Code in it is never run.
        name: the model's name in errors.
        device: ``"cpu"`` or ``"cuda"``.
        dtype: ``"float32"`` or ``"bfloat16"``; default by processor.

    Raises:
        ModelError: the folder holds no such model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        fingerprint = sha256_files(folder, [*folder.glob("*.safetensors"), *folder.glob("tokenizer*")])
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            dtype=getattr(torch, dtype or _fast_dtype(device)),
        )
    except Exception as error:  # the libraries raise whatever they like on a foreign folder
        raise ModelError(
            f"The folder of {name} holds no causal language model that can be loaded ({type(error).__name__}).",
            "Give a transformers model with weights in safetensors and no code of its own.",
        ) from error
    use_grouped_attention(model)
    return model.eval().to(device), tokenizer, fingerprint


def model_window(model: Any) -> int:
    """Most tokens of a prompt and its continuation together."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", 2**31))


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return frozenset(end for end in [*ends, tokenizer.eos_token_id] if end is not None)


def render(tokenizer: Any, messages: Sequence[Message]) -> str:
    """The messages in the model's own chat form, up to where the assistant answers.

    A template without system turns gets it in the user's turn. A tokenizer without a template belongs to a base
    model: it sees lines ``role: content`` and completes the assistant's line.
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


def _fast_dtype(device: str) -> str:
    """bfloat16 where the processor multiplies in it (measured four times as fast), else float32."""
    import torch

    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    able = torch.cpu.get_capabilities()
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"
