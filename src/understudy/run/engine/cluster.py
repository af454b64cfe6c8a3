"""A Ray cluster: the one that UNDERSTUDY_RAY_ADDRESS names, or one of this machine alone, whatever RAY_ADDRESS says."""

from __future__ import annotations

import math
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from understudy.base.errors import EngineError
from understudy.base.files import PRIVATE_MODE, atomic_file
from understudy.run.engine import AHEAD, THREADS, TRIES, Call, Check, Outcome, worker_died

T = TypeVar("T")
R = TypeVar("R")
_TASK = "understudy"  # the name of every task: dashboards and logs show it
_START, _TRIAL = 300.0, 3600.0  # seconds for a node to answer at first, and to try a model


class RayCluster:
    """Implements :class:`~understudy.privacy.measurement.Engine` with Ray's tasks, each of one core.

    Ray does a task again whose worker or node dies. What tasks raise never reaches Ray, which would log it.

    Args:
        workers: cores to use; None for all that the cluster has.
        scratch: private: where a local cluster puts what does not fit into its shared memory.
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
                    "See that memory and disk are free and the home folder can be written, and repeat the command, or "
                    "use --engine processes.",
                ) from None
            raise EngineError(
                f"No Ray cluster could be reached at {address} ({type(error).__name__}).",
                "Check UNDERSTUDY_RAY_ADDRESS, and that the cluster's version of Ray and Python is this one's.",
            ) from None
        resources = ray.cluster_resources()
        self.workers = workers or max(1, int(resources.get("CPU", 1)))
        gpus = min(1.0, math.floor(1e4 * resources.get("GPU", 0.0) / self.workers) / 1e4)  # Ray counts 1/10,000 of one
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
        """As :meth:`Engine.map <understudy.privacy.measurement.Engine.map>`."""
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
        """As :meth:`Engine.ask <understudy.privacy.measurement.Engine.ask>`: every node answers."""
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
                "No machine of the Ray cluster has the cores, or GPUs, that a task asks for.",
                "Add machines.",
            )
        if any(answer != answers[0] for answer in answers):
            raise EngineError(
                "The machines of the Ray cluster are not alike: another processor, device or version changes vectors.",
                "Run on machines of one kind, with one installation.",
            )
        answer: R = answers[0]
        if always:
            self._checks += (Check.of(probe, answer),)
        return answer

    def close(self) -> None:
        """Leave the cluster; end it if it is ours."""
        self._ray.shutdown()

    def _outcome(self, asked: Any, *, timeout: float | None = None) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(asked, timeout=timeout)
        except self._ray.exceptions.GetTimeoutError:
            raise EngineError(
                "A machine of the Ray cluster does not answer.", "See whether it is up and has a free core."
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
    """Have a local cluster, which listens on the network, refuse all but its user. Ray lets all read its token."""
    from ray._raylet import Config

    if os.environ.setdefault("RAY_AUTH_MODE", "token").lower() != "token":
        return
    Config.initialize("")  # Ray has read the mode when it was imported, perhaps long ago
    file = Path.home() / ".ray" / "auth_token"
    if any(os.environ.get(own) for own in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        return
    if file.exists():
        file.chmod(PRIVATE_MODE)
    else:
        file.parent.mkdir(exist_ok=True)
        with atomic_file(file, mode=PRIVATE_MODE) as stream:
            stream.write(secrets.token_hex(32).encode())


class _Sealed:
    """An item whose ``repr`` shows nothing."""

    def __init__(self, item: Any) -> None:
        self.item = item


def _done(call: Call, item: _Sealed) -> Outcome:
    return call(item.item)
