"""Libraries that take long to load, or belong to an extra: each is loaded when something of it is first used, so that
``--help`` and ``import understudy`` wait for none of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from understudy.base.errors import ConfigError

__all__ = ["arrow_types", "common", "fs", "library", "pa", "pc", "pld", "pq", "special", "stats", "torch"]


class _Library:
    """Stands for a module. ImportError where it is used and not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _Library, (self._name,)


def library(name: str) -> Any:
    """A library that is no dependency of ours; ConfigError where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(f"{name} is not installed.", f"Install it: pip install {name}.") from None


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import pyarrow.types as arrow_types
    import torch
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld
    from pyarrow import fs
    from scipy import special, stats
else:
    torch = _Library("torch")
    pa, pc, pq = _Library("pyarrow"), _Library("pyarrow.compute"), _Library("pyarrow.parquet")
    arrow_types, fs = _Library("pyarrow.types"), _Library("pyarrow.fs")
    special, stats = _Library("scipy.special"), _Library("scipy.stats")
    common, pld = _Library("dp_accounting.pld.common"), _Library("dp_accounting.pld.privacy_loss_distribution")
