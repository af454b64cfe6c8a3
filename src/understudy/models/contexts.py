"""Many contexts that go on with the same tokens: prefill once, one step a token, back to the prompt at will.

**Row invariance.** What is summed over private rows has bounded sensitivity only if one row cannot change another's
logits. Floating-point results do change with the shape of a batch, so the model sees one shape only: blocks of
exactly R rows, each padded to the same width, the last block filled with copies of row 0. Every row has at least
one column of padding, since transformers takes another kernel where no row of a block is padded. On a CPU all runs in
one thread: several would share out a block's rows, and where their shares meet a row's last bits differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from understudy.errors import ModelError
from understudy.models.head import hidden_states
from understudy.models.threads import single_threaded_inference

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel
    from understudy.models.head import Head


@dataclass(frozen=True)
class Rows:
    """The next-token logits of one block.

    Args:
        first: number of the block's first row.
        real: how many of its rows, from the first on, are rows; the rest are copies of row 0.
        logits: ``Float[R, K]`` on the device, in the model's own precision.
    """

    first: int
    real: int
    logits: Any


class Contexts:
    """Rows of tokens in the model's KV cache; made by :meth:`understudy.models.causal.CausalModel.contexts`.

    Row 0 is by convention the public one. A row is ``prefix + padding + own tokens + suffix``, then the tokens
    given to :meth:`step`, which all rows share. To be used by one thread.
    """

    def __init__(
        self,
        model: CausalModel,
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
        self._at_once = rows_at_once
        self._prompt = len(prefix) + 1 + width + len(suffix)  # one column of padding at least
        self._room = tokens
        self._steps = 0
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
    def rows_at_once(self) -> int:
        """R, the rows of a block."""
        return self._at_once

    @property
    def steps(self) -> int:
        """Tokens appended since the prompt."""
        return self._steps

    @property
    def cache_bytes(self) -> int:
        """Bytes of all cached tokens."""
        from understudy.models.kv_cache import cache_bytes

        return sum(cache_bytes(block.cache) for block in self._blocks)

    def step(self, token: int) -> None:
        """Append ``token`` to every row.

        Raises:
            ModelError: the tokens that there is room for are used up.
        """
        if self._steps >= self._room:
            raise ModelError(
                f"These contexts have room for {self._room} tokens after the prompt.",
                "Go back, or give them more room.",
            )
        self._steps += 1
        with single_threaded_inference():
            for block in self._blocks:
                block.step(self._model, token)

    def rewind(self) -> None:
        """Go back to the end of the prompt."""
        with single_threaded_inference():
            for block in self._blocks:
                block.rewind(self._steps)
        self._steps = 0

    def blocks(self, candidates: Any | None = None) -> Iterator[Rows]:
        """The next-token logits, block by block.

        Args:
            candidates: tokens ``Int64[K]`` on the device; None for the whole vocabulary.
        """
        head = self._model.head and self._model.head.of(candidates)
        for number, block in enumerate(self._blocks):
            first = number * self._at_once
            with single_threaded_inference():
                logits = block.logits(self._model, head, candidates)
            yield Rows(first, min(self._at_once, self._rows - first), logits)

    def public_logits(self, *, whole: bool = False) -> Any:
        """Row 0's next-token logits over the whole vocabulary, ``Float32[V]`` on the device.

        Args:
            whole: every row's are wanted next: row 0's whole block is computed, and kept for :meth:`blocks`.

        Raises:
            ModelError: they are not finite.
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
        model: CausalModel,
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

    def step(self, model: CausalModel, token: int) -> None:
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

    def logits(self, model: CausalModel, head: Head | None, candidates: Any | None) -> Any:
        """``[R, K]``; by the whole model once more over the last token where its head is not known."""
        if candidates is None and self.whole is not None:
            return self.whole
        if head is not None:
            return head(self.hidden)
        self.cache.crop(-1)
        output = model.network(**self._inputs(self._last, self._position), logits_to_keep=1)
        logits = output.logits[:, -1, : model.vocabulary]
        return logits if candidates is None else logits[:, candidates]

    def _forward(self, model: CausalModel, tokens: Any, position: Any) -> Any:
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


def _prefilled(model: CausalModel, prefix: Sequence[int]) -> Any | None:
    """The cache of one row that holds the prefix; None for an empty one."""
    import torch
    from transformers import DynamicCache

    if not prefix:
        return None
    cache = DynamicCache(config=model.network.config)
    tokens = torch.tensor([list(prefix)], device=model.device)
    hidden_states(model.network, input_ids=tokens, past_key_values=cache, use_cache=True)
    return cache
