"""Processes of this machine, one per core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from loky import ProcessPoolExecutor, cpu_count

from understudy.run.engine import AHEAD, THREADS, TRIES, Call, Check, Outcome, worker_died

T = TypeVar("T")
R = TypeVar("R")
_MODELS_ARE_NO_LEAK = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e15"}  # for which loky would start a worker again


@dataclass
class _Task:
    item: Any
    future: Any = None
    tries: int = 0


class Processes:
    """Implements :class:`~understudy.privacy.measurement.Engine` with loky's processes, which start afresh: no lock and
    no thread of this process is copied into them. A dead worker is replaced and what it worked on is done again."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cpu_count()
        self._pool: Any = None
        self._checks: tuple[Check, ...] = ()

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """As :meth:`Engine.map <understudy.privacy.measurement.Engine.map>`."""
        return self._map(Call.of(function, self._checks), items)

    def _map(self, call: Call, items: Iterable[Any]) -> Iterator[Any]:
        rest = iter(items)
        waiting: deque[_Task] = deque()
        try:
            while True:
                for item in islice(rest, AHEAD * self.workers - len(waiting)):
                    waiting.append(_Task(item))
                if not waiting:
                    return
                outcome = self._first(call, waiting)
                waiting.popleft()
                yield outcome.get()
        finally:
            for task in waiting:
                if task.future is not None:
                    task.future.cancel()

    def ask(self, probe: Callable[[], R], *, always: bool = False) -> R:
        """As :meth:`Engine.ask <understudy.privacy.measurement.Engine.ask>`; processes of one machine are alike."""
        answer: R = next(self._map(Call.asking(probe), [None]))
        if always:
            self._checks += (Check.of(probe, answer),)
        return answer

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=True)
            self._pool = None

    def _first(self, call: Call, waiting: deque[_Task]) -> Outcome:
        """The outcome of the first task; all that wait are with the workers meanwhile."""
        while True:
            try:
                for task in waiting:
                    if task.future is None:
                        task.future = self._ready_pool().submit(call, task.item)
                outcome: Outcome = waiting[0].future.result()
                return outcome
            except BrokenProcessPool:
                self._pool = None
                waiting[0].tries += 1
                if waiting[0].tries == TRIES:
                    raise worker_died() from None
                for task in waiting:
                    if task.future is not None and not _is_done(task.future):
                        task.future = None

    def _ready_pool(self) -> Any:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.workers, env={**THREADS, **_MODELS_ARE_NO_LEAK})
        return self._pool


def _is_done(future: Any) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
