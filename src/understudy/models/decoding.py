"""Prefill and decode one batch of prompts with a KV cache.

Rows are padded on the left; masks and positions leave the padding out, so a row's answer does not depend on its
neighbours beyond the float noise of another batch shape. What all prompts begin with is computed once. Rows that
have finished leave the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.models.sampling import choose_tokens
from understudy.models.types import Completion, FinishReason
from understudy.models.weights import end_tokens

_SHARED_AT_LEAST = 16  # tokens in common below which computing them once is not worth a pass of its own


@dataclass(frozen=True)
class Prompt:
    """One row: the prompt's tokens, how to sample, and the uniforms to sample with (one a token)."""

    tokens: list[int]
    temperature: float
    top_p: float
    stop: tuple[str, ...]
    uniforms: NDArray[np.float64]


@dataclass
class _Row:
    prompt: Prompt
    answer: list[int] = field(default_factory=list)
    reason: FinishReason | None = None

    def take(self, token: int, tokenizer: Any, ends: frozenset[int]) -> None:
        """Note the token drawn and whether the answer ends with it."""
        if token in ends:
            self.reason = "stop"
            return
        self.answer.append(token)
        if self._stop_at(tokenizer) is not None:
            self.reason = "stop"
        elif len(self.answer) == len(self.prompt.uniforms):
            self.reason = "length"

    def completion(self, tokenizer: Any) -> Completion:
        text = tokenizer.decode(self.answer, skip_special_tokens=True)
        cuts = [text.index(stop) for stop in self.prompt.stop if stop in text]
        text = text[: min(cuts)] if cuts else text
        reason = self.reason or "length"
        return Completion(
            text=text,
            finish_reason=reason if text.strip() else "empty",
            prompt_tokens=len(self.prompt.tokens),
            completion_tokens=len(self.answer) + (reason == "stop" and not cuts),
        )

    def _stop_at(self, tokenizer: Any) -> str | None:
        """The stop string that the newest tokens complete. A token holds one byte at least, so few need a look."""
        for stop in self.prompt.stop:
            tail = tokenizer.decode(self.answer[-len(stop.encode()) - 4 :], skip_special_tokens=True)
            if stop in tail:
                return stop
        return None


class Decoder:
    """A causal model with its tokenizer, ready to answer batches; may be used by several threads at once.

    Args:
        model: a transformers causal language model in evaluation mode.
        tokenizer: its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._ends = end_tokens(model, tokenizer)

    def answer(self, prompts: Sequence[Prompt], *, cancelled: threading.Event) -> list[Completion]:
        """One completion a prompt, in order; none at all once ``cancelled`` is set."""
        import torch

        rows = [_Row(prompt) for prompt in prompts]
        with torch.inference_mode():
            self._decode(rows, cancelled)
        return [] if cancelled.is_set() else [row.completion(self._tokenizer) for row in rows]

    def _decode(self, rows: list[_Row], cancelled: threading.Event) -> None:
        """Run the model until every row has ended."""
        import torch

        logits, cache, mask = self._prefill([row.prompt.tokens for row in rows])
        device = logits.device
        position = mask.sum(1)
        temperature = torch.tensor([row.prompt.temperature for row in rows], device=device)
        top_p = torch.tensor([row.prompt.top_p for row in rows], device=device)
        longest = max(len(row.prompt.uniforms) for row in rows)
        padded = [np.pad(row.prompt.uniforms, (0, longest - len(row.prompt.uniforms))) for row in rows]
        uniforms = torch.tensor(np.array(padded, dtype=np.float32), device=device)
        for step in range(longest):
            tokens = choose_tokens(logits, temperature=temperature, top_p=top_p, uniform=uniforms[:, step])
            for row, token in zip(rows, tokens.tolist(), strict=True):
                if row.reason is None:
                    row.take(token, self._tokenizer, self._ends)
            going = [number for number, row in enumerate(rows) if row.reason is None]
            if not going or cancelled.is_set():
                return
            if len(going) <= len(rows) * 7 // 8:  # not at every end: each time copies the cache
                kept = torch.tensor(going, device=device)
                rows = [rows[number] for number in going]
                cache.batch_select_indices(kept)
                tokens, position, mask = tokens[kept], position[kept], mask[kept]
                temperature, top_p, uniforms = temperature[kept], top_p[kept], uniforms[kept]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            logits = self._forward(tokens[:, None], position[:, None], mask, cache)
            position = position + 1

    def _prefill(self, prompts: list[list[int]]) -> tuple[Any, Any, Any]:
        """Logits after each prompt, the cache, and the mask ``Int64[B, L]`` of what in the cache is no padding."""
        import torch
        from transformers import DynamicCache

        device = self._model.device
        cache = DynamicCache(config=self._model.config)
        shared = _shared_prefix(prompts)
        if shared:
            prefix = torch.tensor([prompts[0][:shared]], device=device)
            self._forward(prefix, torch.arange(shared, device=device)[None], torch.ones_like(prefix), cache)
            cache.batch_repeat_interleave(len(prompts))
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        rows = [[0] * pad + prompt[shared:] for pad, prompt in zip(padding, prompts, strict=True)]
        tokens = torch.tensor(rows, device=device)
        mask = torch.ones(len(prompts), longest, dtype=torch.long, device=device)
        mask[:, shared:] = (
            torch.arange(longest - shared, device=device) >= torch.tensor(padding, device=device)[:, None]
        )
        position = (mask.cumsum(1) - 1)[:, shared:].clamp(min=0)
        return self._forward(tokens, position, mask, cache), cache, mask

    def _forward(self, tokens: Any, position: Any, mask: Any, cache: Any) -> Any:
        """One pass of the model over new tokens, which the cache keeps; logits ``[B, V]`` after the last."""
        output = self._model(
            input_ids=tokens, position_ids=position, attention_mask=mask, past_key_values=cache, logits_to_keep=1
        )
        return output.logits[:, -1]


def _shared_prefix(prompts: list[list[int]]) -> int:
    """How many tokens all prompts begin with, leaving at least one to each; 0 where it saves nothing."""
    if len(prompts) == 1:
        return 0
    most = min(map(len, prompts)) - 1
    columns = zip(*(prompt[:most] for prompt in prompts), strict=True)
    shared = next((place for place, column in enumerate(columns) if len(set(column)) > 1), most)
    return shared if shared >= _SHARED_AT_LEAST else 0
