"""Load libraries that are slow, or belong to an extra, on first use, so that ``--help`` and ``import understudy``
do not wait for them. And silence them while they process private data: whether they warn is a bit about the data that
no epsilon covers."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from understudy.base.errors import ConfigError, UnderstudyWarning

__all__ = ["arrow_types", "common", "fs", "library", "pa", "pc", "pld", "pmf", "pq", "special", "stats", "torch"]


class _Library:
    """A placeholder for a module. ImportError if it is used and not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _Library, (self._name,)


_LOADING = Lock()


class _Part(_Library):
    """A placeholder for one module of ``dp_accounting``: the whole package loads scipy's statistics and optimisers for
    accountants that understudy does not use, which takes most of a second of every plan."""

    def __getattr__(self, name: str) -> Any:
        with _LOADING:
            if self._name not in sys.modules:
                _load_alone(self._name)
        return super().__getattr__(name)


def _load_alone(name: str) -> None:
    """Load a module below an empty package, and its parts of scipy only when they are used."""
    package = name.partition(".")[0]
    if package in sys.modules or (spec := find_spec(package)) is None:
        return
    import scipy

    later = {each: _Library(f"scipy.{each}") for each in ("signal", "stats") if each not in vars(scipy)}
    sys.modules[package] = ModuleType(package)
    sys.modules[package].__path__ = list(spec.submodule_search_locations or ())
    vars(scipy).update(later)
    try:
        import_module(name)
    finally:
        del sys.modules[package]
        for each, stand_in in later.items():
            if vars(scipy)[each] is stand_in:
                delattr(scipy, each)


def library(name: str) -> Any:
    """Return a library that is not a dependency of understudy; ConfigError if it is not installed."""
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
    from dp_accounting.pld import pld_pmf as pmf
    from dp_accounting.pld import privacy_loss_distribution as pld
    from pyarrow import fs
    from scipy import special, stats
else:
    torch = _Library("torch")
    pa, pc, pq = _Library("pyarrow"), _Library("pyarrow.compute"), _Library("pyarrow.parquet")
    arrow_types, fs = _Library("pyarrow.types"), _Library("pyarrow.fs")
    special, stats = _Library("scipy.special"), _Library("scipy.stats")
    common, pmf = _Part("dp_accounting.pld.common"), _Part("dp_accounting.pld.pld_pmf")
    pld = _Part("dp_accounting.pld.privacy_loss_distribution")


class _NotOurs(type):
    def __subclasscheck__(cls, category: type) -> bool:
        return not issubclass(category, UnderstudyWarning)


class _LibraryWarning(Warning, metaclass=_NotOurs):
    """Every warning except understudy's, as the category of a filter."""


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Show only understudy's warnings and log lines, and let no other warning become an error (``python -W
    error``), which would stop a run after its charge. Output that a library prints itself is not suppressed."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UnderstudyWarning):
            shown(message, category, *place, **more)

    ours = logging.Filter("understudy")
    handlers = [each for each in (*logging.root.handlers, logging.lastResort) if each is not None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", _LibraryWarning)
        shown, warnings.showwarning = warnings.showwarning, show  # for libraries that set filters themselves
        for each in handlers:
            each.addFilter(ours)
        try:
            yield
        finally:
            for each in handlers:
                each.removeFilter(ours)
