"""Many requests to one endpoint: the workers, their retries, and what they share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from understudy.errors import ModelError
from understudy.models.attempt import Failure, attempt
from understudy.models.dialect import Answer, Dialect
from understudy.models.limits import SILENT_SECONDS, Breaker, Budget, Pace, Usage, backoff, most_characters
from understudy.models.types import ChatRequest, Completion

if TYPE_CHECKING:
    from openai import AsyncOpenAI

STRETCH = 4
"""An answer that ran out of tokens while reasoning gets this many times the tokens, once."""

_WORTH_ADAPTING = frozenset((400, 422))
_NOT_READY = frozenset((503, 529))


@dataclass(frozen=True)
class Endpoint:
    """What stays the same from one session to the next.

    Attributes:
        name: the model, as the endpoint calls it.
        extra_body: fields added to every request's body.
        dialect: what has been learnt of the endpoint; changes.
        budget: the caps and what has been used; changes.
        max_concurrency: most requests in flight.
        timeout: seconds for one try.
        max_retries: tries after the first.
        backoff_seconds: the first wait between two tries.
        host: where it is, for the user.
        say: takes a line for the user.
    """

    name: str
    extra_body: Mapping[str, Any]
    dialect: Dialect
    budget: Budget
    max_concurrency: int
    timeout: float
    max_retries: int
    backoff_seconds: float
    host: str
    say: Callable[[str], None]


class Session:
    """One pass over ``requests``; ``results`` fills while :meth:`run` runs, and None marks its end."""

    def __init__(self, endpoint: Endpoint, client: AsyncOpenAI, requests: Sequence[ChatRequest]) -> None:
        self.results: asyncio.Queue[tuple[int, Completion] | None] = asyncio.Queue()
        self._endpoint = endpoint
        self._client = client
        self._pending = iter(enumerate(requests))
        self._workers = min(endpoint.max_concurrency, len(requests))
        self._pace = Pace(endpoint.max_concurrency)
        self._breaker = Breaker(
            requests_at_once=self._workers, tries=endpoint.max_retries + 1, answered=endpoint.dialect.answered
        )
        self._last_answer = time.monotonic()
        self._waiting = 0
        self._cap: ModelError | None = None

    async def run(self) -> None:
        """Answer all requests.

        Raises:
            ModelError: nothing else would work either; at a cap, what was in flight is answered first.
        """
        watch = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            watch.cancel()
            self.results.put_nowait(None)
        if self._cap is not None:
            raise self._cap

    async def _watch(self) -> None:
        """Say that nothing comes, each time that the silence has doubled."""
        patience = SILENT_SECONDS
        while True:
            silence = time.monotonic() - self._last_answer
            if silence < SILENT_SECONDS:
                patience = SILENT_SECONDS
            elif silence >= patience:
                patience = 2 * silence
                self._endpoint.say(
                    f"No answer from {self._endpoint.host} for {silence:.0f} s; requests waiting: {self._waiting} "
                    f"(each try for up to {self._endpoint.timeout:g} s)."
                )
            await asyncio.sleep(min(1.0, SILENT_SECONDS))

    async def _work(self) -> None:
        for index, request in self._pending:
            self._waiting += 1
            completion = await self._answer(request)
            self._waiting -= 1
            if completion is None:
                return
            self.results.put_nowait((index, completion))
            if completion.finish_reason == "failed":
                self._breaker.failed(completion.error or "")

    async def _answer(self, request: ChatRequest) -> Completion | None:
        """The completion of one request; None where a cap forbids to send it."""
        endpoint = self._endpoint
        prompt_bytes = sum(len(message.content.encode("utf-8", "replace")) for message in request.messages)
        max_tokens, failures, total = request.max_tokens, 0, Usage()
        while self._cap is None:
            worst = endpoint.budget.worst(prompt_bytes, max_tokens)
            try:
                sent_at = await self._pace.enter(endpoint.budget, worst)
            except ModelError as cap:
                self._cap = cap
                return None
            used = worst
            try:
                outcome, adapted = await self._attempt(request, max_tokens)
                used = _used(outcome, worst)
            finally:
                endpoint.budget.settle(worst, used)
                self._pace.leave()
            if isinstance(outcome, Answer):
                self._last_answer = time.monotonic()
                self._pace.speed_up()
                self._breaker.answered()
                endpoint.dialect.learn(outcome)
                if outcome.usage is not None:
                    endpoint.budget.learn(prompt_bytes, outcome.usage.prompt_tokens)
                    total += outcome.usage
                if outcome.ran_out and max_tokens == request.max_tokens:
                    max_tokens *= STRETCH
                    continue
                return _completion(outcome, total)
            if adapted:
                continue
            if outcome.congestion:
                self._pace.slow_down(sent_at, outcome.pause)
            if outcome.unreachable:
                self._breaker.unreachable()
            elif outcome.retry and (not outcome.congestion or outcome.status in _NOT_READY):
                self._breaker.broken(outcome.reason, starting=outcome.status in _NOT_READY)
            failures += 1
            if not outcome.retry or failures > endpoint.max_retries:
                tries = "" if failures == 1 else f" (the last of {failures} tries)"
                return Completion("", "failed", error=outcome.reason + tries)
            await asyncio.sleep(max(outcome.pause, backoff(failures, endpoint.backoff_seconds)))
        return None

    async def _attempt(self, request: ChatRequest, max_tokens: int) -> tuple[Answer | Failure, bool]:
        """What came of one try, and whether the endpoint's dialect was learnt from its refusal."""
        endpoint = self._endpoint
        body = endpoint.dialect.body(endpoint.name, request, max_tokens=max_tokens)
        body.update(endpoint.extra_body)
        outcome = await attempt(
            self._client, body, stop=request.stop, timeout=endpoint.timeout, most=most_characters(max_tokens)
        )
        if isinstance(outcome, Failure) and outcome.status in _WORTH_ADAPTING:
            return outcome, endpoint.dialect.adapt(body, outcome.document)
        return outcome, False


def _used(outcome: Answer | Failure, worst: Usage) -> Usage:
    if isinstance(outcome, Answer):
        return outcome.usage or worst
    return worst if outcome.unknown_usage else Usage()


def _completion(answer: Answer, total: Usage) -> Completion:
    return Completion(
        text=answer.text,
        finish_reason=answer.finish_reason if answer.text or answer.finish_reason == "filtered" else "empty",
        prompt_tokens=total.prompt_tokens,
        completion_tokens=total.completion_tokens,
    )
