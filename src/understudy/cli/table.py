"""Tables for people and for other programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from understudy.cli.printable import printable

_BETWEEN = {ord("\t"): "\\t", ord("\n"): "\\n"}


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, else lines with tabs between the fields; what would steer either is spelled out."""
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
