"""Texts decoded in several worker threads at once, all of which end where one fails or the user stops the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from typing import TypeVar

from understudy.models.causal import CausalModel
from understudy.models.machine import worker_pool

T = TypeVar("T")


class Stop:
    """Tells the workers of a run to end."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def check(self) -> None:
        """Raise where the run is being stopped: the text in the making is not stored, and decoded again."""
        if self._asked.is_set():
            raise _Stopped


class _Stopped(Exception):
    """Another thread failed, or the user stopped the run."""


def at_once(model: CausalModel, *, repeatable: bool, rows: int, tokens: int) -> int:
    """How many texts are decoded at a time, each with so many rows of so many tokens in the model.

    Args:
        repeatable: seeded noise repeats in one order only, so one at a time.
    """
    return 1 if repeatable else model.batches_in_flight(rows, tokens)


def run_together(
    tasks: Sequence[Callable[[], T]],
    *,
    device: str,
    most: int,
    stop: Stop,
    done: Callable[[T], None] = lambda _result: None,
) -> list[T]:
    """The results of ``tasks``, in their order, ``most`` of them running at once.

    Args:
        done: told each result as it comes, in this thread.

    Raises:
        BaseException: the first error of a task; the others have ended then.
    """
    pool = worker_pool(device, most=most)
    try:
        running = [pool.submit(task) for task in tasks]
        for finished in as_completed(running):
            done(finished.result())
        return [each.result() for each in running]
    finally:
        stop.ask()
        pool.shutdown(wait=True, cancel_futures=True)
