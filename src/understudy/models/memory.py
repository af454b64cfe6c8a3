"""Whether there is memory enough: asked before a charge, and told of an error after one."""

from __future__ import annotations

import os
from pathlib import Path

from understudy.errors import ConfigError

_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def require_memory(needed: int, *, what: str, cure: str) -> None:
    """See that this machine could ever hold what is to come, before anything is charged.

    Args:
        needed: bytes, about.
        what: they are for.
        cure: what makes them fewer.

    Raises:
        ConfigError: if they are more than the machine, or the container that this process runs in, has in all.
    """
    there = _memory()
    if there is not None and needed > there:
        raise ConfigError(
            f"{what} would take about {needed / 2**30:.3g} GiB of memory, and this machine has {there / 2**30:.3g}.",
            cure,
        )


def _memory() -> int | None:
    """Bytes in all; None where the system does not say."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has none of these
        return None
    try:
        return min(found, int(_CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return found


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that the device or the machine had no memory left. torch has no one type for that."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
