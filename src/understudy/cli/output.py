"""What a person or a program sees: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from understudy.cli.logs import SPEECH, lines_only

if TYPE_CHECKING:
    from understudy.run.session import Listener

_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_BETWEEN = {ord("\t"): "\\t", ord("\n"): "\\n"}
_SECONDS_BETWEEN_LINES = 15.0


def printable(text: str) -> str:
    r"""``text`` with control characters, which could steer a terminal, as escapes; tabs and line ends stay.

    >>> print(printable("\x1b[2J safe"))
    \x1b[2J safe
    """
    return _STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


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
    from understudy.run.session import Listener

    if lines_only() or not sys.stderr.isatty():
        yield Listener(say, _Plain())
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as display:
        tasks: dict[str, object] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = display.add_task(what, total=total)
            display.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield Listener(lambda line: console.print(printable(line), markup=False, highlight=False), progress)


class _Plain:
    """A line now and then."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES or done == total:
            self._last = time.monotonic()
            say(f"{what}: {done} of {total}")
