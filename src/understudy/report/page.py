"""Templates into one self-contained file, whose policy forbids it to fetch anything or to run what is not ours."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from understudy import __version__
from understudy.errors import ConfigError
from understudy.files import PRIVATE_MODE, atomic_file
from understudy.report.numbers import hundredths, paragraphs, percent, short, span


def render(template: str, **values: Any) -> str:
    """The page: every value escaped, style and script inline and named by their hashes in the page's policy."""
    style, script = _file("style.css"), _file("page.js")
    return (
        _environment()
        .get_template(template)
        .render(
            policy=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            version=__version__,
            **values,
        )
    )


def write_page(path: Path, text: str, *, private: bool) -> None:
    """Write a page, whole or not at all; for its owner's eyes only if ``private``.

    Raises:
        ConfigError: if it cannot be written.
    """
    try:
        with atomic_file(path, mode=PRIVATE_MODE if private else 0o666) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigError(
            f"{path.name} cannot be written ({error.strerror}).", "See that its folder is there and may be written to."
        ) from None


def policy(style: str, script: str) -> str:
    """A content security policy: nothing from anywhere, and of what is inline only this style and this script."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _file(name: str) -> str:
    return resources.files("understudy.report").joinpath("templates", name).read_text("utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("understudy.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(short=short, percent=percent, hundredths=hundredths, span=span, paragraphs=paragraphs)
    return environment
