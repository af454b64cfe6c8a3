"""Attention for one new token a row, over grouped key-value heads, without copying the cache.

torch's own kernel for this shape is slow on CPUs in bfloat16 (measured: four times this on a padded batch,
twenty times on an unpadded one), and half of a decoding step is spent there.
"""

from __future__ import annotations

from typing import Any

_NAME = "understudy-grouped"

KERNELS = frozenset({_NAME, "sdpa", "eager", None})
"""Names of attention that computes each row by itself, padding included; None where a model has no choice."""


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
    """``query[B, H, T, D]`` against ``key`` and ``value[B, K, L, D]`` with K dividing H; returns ``[B, T, H, D]``."""
    import torch
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
