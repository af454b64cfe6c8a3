"""What workers are sent in the tests, and an engine that pickles everything and stays in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import numpy as np

T = TypeVar("T")
R = TypeVar("R")
PLANTED = "Zaphod's appendix"


def double(item: int) -> int:
    return 2 * item


def pid(_item: int) -> int:
    return os.getpid()


def fail(item: int) -> int:
    raise ValueError(f"{PLANTED} {item}")


class Unloadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return fail, (1,)


def panic(item: int) -> int:
    raise BaseException(f"{PLANTED} {item}")  # as Rust libraries do: no Exception


@dataclass(frozen=True)
class DiesAt:
    """Kills its process at each item of ``at`` the first ``times`` times."""

    folder: Path
    times: int
    at: tuple[int, ...]

    def __call__(self, item: int) -> int:
        if item in self.at:
            died = len(list(self.folder.glob(f"{item}-*")))
            if died < self.times:
                (self.folder / f"{item}-{died}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return 2 * item


class Pickling:
    """An engine of this process in which everything is pickled, as on its way to a worker, and worked on in any order
    and twice."""

    def __init__(self, workers: int = 2) -> None:
        self.workers = workers

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        sent = [cloudpickle.dumps(item) for item in items]
        answers: dict[int, Any] = {}
        for place in np.random.default_rng(len(sent)).permutation(len(sent)).tolist():
            for _ in range(2):  # as after a worker's death
                answers[place] = cloudpickle.loads(cloudpickle.dumps(function))(cloudpickle.loads(sent[place]))
        yield from (cloudpickle.loads(cloudpickle.dumps(answers[place])) for place in range(len(sent)))

    def ask(self, probe: Callable[[], R], *, always: bool = False) -> R:
        answer: R = cloudpickle.loads(cloudpickle.dumps(probe))()
        return answer
