"""Define the values and protocols of language models and embedders. This module does not load models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FinishReason = Literal["stop", "length", "empty", "filtered", "failed"]


@dataclass(frozen=True)
class Message:
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """A request for one answer: the prompt, and how to sample.

    ``sample`` numbers several answers to one prompt: each is stored (and paid for) separately. ``schema`` is a JSON
    schema that the answer should fit; only endpoints with ``response_format`` enforce it. ``phrases``
    should occur in the answer; only the built-in writer ensures this.
    """

    messages: tuple[Message, ...]
    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    sample: int = 0
    schema: str | None = None
    phrases: tuple[str, ...] = ()

    def key(self, model_id: str) -> str:
        """Return the SHA-256 of the canonical request to ``model_id``: the name its answer is stored under.

        An endpoint's address is left out, as a resumed run may change it."""
        model_id = model_id.partition("@http")[0]
        fields = {**vars(self), "messages": [vars(message) for message in self.messages]}
        canonical = json.dumps([model_id, fields], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class Completion:
    """A model's answer to one request, or why there is none.

    ``finish_reason`` is ``stop`` (complete), ``length`` (cut at ``max_tokens``), ``empty`` (no text, as of reasoning
    models that run out of tokens), ``filtered`` (a content filter withheld the text) or ``failed`` (no answer after all
    retries). Only the first two have a text. ``error`` says why there is none, without quoting prompt or answer, if
    asking again later may give one. ``sense`` is the logarithm of the odds, as the built-in writer judges them, that a
    reader takes the answer for a sensible text of its kind (:class:`understudy.models.writer.Judge`); None if unknown.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None
    sense: float | None = None

    @property
    def blank(self) -> bool:
        return not self.text.strip()

    def to_json(self) -> str:
        return json.dumps(asdict(self))  # ASCII, which holds also what UTF-8 cannot: halves of surrogate pairs

    @classmethod
    def from_json(cls, text: str) -> Completion:
        return cls(**json.loads(text))


@runtime_checkable
class ChatModel(Protocol):
    """A model that answers prompts with texts. It gets many requests at once and may batch them in any way."""

    @property
    def model_id(self) -> str:
        """Return the name of the model and its weights or endpoint; every answer's key has it, without address."""

    def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        """Yield ``(index into requests, Completion)`` in the order of completion, each index once."""


@runtime_checkable
class Embedder(Protocol):
    """A model that maps texts to unit vectors.

    A text's vector must be the same bit for bit whatever other texts are embedded with or before it. That is tested
    (:mod:`understudy.models.embedder_checks`) before a private text is embedded for a charge. An embedder may also have
    ``longest``, the tokens to which it cuts a text, and ``batch_tokens``, about how many tokens it computes at once: it
    is then tested up to these.
    """

    @property
    def model_id(self) -> str: ...

    @property
    def local(self) -> bool:
        """Return whether texts stay on this machine; False if anyone else gets to read them."""

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 over the model's weights and tokenizer: two embedders with the same fingerprint agree."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector of length 1 (L2) for each text: ``Float32[len(texts), d]``."""


@dataclass(frozen=True)
class WrappedEmbedder:
    """Base of embedders that wrap another embedder and keep its name and fingerprint."""

    embedder: Embedder

    @property
    def model_id(self) -> str:
        return self.embedder.model_id

    @property
    def local(self) -> bool:
        return self.embedder.local

    @property
    def fingerprint(self) -> str:
        return self.embedder.fingerprint
