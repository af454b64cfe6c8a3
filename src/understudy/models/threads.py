"""Worker threads for inference: several single-threaded workers instead of one model on all cores.

The operations of small models are too short to share out: on two busy cores, two workers of one thread each
were measured many times faster than one worker with two threads that wait for each other at every step. It
also makes a result independent of the number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_MOST = 8  # beyond this the interpreter lock is what they wait for


def worker_count(device: str) -> int:
    """One worker a core, at most eight; a GPU has one."""
    if device != "cpu":
        return 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST)


def worker_pool(device: str, *, most: int | None = None) -> ThreadPoolExecutor:
    """A pool of :func:`worker_count` threads, or ``most`` of them, in each of which torch uses one core."""
    import torch

    return ThreadPoolExecutor(
        worker_count(device) if most is None else most,
        thread_name_prefix="understudy-model",
        initializer=torch.set_num_threads,
        initargs=(1,),
    )


@contextmanager
def one_core() -> Iterator[None]:
    """Within it torch computes with one core in this thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


@contextmanager
def single_threaded_inference() -> Iterator[None]:
    """Within it torch infers, with one core in this thread."""
    import torch

    with one_core(), torch.inference_mode():
        yield
