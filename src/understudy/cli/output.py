"""Output: results go to standard output, everything else to standard error.

Everything on standard error is a record of standard logging, from a logger ``understudy.*``, shown as a line for a
person or as JSON. No record contains a text or a count of private rows: all messages are public, and of an exception
only the part that was written for people is shown.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from understudy.base.display import printable

if TYPE_CHECKING:
    from understudy.run.session import Listener

EVERYTHING = logging.getLogger("understudy")
SPEECH = logging.getLogger("understudy.cli")
"""The logger of messages for people."""


class _StandardError(logging.Handler):
    """A handler that escapes terminal control codes and shows no traceback, which could quote a private text."""

    as_json = False

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(_json(record) if self.as_json else _line(record), err=True)


_HANDLER = _StandardError()
EVERYTHING.addHandler(_HANDLER)
EVERYTHING.setLevel(logging.INFO)


def begin(*, as_json: bool) -> None:
    """Reset the output to that of a command without ``-v`` and ``-q``."""
    _HANDLER.as_json = as_json
    EVERYTHING.setLevel(logging.INFO)


def as_json() -> bool:
    """Return whether standard error is JSON."""
    return _HANDLER.as_json


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


def _choose(_context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and option.name == "log_json":
        _HANDLER.as_json = True
    elif wanted:
        EVERYTHING.setLevel(logging.DEBUG if option.name == "verbose" else logging.WARNING)


_SAYS = {
    ("-v", "--verbose"): "Show more messages on standard error; never a private text.",
    ("-q", "--quiet"): "Show only warnings and errors on standard error.",
    ("--log-json",): "Write standard error as one JSON object per line.",
}


def options() -> list[click.Option]:
    """Return ``-v``, ``-q`` and ``--log-json``, for any command."""
    shared: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _choose}
    variables = {flags: f"UNDERSTUDY_{flags[-1].strip('-').replace('-', '_').upper()}" for flags in _SAYS}
    return [click.Option(flags, help=says, envvar=variables[flags], **shared) for flags, says in _SAYS.items()]


_BETWEEN = {ord("\t"): "\\t", ord("\n"): "\\n"}


def say(text: str) -> None:
    """Show a line to a person."""
    SPEECH.info("%s", text)


def show_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output, escaped, so that nothing in it controls a terminal."""
    click.echo(json.dumps(fields, indent=1))


def answer(as_json: bool, fields: Mapping[str, Any], *lines: object) -> None:
    """Print the fields as JSON, or the lines for a person."""
    if as_json:
        show_json(fields)
    else:
        click.echo("\n".join(map(str, lines)))


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on a terminal, else lines of tab-separated fields; control characters are escaped."""
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
        table.add_row(*map(Text, row))  # not markup: labels may contain brackets
    Console().print(table)


def _on_terminal() -> bool:
    return sys.stdout.isatty()


@contextmanager
def listener() -> Iterator[Listener]:
    """Yield a listener that writes to standard error: a progress display on a terminal, plain lines otherwise."""
    from understudy.run.progress import on_terminal, plain

    if _HANDLER.as_json or EVERYTHING.level != logging.INFO or not sys.stderr.isatty():
        with plain(say) as told:
            yield replace(told, detail=partial(SPEECH.debug, "%s"))
        return
    with on_terminal() as told:
        yield told
