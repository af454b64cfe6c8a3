"""From asynchronous completions to a plain list, with or without a running event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from understudy.errors import ModelError
from understudy.models.types import ChatModel, ChatRequest, Completion


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

    Inside a running event loop (a notebook) the work is done in a thread of its own; Ctrl-C ends it in
    both cases.

    Args:
        model: any chat model.
        requests: what to ask.
        progress: called with the number of completions so far, after each; in that thread, where there is one.

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
                done += 1
                if progress is not None:
                    progress(done)
        answered = [completion for completion in completions if completion is not None]
        if len(answered) < len(requests):
            raise ModelError("The model left requests unanswered.", "Report this as a bug of the model's provider.")
        return answered

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    return _Thread(run).wait()


class _Thread:
    """A coroutine in an event loop and thread of its own."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self._run = run
        self._result: list[Completion] = []
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="understudy-collect", daemon=True)

    def wait(self) -> list[Completion]:
        self._thread.start()
        try:
            self._join()
        except KeyboardInterrupt:
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
            self._join()
            raise
        if self._error is not None:
            raise self._error
        return self._result

    def _join(self) -> None:
        while self._thread.is_alive():
            self._thread.join(0.2)  # a join without a timeout cannot be interrupted on Windows

    def _main(self) -> None:
        try:
            self._result = asyncio.run(self._reachable())
        except BaseException as error:
            self._error = error

    async def _reachable(self) -> list[Completion]:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        result: list[Completion] = await self._run()
        return result
