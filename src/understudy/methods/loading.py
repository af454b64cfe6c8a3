"""From a Release file to a Release that its method can work with, or one clear error."""

from __future__ import annotations

from pathlib import Path

from understudy.errors import ConfigError, ReleaseError
from understudy.methods.base import Method
from understudy.methods.contents import mismatch
from understudy.methods.registry import make_method, method_names
from understudy.release import Release
from understudy.release.reading import corrupt, read_release


def load_release(path: str | Path, *, max_bytes: int | None = None) -> Release:
    """Read and check a Release file, which may come from anybody.

    Args:
        max_bytes: bytes that the file may unpack to. Default: 256 MiB, and of those no more than 100 times its own size
            (64 MiB for a small file).

    Raises:
        ReleaseError: if the file is missing, is no Release, is damaged, unpacks to more, comes from a newer version or
            from a method that is not installed, or does not hold what its method makes.
    """
    path = Path(path)
    release = read_release(path, max_bytes=max_bytes)
    method = _method(path, release)
    contents = method.contents(release)
    if contents is not None and (problem := mismatch(release, contents)):
        raise corrupt(path, problem)
    return release


def _method(path: Path, release: Release) -> Method:
    if release.method not in method_names():
        raise ReleaseError(
            f"{path.name} is a Release of a method that is not installed here.",
            f"Install the package it comes from; `understudy plan --help` lists the methods (here: "
            f"{', '.join(method_names())}).",
        )
    parameters = dict(release.parameters)
    seed = parameters.pop("seed", None)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise corrupt(path, "its seed is no number from 0")
    try:
        method = make_method(release.method, parameters)
    except ConfigError:
        raise corrupt(path, "its parameters are not those of its method") from None
    for name in method.parameters.public_files():
        value = parameters.get(name)
        if isinstance(value, str) and value != Path(value).name:
            raise corrupt(path, "it names a file outside its folder")  # which generating would read here
    return method
