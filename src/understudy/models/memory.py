"""Whether it was memory that a model lacked."""

from __future__ import annotations


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that the device or the machine had no memory left. torch has no one type for that."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
