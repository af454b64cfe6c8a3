"""Run many contexts that continue with the same tokens: prefill once, then one step per token, and back to the prompt.

**Row invariance.** A sum over private rows has bounded sensitivity only if one row cannot change another's
logits. Floating-point results do change with the shape of a batch, so the model sees one shape only: blocks of
exactly R rows, each padded to the same width, the last block filled with copies of row 0. Every row has at least
one column of padding, since transformers uses a different kernel if no row of a block is padded. On a CPU all runs in
one thread: several would divide a block's rows, and at the borders of their shares a row's last bits differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from understudy.base.errors import ModelError
from understudy.base.lazy import torch
from understudy.models.machine import single_threaded_inference


class LocalNetwork(Protocol):
    """The part of a :class:`understudy.models.causal.CausalModel` that contexts and their trials need."""

    model_id: str
    device: str
    network: Any
    vocabulary: int
    head: Head | None


@dataclass(frozen=True)
class Rows:
    """The next-token logits of one block of rows."""

    first: int  # number of the block's first row
    real: int  # rows that are not copies of row 0
    logits: Any  # Float[R, K] on the device, in the model's own precision


class Contexts:
    """Rows of tokens in the model's KV cache, made by :meth:`understudy.models.causal.CausalModel.contexts`.

    Row 0 is by convention the public one. A row is ``prefix + padding + own tokens + suffix``, then the tokens
    given to :meth:`step`, which all rows share. For one thread only.

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
            start = prefilled(model.network, prefix)
            filled = [[*row, *suffix] for row in [*rows, *[rows[0]] * (-len(rows) % rows_at_once)]]
            sizes = {"prefix": len(prefix), "width": self._prompt - len(prefix), "capacity": self._prompt + tokens}
            self._blocks: list[_ContextBlock] = []
            for first in range(0, len(filled), rows_at_once):
                check()
                self._blocks.append(_ContextBlock(model, filled[first : first + rows_at_once], start, **sizes))

    def __len__(self) -> int:
        return self._rows

    @property
    def cache_bytes(self) -> int:
        layers = [layer for block in self._blocks for layer in block.cache.layers]
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)

    def step(self, token: int) -> None:
        """Append ``token`` to every row; ModelError if there is no room for more tokens."""
        if self.steps >= self._room:
            raise ModelError(
                f"These contexts have no room for more than {self._room} tokens after the prompt.",
                "Create them with a larger number of `tokens`.",
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
        """Yield next-token logits, block by block, of ``candidates`` (``Int64[K]`` on the device) or of all tokens."""
        head = self._model.head and self._model.head.of(candidates)
        for number, block in enumerate(self._blocks):
            first = number * self.rows_at_once
            with single_threaded_inference():
                logits = block.logits(self._model, head, candidates)
            yield Rows(first, min(self.rows_at_once, self._rows - first), logits)

    def public_logits(self, *, whole: bool = False) -> Any:
        """Return row 0's logits over the whole vocabulary, ``Float32[V]`` on the device; ModelError if not finite.

        ``whole``: every row's are needed next, so row 0's whole block is computed, and kept for :meth:`blocks`.
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


class Block:
    """Rows that share one KV cache: its present content, padding, each row's own tokens, then one token per row and
    step.

    Args:
        rows: each row's own tokens.
        cache: of transformers; contains the first ``prefix`` tokens of every row.
        width: to which own tokens are padded on the left.
        capacity: most columns that the cache will have.
    """

    def __init__(
        self, rows: Sequence[Sequence[int]], *, cache: Any, prefix: int, width: int, capacity: int, device: Any
    ) -> None:
        padding = [width - len(row) for row in rows]
        tokens = torch.tensor([[0] * pad + [*row] for pad, row in zip(padding, rows, strict=True)])
        pads = torch.tensor(padding, device=device)[:, None]
        places = torch.arange(capacity, device=device)
        self._mask = ((places < prefix) | (places >= prefix + pads)).long()
        self.cache, self.length = cache, prefix + width
        self.last = tokens.to(device)
        self.position = (places - pads)[:, prefix : self.length].clamp(min=0)

    @property
    def columns(self) -> int:
        """Return the columns of the cache, including the last tokens."""
        return self.length

    def append(self, tokens: Any) -> None:
        """Append ``Int64[R, 1]`` as the model's next input."""
        self.length += 1
        self.last, self.position = tokens, self.position[:, -1:] + 1

    def select(self, kept: Any) -> None:
        """Continue with only the rows ``Int64[K]``."""
        self.cache.batch_select_indices(kept)
        self._mask, self.last, self.position = self._mask[kept], self.last[kept], self.position[kept]

    def inputs(self) -> dict[str, Any]:
        """Return the model's inputs for the last tokens."""
        return {
            "input_ids": self.last,
            "position_ids": self.position,
            "attention_mask": self._mask[:, : self.columns],
            "past_key_values": self.cache,
            "use_cache": True,
        }


def prefilled(network: Any, prefix: Sequence[int]) -> Any:
    """Return transformers' cache of one row with the prefix."""
    from transformers import DynamicCache

    cache = DynamicCache(config=network.config)
    if prefix:
        tokens = torch.tensor([list(prefix)], device=network.device)
        network.get_decoder()(input_ids=tokens, past_key_values=cache, use_cache=True)
    return cache


class _ContextBlock(Block):
    """R rows in a cache with room, and the hidden states of their last tokens."""

    def __init__(
        self, model: LocalNetwork, rows: Sequence[Sequence[int]], start: Any, *, prefix: int, width: int, capacity: int
    ) -> None:
        from understudy.models.kv_cache import columns, roomy_cache

        cache = roomy_cache(model.network)
        if prefix:
            for number, layer in enumerate(start.layers):  # its one row, for each
                states = (each.expand(len(rows), -1, -1, -1) for each in (layer.keys, layer.values))
                cache.update(*states, number)
        super().__init__(rows, cache=cache, prefix=prefix, width=width, capacity=columns(capacity), device=model.device)
        self.hidden = self._forward(model)
        self.whole: Any | None = None  # logits over the whole vocabulary that were computed already
        self._prompt = (self.last[:, -1:], self.position[:, -1:], self.hidden)

    @property
    def columns(self) -> int:
        from understudy.models.kv_cache import columns

        return columns(self.length)

    def step(self, model: LocalNetwork, token: int) -> None:
        self.whole = None
        self.append(self.last.new_full((len(self.last), 1), token))
        self.hidden = self._forward(model)

    def rewind(self, steps: int) -> None:
        if steps:
            self.whole = None
            self.cache.crop(-steps)
            self.length -= steps
            self.last, self.position, self.hidden = self._prompt

    def logits(self, model: LocalNetwork, head: Head | None, candidates: Any | None) -> Any:
        """Return the logits ``[R, K]``. If the head is unknown, the whole model is run once more over the last
        token."""
        if candidates is None and self.whole is not None:
            return self.whole
        if head is not None:
            return head(self.hidden)
        self.cache.crop(-1)
        self.last, self.position = self.last[:, -1:], self.position[:, -1:]
        logits = model.network(**self.inputs(), logits_to_keep=1).logits[:, -1, : model.vocabulary]
        return logits if candidates is None else logits[:, candidates]

    def _forward(self, model: LocalNetwork) -> Any:
        """Return the hidden states ``[R, H]`` of the last tokens."""
        return hidden_states(model.network, **self.inputs())[:, -1].clone()


_VECTOR = 16  # float32 numbers in the widest register


@dataclass(frozen=True)
class Head:
    """A model's output layer, ``cap * tanh((hidden @ weight.T + bias) * scale / cap)``; most models only have weights
    ``Float[K, H]``.

    The last ``filled`` tokens fill up whole vectors of the processor and are left out of the result: numbers after
    whole vectors are computed in a different way, and a row's last bits would depend on its place.
    """

    weight: Any
    bias: Any | None = None
    scale: float = 1.0
    cap: float | None = None
    filled: int = 0

    def of(self, tokens: Any | None) -> Head:
        """Return the head for only the tokens ``Int64[K]``, in that order; for all without a copy."""
        if tokens is None:
            return self
        filled = -len(tokens) % _VECTOR
        tokens = torch.nn.functional.pad(tokens, (0, filled))
        bias = None if self.bias is None else self.bias[tokens]
        return Head(self.weight[tokens], bias, self.scale, self.cap, filled)

    def __call__(self, hidden: Any) -> Any:
        """Return the logits ``Float[R, K]`` of the hidden states ``Float[R, H]``."""
        logits = torch.nn.functional.linear(hidden, self.weight, self.bias)
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.cap is not None:
            logits = (logits / self.cap).tanh() * self.cap
        return logits[:, : logits.shape[1] - self.filled]


def find_head(model: Any, *, vocabulary: int) -> Head | None:
    """Return the model's head over the first ``vocabulary`` tokens if it reproduces the model's logits; else None.

    None means that this model computes its logits in an unknown way: they must then come from the whole model.
    """
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
    """Return the states ``Float[B, L, H]`` that the head reads."""
    return model.get_decoder()(**inputs).last_hidden_state
