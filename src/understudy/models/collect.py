"""From asynchronous completions to a plain list, with or without a running event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from understudy.base.errors import ModelError
from understudy.models.types import ChatModel, ChatRequest, Completion

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

    Inside a running event loop (a notebook) the work is done in a thread of its own; Ctrl-C ends it in both cases.
    ``progress`` is called with the number of texts so far, after each completion, in that thread.

    Raises:
        ModelError: from the model, or when it left a request unanswered.
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
    """Run a coroutine function to its end, in a thread of its own where an event loop is already running."""
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
