"""The progress of a run: listeners, and a file in its folder for observers. Public facts only, as in a
:class:`~understudy.run.session.Listener`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from understudy.base.display import printable
from understudy.base.errors import UnderstudyError, in_keywords
from understudy.base.files import PRIVATE_MODE
from understudy.base.heartbeat import PlainLines
from understudy.base.untrusted import Form, read_json
from understudy.run.outputs import PROGRESS, OutputFolder
from understudy.run.session import Listener

_SECONDS_BETWEEN = 0.5
_MOST_LINES, _MOST_STAGES, _MOST_BYTES = 40, 60, 1 << 20


class Stage(Form):
    """One stage of a run: ``done`` of ``total`` parts."""

    what: str
    done: int
    total: int


class Progress(Form):
    """The content of ``private/progress.json``.

    Args:
        state: as the run wrote it; a killed run stays ``running`` for ever.
        began, at: when the run began and when it last wrote something, ISO 8601.
        stages: in the order in which they began.
        lines: the last messages, oldest first.
        problem: why the run stopped; empty if it did not.
    """

    verb: str
    method: str
    dataset: str
    state: Literal["running", "finished", "stopped"]
    began: str
    at: str
    stages: list[Stage]
    lines: list[str]
    problem: str


def read_progress(folder: OutputFolder) -> Progress | None:
    """Return the progress of the last run in a folder; None if there is no readable file."""
    try:
        return Progress.model_validate(read_json(folder.private / PROGRESS, most=_MOST_BYTES))
    except (OSError, ValueError):
        return None


@contextmanager
def recorded(
    listener: Listener, folder: OutputFolder | None, *, verb: str, method: str, dataset: str | None
) -> Iterator[Listener]:
    """Wrap the listener, so that it also writes its messages to ``private/progress.json`` of the folder, if any.

    That file is a convenience: if it cannot be written, the run continues.
    """
    if folder is None:
        yield listener
        return
    record = _Record(folder.private / PROGRESS, verb=verb, method=method, dataset=dataset or "")

    def say(line: str) -> None:
        record.say(line)
        listener.say(line)

    def progress(what: str, done: int, total: int) -> None:
        record.count(what, done, total)
        listener.progress(what, done, total)

    def detail(line: str) -> None:
        record.say(line)
        listener.detail(line)

    record.write()
    try:
        yield replace(listener, say=say, progress=progress, detail=detail)
    except BaseException as error:
        record.write(state="stopped", problem=_why(error))
        raise
    record.write(state="finished")


class _Record:
    def __init__(self, path: Path, **begun: str) -> None:
        self._path, self._written = path, 0.0
        self._stages: dict[str, Stage] = {}
        self._now = Progress(state="running", began=_now(), at="", stages=[], lines=[], problem="", **begun)

    def say(self, line: str) -> None:
        self.write(lines=[*self._now.lines, line][-_MOST_LINES:])

    def count(self, what: str, done: int, total: int) -> None:
        new = what not in self._stages
        if not new or len(self._stages) < _MOST_STAGES:
            self._stages[what] = Stage(what=what, done=done, total=total)
        if new or done == total or time.monotonic() - self._written >= _SECONDS_BETWEEN:
            self.write()

    def write(self, **changed: Any) -> None:
        """Replace the file atomically, without a sync, because a run must not wait for it."""
        changed |= {"at": _now(), "stages": list(self._stages.values())}
        self._now = self._now.model_copy(update=changed)
        new = self._path.with_name(f".{PROGRESS}.tmp")
        with suppress(OSError, UnicodeEncodeError):
            new.touch(mode=PRIVATE_MODE)
            new.write_text(json.dumps(self._now.model_dump()), "utf-8")
            os.replace(new, self._path)  # noqa: PTH105  (tests of kills do not count it)
        self._written = time.monotonic()


def _why(error: BaseException) -> str:
    """Return why a run stopped, in our words: the message of a bug may quote a text."""
    if isinstance(error, UnderstudyError):
        return error.problem
    return "It was interrupted." if isinstance(error, KeyboardInterrupt | SystemExit) else "It ended because of a bug."


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def shown(listener: Listener | None = None) -> Iterator[Listener]:
    """Yield ``listener``, or by default one that reports to the terminal or notebook. Its messages name Python keywords
    instead of flags."""
    with _shown(listener) as told:
        yield replace(told, say=lambda line: told.say(in_keywords(line)))


@contextmanager
def _shown(listener: Listener | None) -> Iterator[Listener]:
    if listener is not None:
        yield listener
    elif sys.stderr.isatty():
        with on_terminal() as told:
            yield told
    else:
        with plain(_to_standard_error) as told:
            yield replace(told, nobody=True)


def _to_standard_error(line: str) -> None:
    print(printable(line), file=sys.stderr)


@contextmanager
def plain(say: Callable[[str], None]) -> Iterator[Listener]:
    """Yield a listener that shows everything as plain lines, and a sign of life after some seconds of silence."""
    lines = PlainLines(say)
    with lines.alive():
        yield Listener(lines.say, lines)


@contextmanager
def on_terminal() -> Iterator[Listener]:
    """Yield a listener that shows lines on standard error, and below them a bar per unfinished stage and one for the
    whole, which moves as a sign of life."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    words = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[of]}")
    columns = (*words, TimeRemainingColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as display:
        tasks: dict[str, Any] = {}
        display.add_task("working", total=None, of="")

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = display.add_task(what, total=total, of="")
            elif not done:
                display.reset(tasks[what])
            display.update(tasks[what], completed=done, total=total, of=f"{done}/{total}")

        yield Listener(lambda line: console.print(printable(line), markup=False, highlight=False), progress)
