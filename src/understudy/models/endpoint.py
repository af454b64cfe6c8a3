"""Ask chat models behind an OpenAI-compatible endpoint: vLLM, Ollama, llama.cpp, hosted ones.

The ``openai`` SDK sends single requests. A run of many thousand requests needs more: workers and retries (this module),
adaptive concurrency, a circuit breaker and caps (:mod:`understudy.models.limits`), and rules for keys, addresses and
the endpoint's dialect (:mod:`understudy.models.connection`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from understudy.base.display import plural
from understudy.base.errors import ConfigError, ModelError
from understudy.models.collect import collect, run_to_end
from understudy.models.connection import Answer, Dialect, Failure, attempt, clean_base_url, find_key, open_client
from understudy.models.limits import (
    BODY_BYTES_PER_TOKEN,
    BREAKER,
    LEAST_BODY_BYTES,
    LIST_BYTES,
    SILENT_SECONDS,
    Breaker,
    Budget,
    Pace,
    Unreachable,
    Usage,
    backoff,
    most_characters,
)
from understudy.models.presets import PRESETS, is_on_this_machine, require_extra_body
from understudy.models.types import ChatModel, ChatRequest, Completion, Message

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = logging.getLogger(__name__)


@dataclass(repr=False, eq=False, kw_only=True)
class EndpointChat:
    """A chat model (:class:`~understudy.models.types.ChatModel`) behind an OpenAI-compatible endpoint.

    Faults:

    - A request that fails after all of its tries gives a ``failed`` completion, and the run goes on.
    - A fault that affects every request (no such model, a refused key, no server, a cap) raises :class:`ModelError`,
      after all received answers were yielded.
    - A reasoning model that used all its tokens without an answer is asked once more with four times the tokens; then
      its completion is ``empty``. The tokens of both tries count.
    - An answer with more tokens than allowed is cut (``length``). If its HTTP body is far too long, it is not read, and
      the request fails (:mod:`understudy.models.limits` has the numbers).

    Args:
        name: the endpoint's name of the model.
        provider: the product, a prefix of :data:`understudy.models.presets.PRESETS`.
        base_url: the endpoint's address; None: the product's own.
        api_key_env: the environment variable with the key; None: the product's variable, for the product's hosts only.
        extra_body: further fields of every request, as the product documents them.
        spending_cap: most money to spend in the life of this object, in the unit of the two prices (required). A try
            whose use is unknown (none reported, timed out, interrupted) counts as the most it could be.
        backoff_seconds: the first wait between two tries; it doubles from try to try.
        say: receives lines for the user.

    Raises ConfigError if a parameter is out of its range, ModelError if the environment variable with the key is not
    set.
    """

    name: str = field(kw_only=False)
    provider: str = "openai"
    base_url: str | None = None
    api_key_env: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    max_concurrency: int = 64
    timeout: float = 120.0
    max_retries: int = 6
    spending_cap: float | None = None
    price_per_million_input: float | None = None
    price_per_million_output: float | None = None
    backoff_seconds: float = 0.5
    say: Callable[[str], None] = _log.warning

    def __post_init__(self) -> None:
        counts = self.max_concurrency >= 1 and min(self.max_retries, self.backoff_seconds) >= 0
        if not (self.name and counts and self.timeout > 0):
            raise ConfigError(
                "The model has no name, or its concurrency, timeout, retries or wait is out of range.",
                "Concurrency is 1 or more, the timeout is positive, retries and wait are 0 or more.",
            )
        preset = PRESETS[self.provider]
        require_extra_body(self.extra_body, preset)
        self._base_url = clean_base_url(self.base_url, preset)
        self._key = find_key(self._base_url, self.api_key_env, preset)
        self.if_unreachable = preset.unreachable_at(self._base_url)
        self.model_id = f"{self.provider}:{self.name}@{self._base_url}"
        self.host = urlsplit(self._base_url).netloc
        self.dialect = Dialect(limit_name=preset.limit_name)
        """The facts learned about the endpoint so far."""
        self.at_once: float = _FIRST_AT_ONCE if is_on_this_machine(self._base_url) else self.max_concurrency
        """The number of concurrent requests that it answers in time, as far as it is known."""
        self.budget = Budget(
            spending_cap=self.spending_cap,
            price_per_million_input=self.price_per_million_input,
            price_per_million_output=self.price_per_million_output,
        )

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        """Yield ``(index into requests, Completion)`` in the order of completion, each index once.

        Raises ModelError if no other request would work either, after waiting for all requests in flight and yielding
        all answers. A cancelled task waits likewise, until it is cancelled again.
        """
        if not requests:
            return
        most_tokens = STRETCH * max(request.max_tokens for request in requests)
        async with self.connect(most_bytes=max(LEAST_BODY_BYTES, BODY_BYTES_PER_TOKEN * most_tokens)) as client:
            session = _Session(self, client, requests)
            task = asyncio.create_task(session.run())
            try:
                while (done := await session.result()) is not None:
                    yield done
                await task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def connect(self, *, most_bytes: int) -> AsyncOpenAI:
        """Return a client of this endpoint, which reads responses up to ``most_bytes``."""
        return open_client(self._base_url, self._key, most_bytes=most_bytes)

    def body(self, request: ChatRequest, *, max_tokens: int) -> dict[str, Any]:
        """Return the JSON body of ``request``, adapted to what is known of the endpoint."""
        return {**self.extra_body, **self.dialect.body(self.name, request, max_tokens=max_tokens)}

    async def list_models(self) -> list[str] | None:
        """Return the names that the endpoint lists at ``/models``; None if it offers no list."""
        async with self.connect(most_bytes=LIST_BYTES) as client:
            try:
                async with asyncio.timeout(self.timeout):
                    document = json.loads(await client.get("/models", cast_to=bytes))
                return [str(entry["id"]) for entry in document["data"]]
            except Exception:  # whatever a library makes of a stranger's bytes
                return None


_FIRST_AT_ONCE = 4
"""Concurrent requests to a server on this machine before its first answers: many answer one after another."""
STRETCH = 4
"""An answer that ran out of tokens while reasoning gets this many times the tokens, once."""

PLAIN = ChatRequest((Message("user", "Say ok."),), max_tokens=4, temperature=0.0)
"""A question that no content filter refuses: an endpoint that refuses it refuses everything."""

WORTH_ADAPTING = frozenset((400, 422))
_NOT_READY = frozenset((503, 529))


@dataclass
class PendingRequest:
    """A request that waits for its answer, with the number of tokens that its tries have used."""

    request: ChatRequest
    stretched: bool = False
    used: Usage = field(default_factory=Usage)

    @property
    def max_tokens(self) -> int:
        return self.request.max_tokens * (STRETCH if self.stretched else 1)

    @property
    def prompt_bytes(self) -> int:
        return sum(len(message.content.encode("utf-8", "replace")) for message in self.request.messages)

    def completion(self, answer: Answer, endpoint: EndpointChat, *, stretch: bool) -> Completion | None:
        """Return the completion for ``answer``; None if it ran out of tokens and, with ``stretch``, gets more."""
        endpoint.dialect.learn(answer, self.request)
        if answer.usage is not None:
            endpoint.budget.learn(self.prompt_bytes, answer.usage.prompt_tokens)
            self.used += answer.usage
        if answer.ran_out and stretch:
            self.stretched = True
            return None
        finish = answer.finish_reason if answer.text or answer.finish_reason == "filtered" else "empty"
        return Completion(answer.text, finish, self.used.prompt_tokens, self.used.completion_tokens)


class _Session:
    """One pass over ``requests``: :meth:`result` returns results while :meth:`run` runs, and None at its end."""

    def __init__(self, endpoint: EndpointChat, client: AsyncOpenAI, requests: Sequence[ChatRequest]) -> None:
        self._results: asyncio.Queue[tuple[int, Completion] | None] = asyncio.Queue()
        self._endpoint = endpoint
        self._client = client
        self._pending = iter(enumerate(requests))
        self._workers = min(endpoint.max_concurrency, len(requests))
        self._pace = Pace(endpoint.max_concurrency, begin=endpoint.at_once, timeout=endpoint.timeout)
        self._breaker = Breaker(
            requests_at_once=self._workers,
            tries=endpoint.max_retries + 1,
            answered=endpoint.dialect.answered,
            if_unreachable=endpoint.if_unreachable,
        )
        self._last_answer = time.monotonic()
        self._waiting = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._in_flight: set[asyncio.Task[Any] | None] = set()
        self._plainly = asyncio.Lock()
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Answer all requests. An error that affects all of them is raised after the requests in flight have ended."""
        watch = asyncio.create_task(self._watch())
        _log.debug("Asking %s at most %d requests at once.", self._endpoint.host, self._workers)
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = [group.create_task(self._work()) for _ in range(self._workers)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            watch.cancel()
            self._endpoint.at_once = self._pace.limit
            used = self._endpoint.budget.used
            _log.debug("%d tokens of prompts and %d of answers so far.", used.prompt_tokens, used.completion_tokens)
            self._results.put_nowait(None)
        if self._error is not None:
            raise self._error

    async def result(self) -> tuple[int, Completion] | None:
        """Return the next result. On the first cancellation it waits until all answers in flight have arrived."""
        try:
            return await self._results.get()
        except asyncio.CancelledError as interrupt:
            if isinstance(self._error, asyncio.CancelledError):
                raise
            self._end(interrupt)
            if count := len(self._in_flight):
                self._endpoint.say(f"Waiting for {plural(count, 'answer')} in flight; interrupt again to lose them.")
            return await self._results.get()

    def _end(self, error: BaseException) -> None:
        """Send nothing more; the first ``error``, or an interrupt, is raised once all answers in flight have come."""
        if self._error is None or isinstance(error, asyncio.CancelledError):
            self._error = error
        for task in self._tasks:
            if task not in self._in_flight and task is not asyncio.current_task():
                task.cancel()

    async def _watch(self) -> None:
        """Report that no answers come, each time that the silence has doubled."""
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
            try:
                completion = await self._answer(request)
            except ModelError as error:
                self._end(error)
                return
            finally:
                self._waiting -= 1
            if completion is None:
                return
            self._results.put_nowait((index, completion))

    async def _answer(self, request: ChatRequest) -> Completion | None:
        """Return the completion of one request; None if the run ends before it is complete."""
        endpoint, asked, failures = self._endpoint, PendingRequest(request), 0
        while self._error is None:
            outcome, adapted, sent_at = await self._send(asked)
            if isinstance(outcome, Answer):
                self._last_answer = time.monotonic()
                self._pace.speed_up(self._last_answer - sent_at)
                self._breaker.answered()
                if completion := asked.completion(outcome, endpoint, stretch=not asked.stretched):
                    return completion
                continue
            if adapted:
                continue
            if outcome.congestion:
                self._pace.slow_down(sent_at, outcome.pause)
            if outcome.unreachable:
                self._breaker.unreachable()
            elif outcome.retry and (not outcome.congestion or outcome.status in _NOT_READY):
                self._breaker.broken(outcome.reason, starting=outcome.status in _NOT_READY)
            failures += 1
            _log.debug("Try %d of a request failed: %s.", failures, outcome.reason)
            if not outcome.retry or failures > endpoint.max_retries:
                if outcome.retry or outcome.status is None:
                    self._breaker.failed(outcome.reason)
                else:
                    await self._refused(1 if outcome.refusal else BREAKER)
                tries = "" if failures == 1 else f" (the last of {failures} tries)"
                return Completion("", "failed", error=outcome.reason + tries)
            await asyncio.sleep(max(outcome.pause, backoff(failures, endpoint.backoff_seconds)))
        return None

    async def _refused(self, fewest: int) -> None:
        """Count a refused text; a ModelError after several in a row if the endpoint refuses a plain question, too."""
        self._breaker.refused += 1
        async with self._plainly:
            if self._error is not None or not self._breaker.suspects(fewest):
                return
            outcome, adapted, _ = await self._send(PendingRequest(PLAIN))
            if isinstance(outcome, Answer):
                self._breaker.cleared()
            elif not outcome.retry and not adapted and self._breaker.suspects(fewest):
                raise outcome.refusal or ModelError(
                    f"The endpoint does not answer: {outcome.reason}, which was a plain question.",
                    "Check it with `understudy models check`; stored answers are kept, and the same command resumes.",
                )

    async def _send(self, asked: PendingRequest) -> tuple[Answer | Failure, bool, float]:
        """Return the result of one try, whether its refusal changed the endpoint's dialect, and when it was sent."""
        endpoint, budget, request = self._endpoint, self._endpoint.budget, asked.request
        worst = used = budget.worst(asked.prompt_bytes, asked.max_tokens)
        sent_at = await self._pace.enter(budget, worst)
        self._in_flight.add(task := asyncio.current_task())
        try:
            body, most = endpoint.body(request, max_tokens=asked.max_tokens), most_characters(asked.max_tokens)
            outcome = await attempt(self._client, body, request=request, timeout=endpoint.timeout, most=most)
            if isinstance(outcome, Answer):
                used = outcome.usage or worst
            elif not outcome.unknown_usage:
                used = Usage()
        finally:
            self._in_flight.discard(task)
            budget.settle(worst, used)
            self._pace.leave()
        if isinstance(outcome, Answer) or outcome.status not in WORTH_ADAPTING:
            return outcome, False, sent_at
        return outcome, endpoint.dialect.adapt(body, outcome.document), sent_at


FEW_TOKENS = 8
_CURE = "Check the model's name and the server's log."


@dataclass(frozen=True)
class ProbeReport:
    """The findings of :func:`probe`, in the order of the questions; None if unknown.

    ``problem`` says why it does not answer, ``cure`` what to do about it, ``seconds`` how long its first answer took,
    ``listed`` whether the endpoint lists the model, ``honours_stop`` whether it ends at a stop string (not tried on a
    model that reasons), ``repeatable`` whether temperature 0 gives the same answer twice, ``reasons`` whether it thinks
    before it answers, ``left_out`` which parameters it refused, so that they are no longer sent.
    """

    model_id: str
    reachable: bool
    answers: bool
    problem: str | None = None
    cure: str | None = None
    seconds: float | None = None
    listed: bool | None = None
    honours_max_tokens: bool | None = None
    honours_stop: bool | None = None
    repeatable: bool | None = None
    takes_system_message: bool | None = None
    reports_usage: bool | None = None
    reasons: bool | None = None
    left_out: tuple[str, ...] = ()


def probe(model: ChatModel) -> ProbeReport:
    """Ask ``model`` six small questions; a model that does not work is reported, not raised."""
    listed = None
    if isinstance(model, EndpointChat) and (names := run_to_end(model.list_models)) is not None:
        listed = model.name in names
    start = time.monotonic()
    try:
        hello = collect(model, [_request("Say hello in one short sentence.", max_tokens=64)])[0]
        seconds = time.monotonic() - start
        if hello.finish_reason == "failed":
            raise ModelError(f"A plain question failed because {hello.error}.", _CURE)
        if isinstance(model, EndpointChat) and model.dialect.plain is None:
            model.dialect.plain = True  # so that a stop string is sent and tried
        few, stopped, first, second, system = collect(
            model,
            [
                _request("Write the numbers from 1 to 100, separated by spaces.", max_tokens=FEW_TOKENS),
                _request("Write the numbers from 1 to 20, separated by spaces.", stop=("7",)),
                _request("Name three colours.", max_tokens=32),
                _request("Name three colours.", max_tokens=32, sample=1),
                _request("What is your job?", system="You are a gardener. Answer in one sentence."),
            ],
        )
    except ModelError as error:
        reachable = not isinstance(error, Unreachable)
        problem, cure = error.problem, error.cure
        return ProbeReport(model.model_id, reachable, answers=False, problem=problem, cure=cure, listed=listed)
    dialect = model.dialect if isinstance(model, EndpointChat) else None
    in_time = few.finish_reason == "length" or (few.completion_tokens or len(few.text.split())) <= FEW_TOKENS
    counted_past = "7" in stopped.text or bool(dialect and dialect.ignores_stop)
    tried = dialect is None or dialect.plain is True
    return ProbeReport(
        model.model_id,
        reachable=True,
        answers=hello.text != "",
        problem=None if hello.text else "It answers without text.",
        cure=None if hello.text else "A reasoning model may need more tokens.",
        seconds=seconds,
        listed=listed,
        honours_max_tokens=in_time if few.text else None,
        honours_stop=not counted_past if counted_past or (tried and "6" in stopped.text) else None,
        repeatable=first.text == second.text if first.text and second.text else None,
        takes_system_message=system.finish_reason != "failed",
        reports_usage=hello.prompt_tokens + hello.completion_tokens > 0,
        reasons=dialect.reasons if dialect else None,
        left_out=tuple(sorted(dialect.left_out)) if dialect else (),
    )


def _request(question: str, *, system: str = "", max_tokens: int = 64, **more: Any) -> ChatRequest:
    instruction = (Message("system", system),) if system else ()
    return ChatRequest((*instruction, Message("user", question)), max_tokens=max_tokens, temperature=0.0, **more)
