"""How anything is measured: by the clock, in processor time and in peak memory, in a process of its own."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Matrix products with one thread: two that wait for each other on a busy machine take many times as long."""
PACKAGES = ("numpy", "torch", "pyarrow", "ray", "opendp", "transformers")
_STATUS = Path("/proc/self/status")
_EVERY = 0.02  # seconds between two looks at the memory


@dataclass
class Used:
    """What a piece of work took: seconds by the clock and of processor (all threads), and memory in MiB.

    ``peak_mb`` is the largest resident size of the process so far. ``anonymous_mb`` is the largest, during this work,
    without the pages of mapped files, which the system takes back when it needs them; it is looked at fifty times a
    second, and None where the system does not tell.
    """

    wall_seconds: float = 0.0
    processor_seconds: float = 0.0
    peak_mb: float = 0.0
    anonymous_mb: float | None = None

    def figures(self) -> dict[str, float | None]:
        return {name: rounded(value) for name, value in vars(self).items()}


def rounded(value: float | None) -> float | None:
    """To four significant digits."""
    return None if value is None else float(f"{value:.4g}")


@contextmanager
def measured() -> Iterator[Used]:
    """What is done within, once it has ended."""
    used, ended, largest = Used(), threading.Event(), [anonymous_mb()]

    def watch() -> None:
        while not ended.wait(_EVERY):
            largest.append(max(largest.pop(), anonymous_mb()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    clock, processor = time.perf_counter(), time.process_time()
    try:
        yield used
    finally:
        used.wall_seconds = time.perf_counter() - clock
        used.processor_seconds = time.process_time() - processor
        ended.set()
        watcher.join()
        used.peak_mb = peak_mb()
        used.anonymous_mb = max(largest[0], anonymous_mb()) or None


def peak_mb() -> float:
    """The largest resident size of this process so far.

    ``ru_maxrss`` counts what the process was before its program started, a copy of its parent; Linux's ``VmHWM`` does
    not.
    """
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def anonymous_mb() -> float:
    """The resident size of this process without mapped files; 0 where the system does not tell."""
    return _status("RssAnon")


def _status(field: str) -> float:
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def by_turns(
    ours: Callable[[], object], floor: Callable[[], object], *, repetitions: int, device: str = "cpu"
) -> dict[str, float | None]:
    """Seconds of both, each turn of ours right after one of the floor; medians, and of the ratios too.

    The first turn warms up and does not count. On a CPU these are processor seconds, which other work on the machine
    disturbs least; on a GPU seconds by the clock, until it has done what it was given.
    """
    turns = []
    clock = time.process_time if device == "cpu" else _gpu_clock
    for _ in range(repetitions + 1):
        times = []
        for work in (floor, ours):
            start = clock()
            work()
            times.append(clock() - start)
        turns.append((times[1], times[0], times[1] / max(times[0], 1e-9)))
    names = ("seconds", "floor_seconds", "ratio")
    return {name: rounded(median(each)) for name, each in zip(names, zip(*turns[1:], strict=True), strict=True)}


def _gpu_clock() -> float:
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()


def in_own_process(
    function: Callable[..., T], *arguments: Any, environment: Mapping[str, str] = ONE_THREAD, **named: Any
) -> T:
    """What ``function``, of a module, answers in a fresh process: its peak memory is its own."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(function, *arguments, **named).result()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def machine() -> dict[str, Any]:
    """What the machine is: no name of it, and nothing of who uses it."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": usable,
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": in_own_process(_gpu),
        "system": platform.system(),
    }


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def _gpu() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def versions() -> dict[str, str]:
    """Of Python, this repository and the packages that are there."""
    found = {"python": platform.python_version(), "understudy": _revision()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _revision() -> str:
    """The commit, with a plus sign where ``src/`` is not as it was committed."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load() -> list[float]:
    """Processes that ran or waited, on average over the last 1, 5 and 15 minutes."""
    return [round(each, 2) for each in os.getloadavg()]


def say(line: str) -> None:
    """Progress, for the one who waits."""
    print(line, file=sys.stderr, flush=True)
