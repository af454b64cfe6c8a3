"""Where the parts of a private table are worked on: this process, processes of this machine, or a Ray cluster.

An engine maps a function over items, with results in order and retries. It knows nothing of privacy: workers read
private text and return exact partial sums, or write private files into the run's scratch folder; the process that began
the run alone holds the ledger, samples noise and stores values. What a worker is sent is a function pickled once for
many items, and what comes back are outcomes that quote nothing.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
from loky import ProcessPoolExecutor, cpu_count

from understudy.base.errors import EngineError, UnderstudyError
from understudy.base.lazy import quiet_libraries

THREADS = {"OMP_NUM_THREADS": "1", "UNDERSTUDY_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""The environment of a worker, which has one core."""


TRIES = 4
"""Of an item whose workers or nodes die."""
AHEAD = 2
"""Items per worker that wait, so that none is idle."""


@dataclass(frozen=True, repr=False)
class Check:
    """A function of nothing, pickled, and its answer on every worker that may be used."""

    probe: bytes
    answer: Any

    @classmethod
    def of(cls, probe: Callable[[], Any], answer: Any) -> Check:
        return cls(cloudpickle.dumps(probe), answer)


@dataclass(frozen=True, repr=False)
class Call:
    """A function for many items, and what a worker must find true of itself before its first one.

    Its ``repr`` shows nothing, as engines log those of what they are given.

    Args:
        function: of one item, pickled.
    """

    function: bytes
    checks: tuple[Check, ...] = ()

    @classmethod
    def of(cls, function: Callable[[Any], Any], checks: tuple[Check, ...] = ()) -> Call:
        return cls(cloudpickle.dumps(function), checks)

    @classmethod
    def asking(cls, probe: Callable[[], Any]) -> Call:
        """A function of nothing as one of an item."""
        pickled = cloudpickle.dumps(probe)
        return cls.of(lambda _item: _answer(pickled))

    @quiet_libraries()
    def __call__(self, item: Any) -> Outcome:
        """The function of the item. Whatever it raises is told without its message, which may quote a private text."""
        try:
            if any(_answer(check.probe) != check.answer for check in self.checks):
                raise EngineError(
                    "A worker joined that is not like the others: another processor, device or version.",
                    "Run on machines of one kind, with one installation.",
                )
            return Outcome(cloudpickle.dumps(_load(self.function)(item)))
        except UnderstudyError as error:
            return Outcome(error=type(error)(error.problem, error.cure))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of a Rust library, or a library that exits
            return Outcome(error=_unforeseen(error))


@dataclass(frozen=True, repr=False)
class Outcome:
    """A value, pickled (which may fail, too), or why there is none. Its ``repr`` shows nothing."""

    value: bytes = b""
    error: UnderstudyError | None = None

    def get(self) -> Any:
        """The value; raises the error."""
        error = self.error
        if error is None:
            try:
                return cloudpickle.loads(self.value)
            except Exception as fault:
                error = _unforeseen(fault)
        raise error


def worker_died() -> EngineError:
    """That the same part failed again and again without an error of Python's."""
    return EngineError(
        f"Workers died {TRIES} times at the same part of the work, as they do where memory runs out.",
        "Use fewer workers (--workers), or machines with more memory; the same command resumes.",
    )


def _unforeseen(error: BaseException) -> EngineError:
    """The kind of an error and the line of ours that raised it."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if "understudy" in file.parts:
            place = f" ({file.name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return EngineError(
        f"A worker failed with {type(error).__name__}{place}.",
        "Repeat the command without --engine to see whether it is the engine; the run resumes.",
    )


_MOST_LOADED = 4
_loaded: dict[bytes, Any] = {}
_answers: dict[bytes, Any] = {}


def _load(pickled: bytes) -> Any:
    """What is pickled, unpickled once for all items of a worker."""
    key = hashlib.sha256(pickled).digest()
    if key not in _loaded:
        if len(_loaded) == _MOST_LOADED:
            _loaded.clear()
        _loaded[key] = cloudpickle.loads(pickled)
    return _loaded[key]


def _answer(pickled: bytes) -> Any:
    """What a function of nothing answers, asked once in a worker."""
    key = hashlib.sha256(pickled).digest()
    if key not in _answers:
        _answers[key] = cloudpickle.loads(pickled)()
    return _answers[key]


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
                if self._pool is None:
                    self._pool = ProcessPoolExecutor(self.workers, env={**THREADS, **_MODELS_ARE_NO_LEAK})
                for task in waiting:
                    if task.future is None:
                        task.future = self._pool.submit(call, task.item)
                outcome: Outcome = waiting[0].future.result()
                return outcome
            except BrokenProcessPool:
                self._pool = None
                waiting[0].tries += 1
                if waiting[0].tries == TRIES:
                    raise worker_died() from None
                for task in waiting:
                    future = task.future
                    if future and not (future.done() and not future.cancelled() and future.exception() is None):
                        task.future = None
