"""From asynchronous completions to a plain list, with or without a running event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from understudy.errors import ModelError
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
    return _Thread(run).wait()


class _Thread(Generic[T]):
    """A coroutine in an event loop and thread of its own."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._run = run
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()

    def wait(self) -> T:
        thread = threading.Thread(target=self._main, name="understudy-collect", daemon=True)
        try:
            thread.start()  # Ctrl-C may come here, too, when the thread is at work already
            self._join()
        except KeyboardInterrupt:
            while thread.is_alive() and self._task is None and not self._ended.wait(0.01):
                pass
            if self._loop is not None and self._task is not None and not self._ended.is_set():
                self._loop.call_soon_threadsafe(self._task.cancel)
            if thread.is_alive():
                self._join()
            raise
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _join(self) -> None:
        while not self._ended.wait(0.2):  # Ctrl-C does not interrupt a wait without a timeout on Windows
            pass

    def _main(self) -> None:
        try:
            self._result.append(asyncio.run(self._reachable()))
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    async def _reachable(self) -> T:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        return await self._run()
