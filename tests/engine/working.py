"""What workers are sent in the tests, and an engine that pickles everything and stays in this process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import numpy as np
from numpy.typing import NDArray
from word_embedder import WordEmbedder

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


@dataclass(frozen=True)
class Meets:
    """Waits until so many processes are at work."""

    folder: Path
    workers: int

    def __call__(self, item: int) -> int:
        (self.folder / f"here-{os.getpid()}").touch()
        for _ in range(6000):
            if len(list(self.folder.glob("here-*"))) >= self.workers:
                break
            time.sleep(0.01)
        return item


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


@dataclass(frozen=True)
class DyingEmbedder(WordEmbedder):
    """Its process ends at the first private text that it is given, as often as ``times``."""

    folder: Path
    times: int
    after: float = 0.0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any("Number 3" in text for text in texts) and len(list(self.folder.glob("died-*"))) < self.times:
            (self.folder / f"died-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(texts)


@dataclass(frozen=True)
class Recording(WordEmbedder):
    """Leaves a file named by its process wherever it embeds a real text."""

    folder: Path

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any("Seen today" in text for text in texts):
            (self.folder / str(os.getpid())).touch()
        return super().embed(texts)

    def processes(self) -> set[int]:
        """Those since it was asked before."""
        found = list(self.folder.iterdir())
        for each in found:
            each.unlink()
        return {int(each.name) for each in found}


@dataclass(frozen=True)
class ByNeighbour(WordEmbedder):
    """Whose vectors change with the texts beside them, but not before it was sent to a worker."""

    sound: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        return ByNeighbour, (False,)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed(texts)
        return vectors if self.sound else vectors + np.float32(len(texts) > 20) / 1024


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

    def close(self) -> None:
        pass
