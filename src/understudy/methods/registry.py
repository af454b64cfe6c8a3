"""Methods by name, including third-party ones; and Releases with the method that made them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from os import PathLike
from pathlib import Path
from typing import Any

from understudy.base.errors import ConfigError, ReleaseError
from understudy.base.files import require_inside, require_path
from understudy.methods.additions.registry import additions_in, complete, own_parameters
from understudy.methods.base import Method
from understudy.methods.release_schema import mismatch
from understudy.release import Release
from understudy.release.reading import corrupt, read_release

GROUP = "understudy.methods"


def method_names() -> list[str]:
    """Return the names of the installed methods."""
    return sorted(_installed(entry_points, tuple(sys.path)))


def method_class(name: str) -> type[Any]:
    """Return the class of the method ``name``. Raises ConfigError if there is none, or it cannot be imported."""
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
def _installed(find: Callable[..., EntryPoints], path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Return the entry points by name. Cached: searching ``path`` takes 10 ms, and a run does it often."""
    return {point.name: point for point in find(group=GROUP)}


def make_method(name: str, parameters: Mapping[str, Any]) -> Method:
    """Return the method ``name``. Raises ConfigError if it or a parameter is unknown or out of range."""
    method: Method = method_class(name)(**parameters)
    return method


def method_of(release: Release) -> Method:
    """Return the method that made a Release, with the Release's parameters."""
    return make_method(release.method, dict(own_parameters(release)))


def load_release(path: str | PathLike[str], *, max_bytes: int | None = None) -> Release:
    """Read and check a Release file, which may come from anybody.

    Args:
        path: of the file, or of the output folder of a run that made one.
        max_bytes: bytes that the file may unpack to. Default: 256 MiB, at most 100 times its size (64 MiB for a small
            file).

    Raises ReleaseError if it cannot be used, ConfigError if the file in a folder is a link that leads out of it.

    >>> load_release("notes")
    <Release of dp-kps: dataset 'notes', (epsilon=3, delta=1e-06)>
    """
    path = Path(require_path(path))
    if path.is_dir() and len(found := [*path.glob("*.release"), *path.glob("release/*.release")]) == 1:
        require_inside(path, found[0])
        path = found[0]
    release = read_release(path, max_bytes=max_bytes)
    if release.method not in method_names():
        raise ReleaseError(
            f"{path.name} is a Release of a method that is not installed here.",
            f"Install the package it comes from; `understudy plan --help` lists the methods (here: "
            f"{', '.join(method_names())}).",
        )
    known = method_class(release.method)
    if release.statement.private and not known.private:
        raise corrupt(path, "its method protects nobody, but its statement says that it does")
    if release.schema.topics != release.statement.labels_found:
        raise corrupt(path, "its schema and its statement disagree on whether its labels are topics")
    parameters, seed = own_parameters(release), release.parameters.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise corrupt(path, "its seed is not a whole number from 0")
    for name in known.parameters.files():
        value = parameters.get(name)
        if isinstance(value, str) and value != Path(value).name:
            raise corrupt(path, "it names a file outside its folder")  # generating would read that file here
    contents = _method_of(path, release, parameters).contents(release)
    if contents is not None and (problem := mismatch(release, complete(contents, release))):
        raise corrupt(path, problem)
    return release


def _method_of(path: Path, release: Release, parameters: Mapping[str, Any]) -> Method:
    try:
        for each in additions_in(release):
            each.check(release)
        return make_method(release.method, parameters)
    except ConfigError:
        raise corrupt(path, "its parameters are not those of its method") from None
