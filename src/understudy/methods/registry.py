"""Methods by name, those of third parties included."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from understudy.errors import ConfigError
from understudy.methods.base import Method

GROUP = "understudy.methods"


def method_names() -> list[str]:
    """Names of the installed methods."""
    return sorted(_installed(entry_points, tuple(sys.path)))


def method_class(name: str) -> type[Any]:
    """The class of the method ``name``.

    Raises:
        ConfigError: if there is none, or it cannot be imported.
    """
    points = _installed(entry_points, tuple(sys.path))
    if name not in points:
        raise ConfigError(f"There is no method {name!r}.", f"Choose one of: {', '.join(sorted(points))}.")
    try:
        loaded: type[Any] = points[name].load()
    except Exception as error:
        raise ConfigError(
            f"The method {name!r} cannot be loaded ({type(error).__name__}).",
            "Update or reinstall the package it comes from.",
        ) from error
    return loaded


@lru_cache(maxsize=8)
def _installed(find: Callable[..., EntryPoints], path: tuple[str, ...]) -> Mapping[str, EntryPoint]:  # noqa: ARG001
    """By name. Searching ``path`` takes 10 ms, and a run asks for its method many times."""
    return {point.name: point for point in find(group=GROUP)}


def require_method(method: object) -> None:
    """See that what a Python caller gives as a method is one, with its parameters.

    Raises:
        ConfigError: if it is a name, a class, or anything else.
    """
    if isinstance(method, type) or not hasattr(method, "dump"):
        given = f"the class {method.__name__}" if isinstance(method, type) else f"of the type {type(method).__name__}"
        raise ConfigError(
            f"The method is {given}, and no method with its parameters.", "Give one such as understudy.DPKPS()."
        )


def make_method(name: str, parameters: Mapping[str, Any]) -> Method:
    """The method ``name`` with ``parameters``.

    Raises:
        ConfigError: if the method or a parameter is unknown or out of range.
    """
    method: Method = method_class(name)(**parameters)
    return method
