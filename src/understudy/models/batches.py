"""Ask chat models through OpenAI's batches, at half the price and with answers within a day.

All requests are submitted as files; then the batches are polled until they are done. The requests of each batch are
stored before it is sent, so that after a kill the next process waits for the same batches, and nothing is paid
twice. https://platform.openai.com/docs/guides/batch
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from understudy.base.display import plural
from understudy.base.errors import ModelError
from understudy.models.connection import Dialect, Failure, read_answer, tried
from understudy.models.endpoint import STRETCH, WORTH_ADAPTING, EndpointChat, PendingRequest
from understudy.models.limits import BREAKER, Usage, backoff, most_characters
from understudy.models.presets import BATCH_HOURS
from understudy.models.types import ChatRequest, Completion

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from understudy.ledger.store.database import JobStore

_log = logging.getLogger(__name__)

MOST_REQUESTS, MOST_BYTES = 50_000, 190_000_000  # of one batch; the documented limits are 50,000 and 200 MB
POLL_SECONDS, LONGEST_POLL_SECONDS = 5.0, 60.0  # between two looks at a batch, at first and at last
MOST_TRIES = 3  # batches in which a failing request is asked
_SECONDS_BETWEEN_LINES = 600.0
_BYTES_PER_REQUEST, _BYTES_PER_TOKEN = 8192, 256  # that are read of an answer
_URL = "/v1/chat/completions"
_OVER = ("completed", "expired", "cancelled")

T = TypeVar("T")


@dataclass(repr=False, eq=False, kw_only=True)
class BatchChat:
    """A :class:`~understudy.models.types.ChatModel` that asks ``endpoint`` through batches.

    A request that fails, or whose batch expires before its turn, is submitted again, three times in total. An answer
    that ran out of tokens while reasoning is requested once more with four times the tokens.
    """

    endpoint: EndpointChat
    jobs: JobStore
    say: Callable[[str], None] = field(default=_log.info)

    def __post_init__(self) -> None:
        self.model_id = self.endpoint.model_id

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        """Yield ``(index into requests, Completion)`` as batches are done, each index once.

        The requests must differ, as those of :class:`~understudy.models.collect.CachedChat` do.

        Raises ModelError if no other request would work either, or a cap is reached; all answers were yielded before.
        """
        if not requests:
            return
        slots = {each.key(self.model_id): _Slot(each, number=number) for number, each in enumerate(requests)}
        todo = dict(slots)
        tokens = sum(sorted((each.max_tokens for each in requests), reverse=True)[:MOST_REQUESTS])
        most_bytes = MOST_REQUESTS * _BYTES_PER_REQUEST + _BYTES_PER_TOKEN * STRETCH * tokens
        wait, cap = POLL_SECONDS, None
        async with self.endpoint.connect(most_bytes=most_bytes) as client:
            desk = _Desk(self.endpoint, client, self.jobs, self.say)
            waiting = await self._resumed(desk, todo)
            while todo or waiting:
                fits: dict[str, _Slot] = {}
                for key, slot in todo.items():
                    if cap := cap or self._reserve(slot):
                        break
                    fits[key] = slot
                for token, keys, lines in self._batches(fits):
                    for key in keys:
                        slots[key].tries += 1
                    self.jobs.assign(token, {key: slots[key].tries for key in keys})
                    await desk.hand_in(token, lines)
                    waiting[token] = keys
                    wait = POLL_SECONDS
                todo = {}
                for token in list(waiting):
                    found = await desk.results(token, waiting[token])
                    if found is None:
                        continue
                    wait = POLL_SECONDS
                    keys = waiting.pop(token)
                    judged = {key: self._judge(slots[key], found.get(key)) for key in keys}
                    todo |= {key: slots[key] for key, completion in judged.items() if completion is None}
                    done = {key: completion for key, completion in judged.items() if completion is not None}
                    self.jobs.release([key for key, completion in done.items() if completion.blank])
                    for key, completion in done.items():
                        yield slots[key].number, completion
                if waiting and not todo:
                    await asyncio.sleep(wait)
                    wait = min(LONGEST_POLL_SECONDS, 1.5 * wait)
        if cap is not None:
            raise cap

    async def _resumed(self, desk: _Desk, todo: dict[str, _Slot]) -> dict[str, list[str]]:
        """Return the batches that were begun before, with their requests, which are removed from ``todo``."""
        waiting: dict[str, list[str]] = {}
        for key, (token, tries) in self.jobs.assigned(list(todo)).items():
            todo[key].tries = tries
            waiting.setdefault(token, []).append(key)
        for token in list(waiting):
            if await desk.name(token) is None:  # the process ended before it was begun
                for key in waiting.pop(token):
                    todo[key].tries -= 1
                continue
            for key in waiting[token]:
                self._reserve(todo[key])
                del todo[key]
        if waiting:
            count = sum(map(len, waiting.values()))
            self.say(f"Going on to wait for {plural(count, 'request')} submitted before.")
        return waiting

    def _reserve(self, slot: _Slot) -> ModelError | None:
        """Reserve the most that a request can use; return the error to end with if a cap forbids it."""
        budget = self.endpoint.budget
        worst = budget.worst(slot.prompt_bytes, slot.max_tokens)
        if cap := budget.cap_reached(worst):
            return cap
        budget.reserve(worst)
        slot.worst = worst
        return None

    def _batches(self, slots: Mapping[str, _Slot]) -> Iterator[tuple[str, list[str], bytes]]:
        """Yield the requests in batches of the allowed sizes: our name for each, the keys, and the file."""
        keys: list[str] = []
        lines: list[bytes] = []
        size = 0
        for key, slot in slots.items():
            body = slot.sent = self.endpoint.body(slot.request, max_tokens=slot.max_tokens)
            line = json.dumps({"custom_id": key, "method": "POST", "url": _URL, "body": body}).encode("ascii") + b"\n"
            if keys and (len(keys) == MOST_REQUESTS or size + len(line) > MOST_BYTES):
                yield uuid.uuid4().hex, keys, b"".join(lines)
                keys, lines, size = [], [], 0
            keys.append(key)
            lines.append(line)
            size += len(line)
        if keys:
            yield uuid.uuid4().hex, keys, b"".join(lines)

    def _judge(self, slot: _Slot, line: object) -> Completion | None:
        """Return the completion of one request, from its ``line`` in the batch's files, if any; None if the request is
        to be sent again."""
        response = line.get("response") if isinstance(line, Mapping) else None
        status = response.get("status_code") if isinstance(response, Mapping) else None
        document = response.get("body") if isinstance(response, Mapping) else None
        request, answer = slot.request, None
        if status == 200:
            try:
                most, stop_sent = most_characters(slot.max_tokens), "stop" in (slot.sent or {})
                answer = read_answer(document, request, most=most, stop_sent=stop_sent)
            except ValueError:
                _log.debug("An answer was not a chat completion.")
        self.endpoint.budget.settle(slot.worst, (answer.usage or slot.worst) if answer else Usage())
        if answer is not None:
            return slot.completion(answer, self.endpoint, stretch=slot.tries == 1)
        if status in WORTH_ADAPTING:
            if self._adapts(slot, document):
                slot.tries -= 1
                return None
        elif slot.tries < MOST_TRIES:
            return None
        why = f"the endpoint answered HTTP {status}" if isinstance(status, int) else "its batch had no answer to it"
        return Completion("", "failed", error=f"{why} (the last of {slot.tries} tries)" if slot.tries > 1 else why)

    def _adapts(self, slot: _Slot, problem: object) -> bool:
        """Return whether the endpoint's refusal ``problem`` shows how to change the request, so that it can be sent
        again."""
        sent = slot.sent or Dialect().body(self.endpoint.name, slot.request, max_tokens=slot.max_tokens)
        if not self.endpoint.dialect.adapt(sent, problem):
            return False
        return self.endpoint.body(slot.request, max_tokens=slot.max_tokens) != sent


@dataclass
class _Slot(PendingRequest):
    """A request, how often it was asked, and the part of the caps that is reserved for it."""

    number: int = 0
    tries: int = 0
    sent: Mapping[str, Any] | None = None
    worst: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class _Desk:
    """Submits batches to the endpoint and fetches their answers; a call that fails is tried again."""

    endpoint: EndpointChat
    client: AsyncOpenAI
    jobs: JobStore
    say: Callable[[str], None]
    _said: dict[str, tuple[float, object]] = field(default_factory=dict)

    async def hand_in(self, token: str, lines: bytes) -> None:
        file = await self._retried(lambda: self._upload(token, lines), "the file was not accepted")
        batch = await self._begin(token, file)
        self.jobs.name_batch(token, batch)
        self.say(
            f"Submitted {plural(lines.count(10), 'request')} as {batch}; answers come within {BATCH_HOURS} hours. "
            "The command may be stopped: the same one goes on waiting, and pays nothing again."
        )

    async def name(self, token: str) -> str | None:
        """Return the endpoint's name of a batch that an earlier process submitted; None if it was never submitted."""
        batch = self.jobs.batch(token)
        if batch is None and (batch := await self._find(token)) is not None:
            self.jobs.name_batch(token, batch)
        return batch

    async def results(self, token: str, keys: Sequence[str]) -> dict[str, object] | None:
        """Return the result lines of a batch, by request; None while it is running. Raises ModelError if the endpoint
        refused the batch."""
        batch = self.jobs.batch(token)
        state = await self._retried(partial(self._get, f"/batches/{batch}"), "the batch could not be read")
        status = state.get("status")
        if status == "failed":
            self.jobs.release(keys)
            raise ModelError(
                f"The endpoint refused the batch {batch} ({', '.join(_codes(state)) or 'no reason given'}).",
                "Look at it in the account that submitted it, or ask without --llm-batch; nothing was paid.",
            )
        self._tell(str(batch), state)
        if status not in _OVER:
            return None
        found: dict[str, object] = {}
        for name in ("error_file_id", "output_file_id"):
            if file := state.get(name):
                call = partial(self.client.get, f"/files/{file}/content", cast_to=bytes)
                found |= _lines(await self._retried(call, "a file could not be read"))
        return found

    def _tell(self, batch: str, state: Mapping[str, Any]) -> None:
        counts = state.get("request_counts")
        counts = counts if isinstance(counts, Mapping) else {}
        done, total, status, now = counts.get("completed"), counts.get("total"), state.get("status"), time.monotonic()
        said_at, said = self._said.get(batch, (float("-inf"), None))
        if status != said or now - said_at > _SECONDS_BETWEEN_LINES:
            if isinstance(done, int) and isinstance(total, int) and total:
                self.say(f"{batch}: {status!s:.20}, {done} of {plural(total, 'request')} answered.")
            self._said[batch] = (now, status)

    async def _upload(self, token: str, lines: bytes) -> str:
        reply = await self.client.post(
            "/files",
            cast_to=bytes,
            body={"purpose": "batch"},
            files=[("file", (f"understudy-{token}.jsonl", lines, "application/jsonl"))],
            options={"headers": {"Content-Type": "multipart/form-data"}},
        )
        return str(json.loads(reply)["id"])

    async def _begin(self, token: str, file: str) -> str:
        """Begin the batch only once: a try with an unknown result may have begun it."""
        body = {
            "input_file_id": file,
            "endpoint": _URL,
            "completion_window": f"{BATCH_HOURS}h",
            "metadata": {"understudy": token},
        }
        unsure = False

        async def begin() -> str:
            nonlocal unsure
            if unsure and (found := await self._find(token)):
                return found
            unsure = True
            return str(json.loads(await self.client.post("/batches", cast_to=bytes, body=body))["id"])

        return await self._retried(begin, "the batch was not begun")

    async def _find(self, token: str) -> str | None:
        """Return the batch with our name for it, among the account's."""
        after: str | None = None
        while True:
            params = {"limit": 100, **({} if after is None else {"after": after})}
            page = await self._retried(partial(self._get, "/batches", params), "the list of batches could not be read")
            batches = [each for each in page.get("data") or [] if isinstance(each, Mapping)]
            for each in batches:
                if (each.get("metadata") or {}).get("understudy") == token:
                    return str(each["id"])
            if not page.get("has_more") or not batches:
                return None
            after = str(batches[-1]["id"])

    async def _get(self, path: str, params: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        options: Any = {} if params is None else {"params": params}
        document = json.loads(await self.client.get(path, cast_to=bytes, options=options))
        if not isinstance(document, Mapping):
            raise ValueError("no object")
        return document

    async def _retried(self, call: Callable[[], Awaitable[T]], unreadable: str) -> T:
        failures = 0
        while True:
            outcome = await tried(call(), unreadable, timeout=10 * self.endpoint.timeout)
            if not isinstance(outcome, Failure):
                return outcome
            if outcome.refusal is not None:
                raise outcome.refusal
            failures += 1
            _log.debug("Try %d of a call failed: %s.", failures, outcome.reason)
            if not outcome.retry or failures >= BREAKER:
                raise ModelError(
                    f"The endpoint's batches do not work: {outcome.reason}.",
                    "Submitted requests are kept, and the same command continues to wait for them.",
                )
            await asyncio.sleep(max(outcome.pause, backoff(failures, self.endpoint.backoff_seconds)))


def _lines(content: bytes) -> dict[str, object]:
    """Return the lines of a file of answers by the request's key; other lines are left out."""
    found: dict[str, object] = {}
    for line in content.splitlines():
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, Mapping) and isinstance(key := document.get("custom_id"), str):
            found[key] = document
    return found


def _codes(state: Mapping[str, Any]) -> list[str]:
    """Return why a batch was refused, in the endpoint's codes; its messages may quote the requests."""
    errors = state.get("errors")
    data = errors.get("data") if isinstance(errors, Mapping) else None
    codes = {str(each.get("code")) for each in data or [] if isinstance(each, Mapping)}
    return sorted(code for code in codes if code.replace("_", "").isalnum() and len(code) <= 60)[:3]
