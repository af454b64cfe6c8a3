"""A stand-in for a causal model that lets one private text move its row as far as a row can move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from understudy.models.shared_prefix import Rows
from understudy.models.types import Message

BEGIN, END = 256, 257
CUE = b"T:"
_LETTERS = range(ord("a"), ord("z") + 1)


class EchoModel:
    """Tokens are bytes. A row is certain of one letter, which its private texts alone decide; without any, of ``x``.

    Args:
        length: letters until every row is certain that the text ends; None for never.
    """

    ends = frozenset({END})
    window = 4096
    vocabulary = 258
    has_chat_template = False
    begin = (BEGIN,)
    model_id = "echo@000000000000"
    fingerprint = "0" * 64
    device = "cpu"

    def __init__(self, length: int | None = None) -> None:
        self.length = length
        self.shapes: set[tuple[int, ...]] = set()
        self.steps = 0

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode("utf-8", "replace")

    def batches_in_flight(self, rows: int, tokens: int) -> int:
        return 2

    def render(self, messages: Sequence[Message]) -> str:
        raise AssertionError("it has no chat form")

    def contexts(
        self,
        rows: Sequence[Sequence[int]],
        *,
        prefix: Sequence[int],
        width: int,
        tokens: int,
        rows_at_once: int,
        candidates: int,
    ) -> EchoContexts:
        assert max(map(len, rows)) <= width
        self.steps += 1
        self.shapes.add((len(prefix), width, tokens, rows_at_once, len(rows), candidates))
        filled = [*rows, *[rows[0]] * (-len(rows) % rows_at_once)]
        return EchoContexts(torch.stack([self._logits([*prefix, *row]) for row in filled]), len(rows), rows_at_once)

    def _logits(self, row: Sequence[int]) -> Any:
        shown, _, drawn = bytes(token for token in row if token < 256).rpartition(CUE)
        texts = shown.split(CUE)[1:]
        letter = ord("a") + sum(map(sum, texts)) % 23 if texts else ord("x")
        logits = torch.zeros(self.vocabulary)
        logits[list(_LETTERS)] = 1.0
        logits[END] = 0.5
        certain = END if self.length is not None and len(drawn) >= self.length else letter
        logits[certain] = 40.0
        return logits


@dataclass(frozen=True)
class EchoContexts:
    """Rows whose logits are known."""

    logits: Any
    real: int
    rows_at_once: int

    def __len__(self) -> int:
        return self.real

    def public_logits(self) -> Any:
        return self.logits[0].clone()

    def blocks(self, candidates: Any | None = None) -> Iterator[Rows]:
        yield Rows(0, self.real, self.logits if candidates is None else self.logits[:, candidates])
