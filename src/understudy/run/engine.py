"""Where the parts of a private table are worked on: this process, processes of this machine, or a Ray cluster.

An engine maps a function over items, with ordered results and retries. It knows nothing of privacy: workers read
private text and return exact partial sums, or write private files into the run's scratch folder; only the process that
began the run uses the ledger, samples noise and stores values. A function is pickled once for many items and sent to
the workers, which return outcomes that quote no text.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
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
from understudy.base.files import PRIVATE_MODE, write_file
from understudy.base.lazy import quiet_libraries

THREADS = {"OMP_NUM_THREADS": "1", "UNDERSTUDY_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""The environment of a worker, which has one core."""


TRIES = 4
"""How often to try an item if its workers or nodes die."""
AHEAD = 2
"""Waiting items per worker, so that no worker is idle."""


@dataclass(frozen=True, repr=False)
class Check:
    """A pickled function without arguments, and the result that every usable worker must return."""

    probe: bytes
    answer: Any

    @classmethod
    def of(cls, probe: Callable[[], Any], answer: Any) -> Check:
        return cls(cloudpickle.dumps(probe), answer)


@dataclass(frozen=True, repr=False)
class Call:
    """A pickled function for many items, and the check that a worker must pass before its first item.

    Its ``repr`` shows nothing, because engines log the ``repr`` of their inputs.

    Args:
        function: takes one item; pickled.
    """

    function: bytes
    checks: tuple[Check, ...] = ()

    @classmethod
    def of(cls, function: Callable[[Any], Any], checks: tuple[Check, ...] = ()) -> Call:
        return cls(cloudpickle.dumps(function), checks)

    @classmethod
    def asking(cls, probe: Callable[[], Any]) -> Call:
        """Return a call that ignores its item and returns the answer of ``probe``."""
        pickled = cloudpickle.dumps(probe)
        return cls.of(lambda _item: _answer(pickled))

    @quiet_libraries()
    def __call__(self, item: Any) -> Outcome:
        """Apply the function to the item. Report exceptions without their message, which may quote a private text."""
        try:
            if any(_answer(check.probe) != check.answer for check in self.checks):
                raise EngineError(
                    "A worker with a different processor, device or version joined.",
                    "Use machines of one kind with the same installation.",
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
    """The pickled result of a worker, or the reason why there is none. Its ``repr`` shows nothing."""

    value: bytes = b""
    error: UnderstudyError | None = None

    def get(self) -> Any:
        """Return the value, or raise the error."""
        error = self.error
        if error is None:
            try:
                return cloudpickle.loads(self.value)
            except Exception as fault:
                error = _unforeseen(fault)
        raise error


def worker_died() -> EngineError:
    """Return the error for a part that failed repeatedly without a Python exception."""
    return EngineError(
        f"Workers died {TRIES} times at the same part of the work, probably because memory ran out.",
        "Use fewer workers (--workers), or machines with more memory; the same command resumes.",
    )


def _unforeseen(error: BaseException) -> EngineError:
    """Return an error with the type of ``error`` and the line of understudy that raised it."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if "understudy" in file.parts:
            place = f" ({file.name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return EngineError(
        f"A worker failed with {type(error).__name__}{place}.",
        "Repeat the command without --engine to see whether the engine is the cause; the run resumes.",
    )


_MOST_LOADED = 4
_loaded: dict[bytes, Any] = {}
_answers: dict[bytes, Any] = {}


def _load(pickled: bytes) -> Any:
    """Unpickle, once for all items of a worker."""
    key = hashlib.sha256(pickled).digest()
    if key not in _loaded:
        if len(_loaded) == _MOST_LOADED:
            _loaded.clear()
        _loaded[key] = cloudpickle.loads(pickled)
    return _loaded[key]


def _answer(pickled: bytes) -> Any:
    """Return the answer of a pickled function without arguments; a worker computes it once."""
    key = hashlib.sha256(pickled).digest()
    if key not in _answers:
        _answers[key] = cloudpickle.loads(pickled)()
    return _answers[key]


T = TypeVar("T")
R = TypeVar("R")
_MODELS_ARE_NO_LEAK = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e15"}  # loky would restart a worker for it


@dataclass
class _Task:
    item: Any
    future: Any = None
    tries: int = 0


class Processes:
    """Implements :class:`~understudy.privacy.measurement.Engine` with loky's processes, which start afresh: no lock and
    no thread of this process is copied into them. A dead worker is replaced and its items are repeated."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cpu_count()
        self._pool: Any = None
        self._checks: tuple[Check, ...] = ()

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Do as :meth:`Engine.map <understudy.privacy.measurement.Engine.map>`."""
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
        """Do as :meth:`Engine.ask <understudy.privacy.measurement.Engine.ask>`; one process answers for its machine."""
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
        """Return the outcome of the first task while the workers process all waiting tasks."""
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


_TASK = "understudy"  # every task has this name, as dashboards and logs show it
_START, _TRIAL = 300.0, 3600.0  # seconds for a node's first answer, and for trying a model


class RayCluster:
    """Implements :class:`~understudy.privacy.measurement.Engine` with Ray's tasks, each of one core: on the cluster
    that UNDERSTUDY_RAY_ADDRESS names, or on a new one of this machine only; RAY_ADDRESS is ignored.

    Ray repeats a task if its worker or node dies. Exceptions of tasks never reach Ray, which would log them.

    Args:
        workers: cores to use; None for all that the cluster has.
        scratch: private: where a local cluster puts objects that do not fit into its shared memory.
    """

    def __init__(self, *, workers: int | None = None, scratch: Path) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = os.environ.get("UNDERSTUDY_RAY_ADDRESS") or "local"
        local = address == "local"
        try:
            import ray
        except ImportError:
            raise EngineError("Ray is not installed.", "Install the extra: pip install 'understudy[ray]'") from None
        self._ray: Any = ray
        own: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if local else {}
        if local:
            own["object_spilling_directory"] = str(scratch)
        try:
            if local:
                _ask_for_token()
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
        except Exception as error:
            if local:
                raise EngineError(
                    f"Ray did not start on this machine ({type(error).__name__}).",
                    "Check that memory and disk are free and the home folder is writable, and repeat the command, or "
                    "use --engine processes.",
                ) from None
            raise EngineError(
                f"No Ray cluster could be reached at {address} ({type(error).__name__}).",
                "Check UNDERSTUDY_RAY_ADDRESS, and that the cluster has the same versions of Ray and Python.",
            ) from None
        resources = ray.cluster_resources()
        self.workers = workers or max(1, int(resources.get("CPU", 1)))
        gpus = min(1.0, math.floor(1e4 * resources.get("GPU", 0.0) / self.workers) / 1e4)  # in Ray's steps of 1/10,000
        self._options = {
            "num_cpus": 1,
            "num_gpus": gpus,
            "max_retries": TRIES - 1,
            "retry_exceptions": False,
            "name": _TASK,
            "runtime_env": {"env_vars": THREADS},
        }
        self._gpus = gpus
        self._checks: tuple[Check, ...] = ()

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Do as :meth:`Engine.map <understudy.privacy.measurement.Engine.map>`."""
        ray, rest = self._ray, iter(items)
        call = ray.put(Call.of(function, self._checks))
        start = ray.remote(_done).options(**self._options).remote
        waiting: deque[Any] = deque()
        try:
            while True:
                for item in islice(rest, AHEAD * self.workers - len(waiting)):
                    waiting.append(start(call, _Sealed(item)))
                if not waiting:
                    return
                yield self._outcome(waiting.popleft()).get()
        finally:
            for each in waiting:
                ray.cancel(each, force=True)

    def ask(self, probe: Callable[[], R], *, always: bool = False) -> R:
        """Do as :meth:`Engine.ask <understudy.privacy.measurement.Engine.ask>`: every node answers."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray, call = self._ray, Call.asking(probe)
        least = {"CPU": 1, "GPU": self._gpus}
        nodes = [
            node
            for node in ray.nodes()
            if node["Alive"] and all(node["Resources"].get(name, 0) >= count for name, count in least.items())
        ]
        task = ray.remote(_done)
        asked = [
            task.options(
                **self._options, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(call, _Sealed(None))
            for node in nodes
        ]
        timeout = _TRIAL if self._checks else _START
        answers = [self._outcome(each, timeout=timeout).get() for each in asked]
        if not answers:
            raise EngineError(
                "No machine of the Ray cluster has enough cores or GPUs for one task.",
                "Add a machine with more of them.",
            )
        if any(answer != answers[0] for answer in answers):
            raise EngineError(
                "The machines of the Ray cluster differ in processor, device or version, which changes vectors.",
                "Use machines of one kind with the same installation.",
            )
        answer: R = answers[0]
        if always:
            self._checks += (Check.of(probe, answer),)
        return answer

    def close(self) -> None:
        """Leave the cluster; stop it if this process started it."""
        self._ray.shutdown()

    def _outcome(self, asked: Any, *, timeout: float | None = None) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(asked, timeout=timeout)
        except self._ray.exceptions.GetTimeoutError:
            raise EngineError(
                "A machine of the Ray cluster did not answer.", "Check that it is up and has a free core."
            ) from None
        except self._ray.exceptions.RayError as error:
            if isinstance(error, self._ray.exceptions.RuntimeEnvSetupError | self._ray.exceptions.RaySystemError):
                raise EngineError(
                    f"The Ray cluster cannot run a task ({type(error).__name__}).",
                    "Install the same understudy, with its extras, on all of its machines.",
                ) from None
            raise worker_died() from None
        return outcome


def _ask_for_token() -> None:
    """Make a local cluster, which listens on the network, refuse other users. Ray lets everyone read its token."""
    from ray._raylet import Config

    if os.environ.setdefault("RAY_AUTH_MODE", "token").lower() != "token":
        return
    Config.initialize("")  # Ray read the mode when it was imported, perhaps long ago
    file = Path.home() / ".ray" / "auth_token"
    if any(os.environ.get(own) for own in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        return
    if file.exists():
        file.chmod(PRIVATE_MODE)
    else:
        file.parent.mkdir(exist_ok=True)
        write_file(file, secrets.token_hex(32), mode=PRIVATE_MODE)


class _Sealed:
    """An item whose ``repr`` shows nothing."""

    def __init__(self, item: Any) -> None:
        self.item = item


def _done(call: Call, item: _Sealed) -> Outcome:
    return call(item.item)
