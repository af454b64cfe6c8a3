"""What a person or a program sees: results on standard output, everything else on standard error.

Everything on standard error is a record of standard logging, of a logger ``understudy.*``, shown as a line for a person
or as JSON. No record holds a text or a count of private rows: what is said is public, and of an exception only what was
written for people is.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from understudy.base.display import printable

if TYPE_CHECKING:
    from understudy.run.session import Listener

EVERYTHING = logging.getLogger("understudy")
SPEECH = logging.getLogger("understudy.cli")
"""What is said to a person, in the words for a person."""


class _StandardError(logging.Handler):
    """Escapes what could steer a terminal; shows no traceback, which could quote a private text."""

    as_json = False

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(_json(record) if self.as_json else _line(record), err=True)


_HANDLER = _StandardError()
EVERYTHING.addHandler(_HANDLER)
EVERYTHING.setLevel(logging.INFO)


def begin(*, as_json: bool) -> None:
    """As a command is without ``-v`` and ``-q``."""
    _HANDLER.as_json = as_json
    EVERYTHING.setLevel(logging.INFO)


def as_json() -> bool:
    """Whether standard error is JSON."""
    return _HANDLER.as_json


def lines_only() -> bool:
    """Whether no progress display may be shown on a terminal."""
    return _HANDLER.as_json or EVERYTHING.level != logging.INFO


def _json(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    fields = {"time": when, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
    return json.dumps(fields | getattr(record, "fields", {}))


def _line(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.name != SPEECH.name:
        warning = "Warning: " if record.levelno >= logging.WARNING else ""
        message = f"{warning}{message}" if warning else f"[{record.name}] {message}"
    return printable(message)


def _set_level(level: int) -> Any:
    def choose(_context: click.Context, _option: click.Parameter, wanted: bool) -> None:
        if wanted:
            EVERYTHING.setLevel(level)

    return choose


def _choose_json(_context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        _HANDLER.as_json = True


def options() -> list[click.Option]:
    """``-v``, ``-q`` and ``--log-json``, for any command."""
    flags = {"is_flag": True, "is_eager": True, "expose_value": False}
    return [
        click.Option(
            ["-v", "--verbose"],
            callback=_set_level(logging.DEBUG),
            envvar="UNDERSTUDY_VERBOSE",
            help="Say more on standard error; never a text.",
            **flags,
        ),
        click.Option(
            ["-q", "--quiet"],
            callback=_set_level(logging.WARNING),
            envvar="UNDERSTUDY_QUIET",
            help="Say nothing on standard error but warnings and errors.",
            **flags,
        ),
        click.Option(
            ["--log-json"],
            callback=_choose_json,
            envvar="UNDERSTUDY_LOG_JSON",
            help="Write standard error as one JSON object per line.",
            **flags,
        ),
    ]


_BETWEEN = {ord("\t"): "\\t", ord("\n"): "\\n"}


def say(text: str) -> None:
    """A line for a person."""
    SPEECH.info("%s", text)


def show_json(fields: Mapping[str, Any]) -> None:
    """One JSON object on standard output: escaped, so that nothing in it steers a terminal."""
    click.echo(json.dumps(fields, indent=1))


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, else lines with tabs between the fields; what would steer either is escaped."""
    rows = [[printable(cell).translate(_BETWEEN) for cell in row] for row in rows]
    if not _on_terminal():
        for row in (heads, *rows):
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*heads)
    for row in rows:
        table.add_row(*map(Text, row))  # not markup: labels may hold brackets
    Console().print(table)


def _on_terminal() -> bool:
    return sys.stdout.isatty()


@contextmanager
def listener() -> Iterator[Listener]:
    """Lines and progress on standard error: a progress display on a terminal, plain lines otherwise."""
    from understudy.run.progress import PlainLines, on_terminal
    from understudy.run.session import Listener

    if lines_only() or not sys.stderr.isatty():
        yield Listener(say, PlainLines(say))
        return
    with on_terminal() as told:
        yield told
