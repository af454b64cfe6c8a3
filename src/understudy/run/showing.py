"""Who is told what a run does, if nobody else is named: a terminal or a notebook with a bar per stage, else nobody."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from understudy.base.display import bars, printable, text
from understudy.run.session import SILENT, Listener

_SECONDS_BETWEEN_LINES = 15.0
_SECONDS_BETWEEN_PICTURES = 0.2


@contextmanager
def shown(listener: Listener | None = None) -> Iterator[Listener]:
    """``listener``, or one for whoever sits before this process."""
    if listener is not None:
        yield listener
    elif display := _notebook():
        picture = _Picture(display)
        try:
            yield Listener(picture.say, picture.progress)
        finally:
            picture.show()
    elif sys.stderr.isatty():
        with on_terminal() as told:
            yield told
    else:
        yield SILENT


@contextmanager
def on_terminal() -> Iterator[Listener]:
    """Lines on standard error, and below them a bar per stage until the stage is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as display:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = display.add_task(what, total=total)
            elif not done:
                display.reset(tasks[what])
            display.update(tasks[what], completed=done, total=total)

        yield Listener(lambda line: console.print(printable(line), markup=False, highlight=False), progress)


class PlainLines:
    """Progress as a line now and then, and at the end of a stage, where there is no terminal."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if done and (done == total or time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES):
            self._last = time.monotonic()
            self._say(f"{what}: {done} of {total}")


def _notebook() -> Callable[..., Any] | None:
    """How a notebook displays something; None where there is no kernel."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None:
        return None
    from IPython.display import display

    return display


class _Html:
    def __init__(self, html: str) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return ""


class _Picture:
    """Lines and bars in one place of a notebook, painted again a few times per second at most.

    Answers of a language model come in on another thread, so nothing here waits for anything.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None
        self._lines: list[str] = []
        self._stages: dict[str, tuple[int, int, float]] = {}
        self._last = 0.0

    def say(self, line: str) -> None:
        self._lines.append(line)
        self.show()

    def progress(self, what: str, done: int, total: int) -> None:
        begun = self._stages[what][2] if done and what in self._stages else time.monotonic()
        self._stages[what] = (done, total, begun)
        if done == total or time.monotonic() - self._last >= _SECONDS_BETWEEN_PICTURES:
            self.show()

    def show(self) -> None:
        if not self._lines and not self._stages:
            return
        self._last = time.monotonic()
        lines = "".join(f"<div>{text(line)}</div>" for line in self._lines)
        stages = [
            (what, done, total, left(done, total, self._last - begun))
            for what, (done, total, begun) in list(self._stages.items())
        ]
        picture = _Html(lines + bars(stages))
        if self._handle is None:
            self._handle = self._display(picture, display_id=True)
        else:
            self._handle.update(picture)


def left(done: int, total: int, seconds: float) -> str:
    """The time that is left at the pace so far, in words; nothing where none can be told."""
    if not 0 < done < total or seconds < 1:
        return ""
    rest = round(seconds / done * (total - done))
    minutes, seconds_left = divmod(rest, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02} left" if hours else f"{minutes}:{seconds_left:02} left"
