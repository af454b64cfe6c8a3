"""The chat-completions format, and what one endpoint turns out to understand of it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from understudy.models.limits import Usage
from understudy.models.types import ChatRequest, FinishReason

_log = logging.getLogger(__name__)

MOST_STOPS = 4
"""Stop strings that an endpoint takes; answers are cut at the others here."""

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_REJECTED = re.compile(
    r"unsupported|not support|unrecognized|unrecognised|unknown|unexpected|not permitted|not allowed|invalid param",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Answer:
    """What an endpoint's document says. ``usage`` is None where it reports none."""

    text: str
    finish_reason: FinishReason
    usage: Usage | None
    reasoned: bool
    ignored_stop: bool

    @property
    def ran_out(self) -> bool:
        """Whether all tokens went into a reasoning that never came to its answer."""
        return not self.text and self.finish_reason != "filtered" and (self.finish_reason == "length" or self.reasoned)


@dataclass
class Dialect:
    """What a client has learnt about its endpoint; it adapts once and remembers.

    ``left_out`` holds the parameters that the endpoint refused, which are no longer sent.
    """

    limit_name: str = "max_tokens"
    left_out: set[str] = field(default_factory=set)
    reasons: bool = False
    ignores_stop: bool = False
    answered: bool = False

    def body(self, model: str, request: ChatRequest, *, max_tokens: int) -> dict[str, Any]:
        """The JSON body of ``POST /chat/completions``."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            self.limit_name: max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
        }
        if request.stop:
            body["stop"] = list(request.stop[:MOST_STOPS])
        if request.schema is not None:
            wanted = {"name": "record", "schema": json.loads(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        for name in self.left_out:
            body.pop(name, None)
        return body

    def adapt(self, body: Mapping[str, Any], problem: object) -> bool:
        """Whether ``body``, refused with the error document ``problem``, is worth sending again, adapted."""
        details = problem.get("error", problem) if isinstance(problem, Mapping) else problem
        if isinstance(details, Mapping):
            parameter, message = str(details.get("param")), f"{details.get('code')} {details.get('message')}"
        else:
            parameter, message = "", str(details)
        if "max_tokens" in body and "max_completion_tokens" in message:
            self.limit_name = "max_completion_tokens"
            return True
        if not _REJECTED.search(message):
            return False
        for name in ("temperature", "top_p", "stop", "response_format"):
            if name in body and (parameter == name or re.search(rf"\b{name}\b", message)):
                if name not in self.left_out:
                    _log.warning("The model does not take %s; it is left out.", name)
                self.left_out.add(name)
                return True
        return False

    def learn(self, answer: Answer) -> None:
        self.answered = True
        self.reasons |= answer.reasoned
        self.ignores_stop |= answer.ignored_stop


def read_answer(document: object, stop: Sequence[str] = (), *, most: int) -> Answer:
    """Read a chat completion (else a ValueError), without its thoughts, up to the first stop string.

    A text longer than ``most`` characters is cut there, as at its most tokens.
    """
    try:
        choice = document["choices"][0]  # type: ignore[index]
        message = choice["message"]
        content = message.get("content")
        usage = document.get("usage")  # type: ignore[attr-defined]
        reasoned = bool(message.get("reasoning_content") or message.get("reasoning"))
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError("no chat completion") from error
    if isinstance(content, list):
        content = "".join(
            text for part in content if isinstance(part, Mapping) and isinstance(text := part.get("text"), str)
        )
    if content is not None and not isinstance(content, str):
        raise ValueError("no text")
    text, thought = _without_thoughts(content or "")
    text, ignored = _cut(text, stop)
    finish: FinishReason = "length" if choice.get("finish_reason") == "length" and not ignored else "stop"
    if len(text) > most:
        text, finish = text[:most], "length"
    if choice.get("finish_reason") == "content_filter":
        text, finish = "", "filtered"  # what is left of a withheld text breaks off anywhere
    return Answer(
        text=text if text.strip() else "",
        finish_reason=finish,
        usage=_usage(usage),
        reasoned=reasoned or thought or _reasoning_tokens(usage) > 0,
        ignored_stop=any(string in stop[:MOST_STOPS] for string in ignored),
    )


def _without_thoughts(text: str) -> tuple[str, bool]:
    if "<think>" not in text and "</think>" not in text:
        return text, False
    if "<think>" not in text.partition("</think>")[0]:  # some chat templates open the thought in the prompt
        text = text.partition("</think>")[2]
    return _THOUGHT.sub("", text).lstrip(), True


def _cut(text: str, stop: Sequence[str]) -> tuple[str, list[str]]:
    """``text`` up to the first stop string, and the stop strings that stood in it."""
    found = [string for string in stop if string and string in text]
    end = min((text.index(string) for string in found), default=len(text))
    return text[:end], found


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Usage(prompt, completion) if _is_count(prompt) and _is_count(completion) else None


def _is_count(value: object) -> TypeGuard[int]:
    """Tokens that an answer may have used: a negative number would lift the caps of the whole run."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _reasoning_tokens(usage: object) -> int:
    details = usage.get("completion_tokens_details") if isinstance(usage, Mapping) else None
    tokens = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
    return tokens if _is_count(tokens) else 0
