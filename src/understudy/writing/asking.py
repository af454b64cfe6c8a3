"""Asking a chat model many times, each answer another sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from understudy.errors import ModelError
from understudy.models.collect import collect
from understudy.models.types import ChatModel, ChatRequest, Completion, Message


class NoText(ModelError):
    """A language model answered many questions and wrote no text to any of them."""


class Asker:
    """CallEstimate the chat model, each time for another sample, and tells how many texts are in."""

    def __init__(self, chat: ChatModel, progress: Callable[[int, int], None], *, expected: int) -> None:
        self.chat = chat
        self._progress = progress
        self._expected = expected
        self._done = 0
        self._times: Counter[tuple[Message, ...]] = Counter()
        self._problems: Counter[str] = Counter()

    def ask(self, requests: Sequence[ChatRequest], *, again: bool = False) -> list[Completion]:
        """The answers to ``requests``; ``again`` marks those that were not expected."""
        numbered = [replace(request, sample=request.sample + self._count(request)) for request in requests]
        self._expected += len(requests) if again else 0
        before = self._done
        answers = collect(self.chat, numbered, progress=lambda done: self._progress(before + done, self._expected))
        self._done += sum(not answer.blank for answer in answers)
        self._problems.update(answer.error for answer in answers if answer.blank and answer.error)
        return answers

    def require_text(self) -> None:
        """See that one answer at least had a text, where asking again later may give one.

        Raises:
            NoText: none had; names the most frequent reason.
        """
        if self._problems and not self._done:
            problem = self._problems.most_common(1)[0][0]
            raise NoText(f"The language model wrote no text at all: {problem}.", "Repeat the same command later.")

    def _count(self, request: ChatRequest) -> int:
        self._times[request.messages] += 1
        return self._times[request.messages] - 1
