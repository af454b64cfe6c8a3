"""Many contexts that continue with the same tokens: prefill once, one step per token, back to the prompt at will.

**Row invariance.** What is summed over private rows has bounded sensitivity only if one row cannot change another's
logits. Floating-point results do change with the shape of a batch, so the model sees one shape only: blocks of
exactly R rows, each padded to the same width, the last block filled with copies of row 0. Every row has at least
one column of padding, since transformers takes another kernel where no row of a block is padded. On a CPU all runs in
one thread: several would share out a block's rows, and where their shares meet a row's last bits differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from understudy.base.errors import ModelError
from understudy.models.machine import single_threaded_inference


class LocalNetwork(Protocol):
    """What contexts and their trials need of a model: see :class:`understudy.models.causal.CausalModel`."""

    model_id: str
    device: str
    network: Any
    vocabulary: int
    head: Head | None


@dataclass(frozen=True)
class Rows:
    """The next-token logits ``Float[R, K]`` of one block, on the device, in the model's own precision.

    ``first`` is the number of the block's first row, ``real`` how many of its rows are no copies of row 0.
    """

    first: int
    real: int
    logits: Any


class Contexts:
    """Rows of tokens in the model's KV cache; made by :meth:`understudy.models.causal.CausalModel.contexts`.

    Row 0 is by convention the public one. A row is ``prefix + padding + own tokens + suffix``, then the tokens
    given to :meth:`step`, which all rows share. To be used by one thread.

    Attributes:
        rows_at_once: R, the rows of a block.
        steps: tokens appended since the prompt.
    """

    def __init__(
        self,
        model: LocalNetwork,
        rows: Sequence[Sequence[int]],
        *,
        prefix: Sequence[int],
        width: int,
        suffix: Sequence[int],
        tokens: int,
        rows_at_once: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._model = model
        self._rows = len(rows)
        self.rows_at_once = rows_at_once
        self._prompt = len(prefix) + 1 + width + len(suffix)  # one column of padding at least
        self._room = tokens
        self.steps = 0
        with single_threaded_inference():
            start = _prefilled(model, prefix)
            filled = [*rows, *[rows[0]] * (-len(rows) % rows_at_once)]
            self._blocks: list[_Block] = []
            for first in range(0, len(filled), rows_at_once):
                check()
                rows_here = filled[first : first + rows_at_once]
                self._blocks.append(_Block(model, rows_here, start, prefix, width, suffix, self._prompt + tokens))

    def __len__(self) -> int:
        return self._rows

    @property
    def cache_bytes(self) -> int:
        """Bytes of all cached tokens."""
        from understudy.models.kv_cache import cache_bytes

        return sum(cache_bytes(block.cache) for block in self._blocks)

    def step(self, token: int) -> None:
        """Append ``token`` to every row; ModelError where the tokens that there is room for are used up."""
        if self.steps >= self._room:
            raise ModelError(
                f"These contexts have room for {self._room} tokens after the prompt.", "Ask for more tokens."
            )
        self.steps += 1
        with single_threaded_inference():
            for block in self._blocks:
                block.step(self._model, token)

    def rewind(self) -> None:
        """Go back to the end of the prompt."""
        with single_threaded_inference():
            for block in self._blocks:
                block.rewind(self.steps)
        self.steps = 0

    def blocks(self, candidates: Any | None = None) -> Iterator[Rows]:
        """The next-token logits, block by block, of ``candidates`` (``Int64[K]`` on the device) or of all tokens."""
        head = self._model.head and self._model.head.of(candidates)
        for number, block in enumerate(self._blocks):
            first = number * self.rows_at_once
            with single_threaded_inference():
                logits = block.logits(self._model, head, candidates)
            yield Rows(first, min(self.rows_at_once, self._rows - first), logits)

    def public_logits(self, *, whole: bool = False) -> Any:
        """Row 0's next-token logits over the whole vocabulary, ``Float32[V]`` on the device; ModelError if not finite.

        ``whole``: every row's are wanted next, so row 0's whole block is computed, and kept for :meth:`blocks`.
        """
        block = self._blocks[0]
        with single_threaded_inference():
            head = self._model.head
            if whole:
                block.whole = block.logits(self._model, head, None)
                logits = block.whole[0]
            else:
                logits = head(block.hidden[:1])[0] if head else block.logits(self._model, None, None)[0]
            logits = logits.float()
            if not bool(logits.isfinite().all()):
                raise ModelError(
                    f"The logits of {self._model.model_id} after the public prompt are not finite.",
                    "Run it in float32, or use another model.",
                )
        return logits


class _Block:
    """R rows: their cache, and the hidden states of their last tokens."""

    def __init__(
        self,
        model: LocalNetwork,
        rows: Sequence[Sequence[int]],
        start: Any | None,
        prefix: Sequence[int],
        width: int,
        suffix: Sequence[int],
        capacity: int,
    ) -> None:
        import torch

        from understudy.models.kv_cache import begin_with, columns, roomy_cache

        device = model.device
        padding = [width + 1 - len(row) for row in rows]
        tokens = torch.tensor([[0] * pad + [*row, *suffix] for pad, row in zip(padding, rows, strict=True)])
        pads = torch.tensor(padding, device=device)[:, None]
        places = torch.arange(columns(capacity), device=device)
        self._mask = ((places < len(prefix)) | (places >= len(prefix) + pads)).long()
        self._length = len(prefix) + tokens.shape[1]
        position = (places - pads)[:, len(prefix) : self._length].clamp(min=0)
        self._position = position[:, -1:]
        self.cache = roomy_cache(model.network)
        if start is not None:
            begin_with(self.cache, start, rows=len(rows))
        self._last = tokens[:, -1:].to(device)
        self.hidden = self._forward(model, tokens.to(device), position)
        self.whole: Any | None = None  # logits over the whole vocabulary that were computed already
        self._prompt = (self._last, self.hidden)

    def step(self, model: LocalNetwork, token: int) -> None:
        self.whole = None
        self._length += 1
        self._position = self._position + 1
        self._last = self._last.new_full(self._last.shape, token)
        self.hidden = self._forward(model, self._last, self._position)

    def rewind(self, steps: int) -> None:
        if steps:
            self.whole = None
            self.cache.crop(-steps)
            self._length -= steps
            self._position = self._position - steps
            self._last, self.hidden = self._prompt

    def logits(self, model: LocalNetwork, head: Head | None, candidates: Any | None) -> Any:
        """``[R, K]``; by the whole model once more over the last token where its head is not known."""
        if candidates is None and self.whole is not None:
            return self.whole
        if head is not None:
            return head(self.hidden)
        self.cache.crop(-1)
        output = model.network(**self._inputs(self._last, self._position), logits_to_keep=1)
        logits = output.logits[:, -1, : model.vocabulary]
        return logits if candidates is None else logits[:, candidates]

    def _forward(self, model: LocalNetwork, tokens: Any, position: Any) -> Any:
        """Run the model over new tokens ``[R, T]``; the hidden states ``[R, H]`` of the last."""
        return hidden_states(model.network, **self._inputs(tokens, position))[:, -1].clone()

    def _inputs(self, tokens: Any, position: Any) -> dict[str, Any]:
        from understudy.models.kv_cache import columns

        return {
            "input_ids": tokens,
            "position_ids": position,
            "attention_mask": self._mask[:, : columns(self._length)],
            "past_key_values": self.cache,
            "use_cache": True,
        }


def _prefilled(model: LocalNetwork, prefix: Sequence[int]) -> Any | None:
    """The cache of one row that holds the prefix; None for an empty one."""
    import torch
    from transformers import DynamicCache

    if not prefix:
        return None
    cache = DynamicCache(config=model.network.config)
    tokens = torch.tensor([list(prefix)], device=model.device)
    hidden_states(model.network, input_ids=tokens, past_key_values=cache, use_cache=True)
    return cache


_VECTOR = 16  # float32 numbers in the widest register


@dataclass(frozen=True)
class Head:
    """``cap * tanh((hidden @ weight.T + bias) * scale / cap)``; most models have weights ``Float[K, H]`` alone.

    The last ``filled`` tokens fill up whole vectors of the processor and are left out of the result: what is left over
    after those is computed in another way, and a row's last bits would depend on its place among others.
    """

    weight: Any
    bias: Any | None = None
    scale: float = 1.0
    cap: float | None = None
    filled: int = 0

    def of(self, tokens: Any | None) -> Head:
        """The head for the tokens ``Int64[K]`` alone, in that order; for all without a copy."""
        if tokens is None:
            return self
        from torch.nn.functional import pad

        filled = -len(tokens) % _VECTOR
        tokens = pad(tokens, (0, filled))
        bias = None if self.bias is None else self.bias[tokens]
        return Head(self.weight[tokens], bias, self.scale, self.cap, filled)

    def __call__(self, hidden: Any) -> Any:
        """Logits ``Float[R, K]`` of the hidden states ``Float[R, H]``."""
        from torch.nn.functional import linear

        logits = linear(hidden, self.weight, self.bias)
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.cap is not None:
            logits = (logits / self.cap).tanh() * self.cap
        return logits[:, : logits.shape[1] - self.filled]


def find_head(model: Any, *, vocabulary: int) -> Head | None:
    """The model's head over the first ``vocabulary`` tokens, tried against its own logits; None where they differ.

    None means that this model makes its logits in a way not known here: they must then come from the whole model.
    """
    import torch

    layer, config = model.get_output_embeddings(), model.config.get_text_config()
    if getattr(layer, "weight", None) is None:
        return None
    bias = getattr(layer, "bias", None)
    head = Head(
        layer.weight.detach()[:vocabulary],
        None if bias is None else bias.detach()[:vocabulary],
        float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0),
        getattr(config, "final_logit_softcapping", None),
    )
    tokens = torch.arange(8, device=model.device)[None] % vocabulary
    with torch.inference_mode():
        expected = model(input_ids=tokens).logits[0, :, :vocabulary].float()
        found = head(hidden_states(model, input_ids=tokens)[0]).float()
    tolerance = 4 * torch.finfo(model.dtype).eps * float(expected.abs().max())
    if not tolerance < float("inf"):  # not finite: nothing to compare
        return None
    return head if torch.allclose(found, expected, rtol=0.0, atol=tolerance) else None


def hidden_states(model: Any, **inputs: Any) -> Any:
    """The states ``Float[B, L, H]`` that the head reads."""
    return model.get_decoder()(**inputs).last_hidden_state
