"""Methods by name, those of third parties included."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from understudy.errors import ConfigError
from understudy.methods.protocol import Method

GROUP = "understudy.methods"


def method_names() -> list[str]:
    """Names of the installed methods."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def method_class(name: str) -> type[Any]:
    """The class of the method ``name``.

    Raises:
        ConfigError: if there is none, or it cannot be imported.
    """
    points = {point.name: point for point in entry_points(group=GROUP)}
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


def make_method(name: str, parameters: Mapping[str, Any]) -> Method:
    """The method ``name`` with ``parameters``.

    Raises:
        ConfigError: if the method or a parameter is unknown or out of range.
    """
    method: Method = method_class(name)(**parameters)
    return method
