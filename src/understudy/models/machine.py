"""Check the resources of this machine for local models: the extra ``local``, a device, threads and memory.

Inference runs in several single-threaded workers instead of one model on all cores. The operations of small models are
too short to divide: on two busy cores, two workers of one thread each were measured many times faster than one
worker with two threads that wait for each other at every step. It also makes results independent of the core count.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from understudy.base.errors import ConfigError, ModelError
from understudy.base.lazy import torch

T = TypeVar("T")

_NO_CUDA = "torch sees no CUDA device on this machine."
_PACKAGES = ("torch", "transformers", "sentence_transformers", "gguf", "accelerate", "safetensors")


def missing_packages() -> list[str]:
    """Return the packages that local models need and that are not installed."""
    return [name for name in _PACKAGES if find_spec(name) is None]


def require_local(device: str | None = None) -> None:
    """Make sure that local models can be loaded, on this device, without the hub's telemetry, before anything imports
    torch."""
    if missing := missing_packages():
        raise ModelError(
            f"Local models need packages that are not installed: {', '.join(missing)}.",
            "Install the extra: pip install 'understudy[local]'",
        )
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", message="IProgress not found")  # of a notebook without widgets
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError(_NO_CUDA, "Leave the device out, or name cpu.")


def best_device() -> str:
    """Return ``"cuda"`` if torch sees a device, else ``"cpu"``; or the value of ``UNDERSTUDY_DEVICE``."""
    require_local()
    there = torch.cuda.is_available()
    said = named_in_environment("UNDERSTUDY_DEVICE", ("cpu", "cuda"))
    if said == "cuda" and not there:
        raise ModelError(_NO_CUDA, "Unset UNDERSTUDY_DEVICE, or set it to cpu.")
    return said or ("cuda" if there else "cpu")


def named_in_environment(variable: str, choices: tuple[str, ...]) -> str | None:
    """Return the choice that the environment variable names; None if it is not set. ConfigError for anything else."""
    said = os.environ.get(variable) or None
    if said is not None and said not in choices:
        raise ConfigError(f"Unknown value {said!r} of {variable}.", f"Set it to {' or '.join(choices)}, or unset it.")
    return said


_MOST = 8  # beyond this they wait for the interpreter lock


def worker_count(device: str) -> int:
    """Return the number of workers: one per core, at most eight, or ``UNDERSTUDY_THREADS``; a GPU has one."""
    if device != "cpu":
        return 1
    if (threads := os.environ.get("UNDERSTUDY_THREADS", "")).isdigit():
        return max(1, int(threads))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST)


def worker_pool(device: str, *, most: int | None = None) -> ThreadPoolExecutor:
    """Make a pool of :func:`worker_count` threads, or ``most`` of them, in each of which torch uses one core."""
    return ThreadPoolExecutor(
        worker_count(device) if most is None else most,
        thread_name_prefix="understudy-model",
        initializer=torch.set_num_threads,
        initargs=(1,),
    )


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch compute with one core in this thread within the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


@contextmanager
def single_threaded_inference() -> Iterator[None]:
    """Let torch infer with one core in this thread within the block."""
    with one_core(), torch.inference_mode():
        yield


_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def fits_memory(needed: int) -> bool:
    """Return whether this many bytes could ever fit into the memory of the machine or this process's container."""
    available = _memory()
    return available is None or needed <= available


def require_memory(needed: int, *, what: str, cure: str) -> None:
    """Check that ``needed`` bytes fit into the memory of the machine or container, before anything is charged.

    ConfigError if not, which names ``what`` needs them.
    """
    if not fits_memory(needed):
        available = (_memory() or 0) / 2**30
        raise ConfigError(
            f"{what} would take about {needed / 2**30:.3g} GiB of memory, and this machine has {available:.3g}.", cure
        )


def halved_to_fit(count: int, work: Callable[[int], T], *, problem: str, cure: str) -> T:
    """Call ``work(count)``, and halve the count while memory runs out. Return the result. ConfigError if memory runs
    out with 1."""
    while True:
        try:
            return work(count)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        if count == 1:
            raise ConfigError(problem, cure)
        count //= 2


def _memory() -> int | None:
    """Return the total bytes of memory; None if the system does not say."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has none of these
        return None
    try:
        return min(found, int(_CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return found


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` says that the device or the machine ran out of memory. torch uses several types."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
