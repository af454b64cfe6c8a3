"""A language model that writes numbered words, an embedder of letters, and evolutions made of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.methods.shared.evolution.variation import TextAPI
from understudy.models.types import ChatRequest, Completion
from understudy.text.prompts.evolving import EvolutionPrompts
from understudy.text.prompts.template import PromptSettings, PromptTemplate, WritingParameters, load_template
from understudy.text.writing import Writer

FAILED = Completion("", "failed", error="no answer")
EMPTY = Completion("", "empty")
LABELS = ("bars", "shops")


class ScriptedChat:
    """Answers by a function of the request; ``asked`` holds every request. The default answers differ for each."""

    model_id = "fake:evolution"

    def __init__(self, reply: Callable[[ChatRequest], Completion | str] | None = None) -> None:
        self.asked: list[ChatRequest] = []
        self._reply = reply or (lambda request: f"Text {request.key('')[:8]}.")

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        for index, request in reversed(list(enumerate(requests))):
            self.asked.insert(len(self.asked) - (len(requests) - 1 - index), request)
            found = self._reply(request)
            yield index, Completion(found, "stop") if isinstance(found, str) else found

    @property
    def prompts(self) -> list[str]:
        """The last message of every request."""
        return [request.messages[-1].content for request in self.asked]


def make_api(
    chat: ScriptedChat | None,
    *,
    labels: Sequence[str] = LABELS,
    template: PromptTemplate | None = None,
    keywords: Sequence[Sequence[str]] | None = None,
    writing: dict[str, Any] | None = None,
    writer: dict[str, Any] | None = None,
    **parameters: Any,
) -> TextAPI:
    writing, writer = dict(writing or {}), dict(writer or {})
    settings = PromptSettings(**{name: writing.pop(name) for name in PromptSettings.model_fields if name in writing})
    template = (template or load_template("note")).model_copy(update={"settings": settings})
    made = Writer(chat, template, WritingParameters(**writing), labels=labels, **writer)
    return TextAPI(made, EvolutionParameters(**parameters), keywords or [()] * max(1, len(labels)))


def template_of(**evolution: Any) -> PromptTemplate:
    """The general template with other evolution prompts."""
    template = load_template("note")
    made = EvolutionPrompts(**{**template.evolution.model_dump(), **evolution})
    return template.model_copy(update={"evolution": made})


def with_seed(api: TextAPI, seed: int) -> TextAPI:
    return replace(api, writer=replace(api.writer, seed=seed))


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """``Float32[n, 16]`` of unit length: how often each residue of a text's code points occurs."""
    vectors = np.zeros((len(texts), 16), dtype=np.float32)
    for row, text in enumerate(texts):
        for letter in text:
            vectors[row, ord(letter) % 16] += 1
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(norms, 1e-30)
    return unit
