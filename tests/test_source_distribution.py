"""The source distribution holds all that its own tests, pages and Makefile read."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What hatchling adds by itself.
ALWAYS = {".gitignore", "PKG-INFO", "pyproject.toml"}


def tracked() -> set[str]:
    """The first names of the files that git knows."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return {line.partition("/")[0] for line in listed.stdout.splitlines()}


def test_every_file_of_the_repository_is_in_the_source_distribution() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all(name.startswith("/") for name in included), "without it a folder of that name anywhere is meant"
    assert tracked() - ALWAYS <= {name.removeprefix("/") for name in included}


@pytest.mark.parametrize("name", ["Makefile", "CONTRIBUTING.md", "docs/errors.md", "examples/demo.yaml", ".ci/run"])
def test_what_tests_and_pages_read_is_there(name: str) -> None:
    assert (ROOT / name).is_file()
