"""Collect asynchronous completions in a plain list, with or without a running event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from understudy.base.errors import ModelError
from understudy.models.types import ChatModel, ChatRequest, Completion

if TYPE_CHECKING:
    from understudy.ledger.store.database import AnswerStore

T = TypeVar("T")


@asynccontextmanager
async def closing(stream: AsyncIterator[Any]) -> AsyncIterator[None]:
    """Close ``stream`` at the end of the block, if it can be closed."""
    try:
        yield
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def collect(
    model: ChatModel,
    requests: Sequence[ChatRequest],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Completion]:
    """Answer all requests and return their completions in the order of the requests.

    Inside a running event loop (a notebook) the work is done in another thread; Ctrl-C ends it in both cases.
    ``progress`` is called with the number of texts so far, after each completion, in that thread.

    Raises ModelError as the model does, or if it left a request unanswered.
    """

    async def run() -> list[Completion]:
        completions: list[Completion | None] = [None] * len(requests)
        stream = model.complete(requests)
        done = 0
        async with closing(stream):
            async for index, completion in stream:
                completions[index] = completion
                done += not completion.blank
                if progress is not None:
                    progress(done)
        answered = [completion for completion in completions if completion is not None]
        if len(answered) < len(requests):
            raise ModelError("The model left requests unanswered.", "Report this as a bug of the model's provider.")
        return answered

    return run_to_end(run)


def run_to_end(run: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function to its end, in another thread if an event loop is already running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []
    outcome: Future[T] = Future()

    async def reachable() -> T:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await run()

    def work() -> None:
        try:
            outcome.set_result(asyncio.run(reachable()))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=work, name="understudy-collect", daemon=True)
    try:
        thread.start()  # Ctrl-C may come here, too, when the thread is at work already
        _wait(outcome)
    except KeyboardInterrupt:
        while thread.is_alive() and not begun and not outcome.done():
            time.sleep(0.01)
        if begun and not outcome.done():
            loop, task = begun[0]
            assert task is not None
            loop.call_soon_threadsafe(task.cancel)
        if thread.is_alive():
            _wait(outcome)
        raise
    return outcome.result()


def _wait(outcome: Future[Any]) -> None:
    while not wait([outcome], timeout=0.2).done:  # Ctrl-C does not interrupt a wait without a timeout on Windows
        pass


_log = logging.getLogger(__name__)

LOOK_UP = 1000  # keys in one query of the store
BATCH_SECONDS = 0.05
"""The longest that an answer waits for others to be stored with it. It waits as long as the last storing took: a
kill loses waiting answers, but a run should not spend more than half of its time on writing to the disk."""


class CachedChat:
    """A chat model with a cache: it asks ``model`` only for answers that are not stored in ``answers``.

    Stored answers are yielded first. A fresh one is stored before it is yielded, ``failed`` ones never;
    identical requests of one call are sent once (``sample`` makes requests differ). Received answers
    are stored even if the iterator is closed early or the model raises.

    An answer without text (``empty``, ``filtered``) is not final: it is yielded with an ``error`` and counted, and
    another run asks again, until the store has counted enough of them.
    """

    def __init__(self, model: ChatModel, answers: AnswerStore) -> None:
        self._model = model
        self._answers = answers
        self.model_id = model.model_id
        self.room = getattr(model, "room", None)  # of a local model

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        """Yield ``(index into requests, Completion)``, stored ones first, each index once."""
        places: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            places.setdefault(request.key(self.model_id), []).append(index)
        keys = list(places)
        missing: list[str] = []
        for start in range(0, len(keys), LOOK_UP):
            some = keys[start : start + LOOK_UP]
            stored = self._answers.get_many(some)
            missing += [key for key in some if key not in stored]
            for key, text in stored.items():
                completion = Completion.from_json(text)
                for index in places[key]:
                    yield index, completion
        _log.debug("Of %d requests, %d have stored answers.", len(keys), len(keys) - len(missing))
        if not missing:
            return
        batches = _Batches(self._model.complete([requests[places[key][0]] for key in missing]))
        blank: dict[str, str] = {}
        try:
            wait = 0.0
            while batch := await batches.take(wait):
                before = time.perf_counter()
                blank |= self._store(missing, batch)
                wait = min(time.perf_counter() - before, BATCH_SECONDS)
                for position, completion in batch:
                    for index in places[missing[position]]:
                        yield index, _not_final(completion)
        finally:
            async for batch in batches.rest():
                blank |= self._store(missing, batch)
            if blank:  # last: they count only in a run whose model wrote something
                self._answers.put_blank(blank)

    def _store(self, keys: Sequence[str], batch: Sequence[tuple[int, Completion]]) -> dict[str, str]:
        """Store the answers of ``batch`` that have a text. Return those without a text, by key, except failed ones."""
        items: dict[str, str] = {}
        blank: dict[str, str] = {}
        for position, completion in batch:
            if completion.finish_reason != "failed":
                (blank if completion.blank else items)[keys[position]] = completion.to_json()
        if items:
            self._answers.put_many(items)
        return blank


def _not_final(completion: Completion) -> Completion:
    if completion.finish_reason == "failed" or not completion.blank:
        return completion
    filtered = completion.finish_reason == "filtered"
    return replace(completion, error="a content filter withheld the answers" if filtered else "the answers were empty")


class _Batches:
    """Group the items of a stream into lists."""

    def __init__(self, stream: AsyncIterator[tuple[int, Completion]]) -> None:
        self._stream = stream
        self._items: list[tuple[int, Completion]] = []
        self._arrived = asyncio.Event()
        self._pump = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        try:
            async with closing(self._stream):
                async for item in self._stream:
                    self._items.append(item)
                    self._arrived.set()
        finally:
            self._arrived.set()

    async def take(self, wait: float) -> list[tuple[int, Completion]]:
        """Return the next items, delaying the first by ``wait`` seconds; empty at the stream's end, or its error."""
        await self._arrived.wait()
        await asyncio.wait([self._pump], timeout=wait)
        if not self._items:
            await self._pump
        if not self._pump.done():
            self._arrived.clear()
        return self._hand_over()

    async def rest(self) -> AsyncIterator[list[tuple[int, Completion]]]:
        """End the stream. Return the items not yet taken, and those that still arrive."""
        self._pump.cancel()
        while not self._pump.done():
            await asyncio.wait([self._pump], timeout=BATCH_SECONDS)
            yield self._hand_over()
        await asyncio.gather(self._pump, return_exceptions=True)
        yield self._hand_over()

    def _hand_over(self) -> list[tuple[int, Completion]]:
        items, self._items = self._items, []
        return items
