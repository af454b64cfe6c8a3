"""A stand-in for a causal model, whose rows say what a function of their own texts says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from understudy.models.shared_prefix import Rows

BEGIN, END = 256, 257
CUE = b"\n\nT:"
# From a row's private text (empty: the public row) and what is drawn so far to the token it is certain of.
Certain = Callable[[bytes, bytes], int]


def echo(length: int | None) -> Certain:
    """One letter, which the text alone decides; without any ``x``; the end after ``length`` letters."""

    def certain(text: bytes, drawn: bytes) -> int:
        if length is not None and len(drawn) >= length:
            return END
        return ord("a") + sum(text) % 23 if text else ord("x")

    return certain


def alike(length: int | None) -> Certain:
    """As the public row, whatever the text."""
    return lambda text, drawn: echo(length)(b"", drawn)


def spell(record: str, opening: str = "") -> Certain:
    """This text letter by letter; its end where anything else is drawn."""

    def certain(text: bytes, drawn: bytes) -> int:
        rest = record.removeprefix(opening).encode()
        return rest[len(drawn)] if rest.startswith(drawn) and len(drawn) < len(rest) else END

    return certain


@dataclass
class ScriptModel:
    """Tokens are bytes.

    Args:
        certain: what a row is certain of.
        opening: what every answer begins with, which is not drawn.
        dies_at: the step, counted over all contexts, at which the process dies.
    """

    certain: Certain = field(default_factory=lambda: echo(3))
    opening: bytes = b""
    ends: frozenset[int] = frozenset({END})
    window: int = 4096
    dies_at: int | None = None
    in_flight: int = 1
    shapes: set[tuple[int, ...]] = field(default_factory=set)
    steps: int = 0
    open_contexts: int = 0
    most_open: int = 0
    lock: Any = field(default_factory=threading.Lock)

    vocabulary = 258
    has_chat_template = False
    begin = (BEGIN,)
    model_id = "script@000000000000"
    fingerprint = "0" * 64
    device = "cpu"

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode("utf-8", "replace")

    def rows_at_once(self, batch_size: int) -> int:
        return batch_size + 1

    def batches_in_flight(self, rows: int, tokens: int) -> int:
        return self.in_flight

    def contexts(
        self,
        rows: Sequence[Sequence[int]],
        *,
        prefix: Sequence[int],
        width: int,
        suffix: Sequence[int] = (),
        tokens: int,
        rows_at_once: int,
        candidates: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> ScriptContexts:
        check()
        assert max(map(len, rows)) <= width
        with self.lock:
            self.shapes.add((len(prefix), width, len(suffix), tokens, rows_at_once, candidates))
        texts = [bytes(token for token in row if token < 256).removeprefix(CUE) for row in rows]
        return ScriptContexts(self, texts, tokens, rows_at_once)

    def logits(self, text: bytes, drawn: bytes) -> Any:
        logits = torch.zeros(self.vocabulary)
        logits[self.certain(text, drawn)] = 40.0
        return logits


class ScriptContexts:
    """Rows whose logits are known."""

    def __init__(self, model: ScriptModel, texts: Sequence[bytes], room: int, rows_at_once: int) -> None:
        self._model, self._texts, self._room, self._rows_at_once = model, texts, room, rows_at_once
        self._drawn: list[int] = []
        with model.lock:
            model.open_contexts += 1
            model.most_open = max(model.most_open, model.open_contexts)

    def __del__(self) -> None:
        self._model.open_contexts -= 1

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def rows_at_once(self) -> int:
        return self._rows_at_once

    def step(self, token: int) -> None:
        with self._model.lock:
            self._model.steps += 1
            if self._model.steps == self._model.dies_at:
                raise KeyboardInterrupt
        self._drawn.append(token)
        assert len(self._drawn) <= self._room

    def rewind(self) -> None:
        self._drawn = []

    def public_logits(self, *, whole: bool = False) -> Any:
        return self._row(b"")

    def blocks(self, candidates: Any | None = None) -> Iterator[Rows]:
        for first in range(0, len(self._texts), self._rows_at_once):
            here = self._texts[first : first + self._rows_at_once]
            filled = [*here, *[b""] * (self._rows_at_once - len(here))]
            logits = torch.stack([self._row(text) for text in filled])
            yield Rows(first, len(here), logits if candidates is None else logits[:, candidates])

    def _row(self, text: bytes) -> Any:
        return self._model.logits(text, bytes(token for token in self._drawn if token < 256))
