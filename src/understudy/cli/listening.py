"""What a person sees while a run works: a progress display on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from understudy.cli.printable import printable
from understudy.run import Listener

_SECONDS_BETWEEN_LINES = 15.0


@contextmanager
def listener() -> Iterator[Listener]:
    """Lines and progress on standard error; standard output stays for results."""
    if not sys.stderr.isatty():
        yield Listener(_line, _Plain())
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


def _line(text: str) -> None:
    click.echo(printable(text), err=True)


class _Plain:
    """A line now and then."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES or done == total:
            self._last = time.monotonic()
            _line(f"{what}: {done} of {total}")
