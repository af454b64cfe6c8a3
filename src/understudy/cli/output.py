"""What a person or a program sees: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from understudy.base.display import printable
from understudy.cli.logs import SPEECH, lines_only

if TYPE_CHECKING:
    from understudy.run.session import Listener

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
    from understudy.run.session import Listener
    from understudy.run.showing import PlainLines, on_terminal

    if lines_only() or not sys.stderr.isatty():
        yield Listener(say, PlainLines(say))
        return
    with on_terminal() as told:
        yield told
