"""Render templates to self-contained files, whose policy forbids fetching anything and running foreign scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from understudy.base.display import DIRECTIONS
from understudy.base.errors import ConfigError, UnderstudyError
from understudy.base.files import PRIVATE_MODE, SHARED_MODE, write_file
from understudy.report.charts import bars
from understudy.report.grids import BETTER, SIGNS, largest, table_words
from understudy.report.numbers import as_record, hundredths, paragraphs, percent, short, span


def render(template: str, **values: Any) -> str:
    """Render the page: all values escaped, style and script inline and named by their hashes in the page's policy.

    Control characters, which HTML may not contain, are shown as visible symbols.
    """
    style, script = report_file("style.css"), report_file("page.js")
    inline = {"policy": policy(style, script), "style": Markup(style), "script": Markup(script)}
    return visible(environment().get_template(template).render(version=version("understudy"), **inline, **values))


def visible(page: str) -> str:
    """Replace control characters, which HTML may not contain, by visible symbols."""
    return page.translate(_VISIBLE)


@contextmanager
def page_of(*folders: Path) -> Iterator[None]:
    """Return a context for making a page from folders that strangers may have made. Any failure becomes a
    ConfigError."""
    try:
        yield
    except UnderstudyError:
        raise
    except Exception as error:  # errors that no file reader expected
        if os.environ.get("UNDERSTUDY_DEBUG"):
            raise
        names = ", ".join(folder.name or str(folder) for folder in folders)
        raise ConfigError(
            f"The contents of {names} cannot be shown as a page ({type(error).__name__}).",
            "Make the damaged files again. If understudy wrote them all, this is a bug: UNDERSTUDY_DEBUG=1 shows it.",
        ) from None


def write_page(path: Path, text: str, *, private: bool) -> None:
    """Write a page completely or not at all; if ``private``, only its owner may read it."""
    try:
        write_file(path, text, mode=PRIVATE_MODE if private else SHARED_MODE)
    except OSError as error:
        raise ConfigError(
            f"{path.name} cannot be written ({error.strerror}).", "Check that its folder exists and is writable."
        ) from None


def policy(style: str, script: str) -> str:
    """Return a content security policy: nothing is fetched, and only this inline style and script are allowed."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _visible(value: Any) -> Any:
    """Return a JSON value with visible symbols for control characters, which JSON's ``\\u0000`` would not show."""
    if isinstance(value, dict):
        return {_visible(key): _visible(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_visible(each) for each in value]
    return value.translate(_VISIBLE) if isinstance(value, str) else value


_VISIBLE: dict[int, str] = {
    **DIRECTIONS,
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"},
    0x7F: "\u2421",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), *range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF), "\ufffd"),
}
"""Escapes for direction marks, symbols for ASCII controls; U+FFFD for other controls and invalid characters."""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def report_file(name: str) -> str:
    """Return a style sheet or script of the report."""
    return resources.files("understudy.report").joinpath("templates", name).read_text("utf-8")


@lru_cache(maxsize=2)
def environment(*packages: str) -> Environment:
    """Return the templates of these packages, which take precedence over the report's; every value is escaped."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "understudy.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_function"] = lambda value, **options: json.dumps(_visible(value), **options)
    made.filters.update(short=short, percent=percent, hundredths=hundredths, span=span, paragraphs=paragraphs)
    made.filters["quoted"] = shlex.quote
    made.globals.update(bars=bars, largest=largest, words=table_words, signs=SIGNS, better=BETTER, as_record=as_record)
    return made
