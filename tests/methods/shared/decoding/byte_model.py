"""A stand-in for a causal model's tokenizer: each byte is a token, and 256 and 257 begin and end a text."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.models.types import Message

BEGIN, END = 256, 257


class ByteModel:
    """Counts the bytes that it decodes."""

    ends = frozenset({END})

    def __init__(self, *, template: str | None = "<{role}>{content}</{role}>") -> None:
        self.begin = [BEGIN]
        self.decoded = 0
        self._template = template

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        self.decoded += len(tokens)
        return bytes(token for token in tokens if token < 256).decode("utf-8", "replace")

    def render(self, messages: Sequence[Message]) -> str:
        assert self._template is not None
        return "".join(self._template.format(role=m.role, content=m.content) for m in messages) + "<assistant>"
