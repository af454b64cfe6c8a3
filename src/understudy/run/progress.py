"""How far a run is, kept beside it for whoever looks on: public facts, as a :class:`~understudy.run.session.Listener`
is told them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from understudy.base.errors import UnderstudyError
from understudy.base.files import PRIVATE_MODE
from understudy.base.untrusted import Form, read_json
from understudy.run.outputs import PROGRESS, OutputFolder
from understudy.run.session import Listener

_SECONDS_BETWEEN = 0.5
_MOST_LINES, _MOST_STAGES, _MOST_BYTES = 40, 60, 1 << 20


class Stage(Form):
    """One kind of work: ``done`` of ``total``."""

    what: str
    done: int
    total: int


class Progress(Form):
    """What ``private/progress.json`` holds.

    Args:
        verb, method, dataset: what was begun.
        state: as the run says itself; one that was killed says ``running`` for ever.
        began, at: when it began and when it last said something, ISO 8601.
        stages: what is counted, in the order in which it began.
        lines: what was said last, oldest first.
        problem: why it stopped; empty while it has not.
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
    """What the last run in a folder says of itself; None where it says nothing that can be read."""
    try:
        return Progress.model_validate(read_json(folder.private / PROGRESS, most=_MOST_BYTES))
    except (OSError, ValueError):
        return None


@contextmanager
def recorded(
    listener: Listener, folder: OutputFolder | None, *, verb: str, method: str, dataset: str | None
) -> Iterator[Listener]:
    """The listener, which now also keeps what it is told in ``private/progress.json`` of the folder, if there is one.

    That file is a convenience: where it cannot be written, the run goes on.
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

    record.write()
    try:
        yield replace(listener, say=say, progress=progress)
    except BaseException as error:
        record.end("stopped", _why(error))
        raise
    record.end("finished", "")


@dataclass
class _Record:
    path: Path
    verb: str
    method: str
    dataset: str
    state: str = "running"
    began: str = field(default_factory=lambda: _now())
    stages: dict[str, tuple[int, int]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    problem: str = ""
    written: float = 0.0

    def say(self, line: str) -> None:
        self.lines = [*self.lines, line][-_MOST_LINES:]
        self.write()

    def count(self, what: str, done: int, total: int) -> None:
        new = what not in self.stages
        if not new or len(self.stages) < _MOST_STAGES:
            self.stages[what] = done, total
        if new or done == total or time.monotonic() - self.written >= _SECONDS_BETWEEN:
            self.write()

    def end(self, state: str, problem: str) -> None:
        self.state, self.problem = state, problem
        self.write()

    def write(self) -> None:
        """In place of what was there, whole; not synced, as a run must not wait for it."""
        fields = asdict(self) | {"at": _now()}
        fields["stages"] = [{"what": name, "done": each[0], "total": each[1]} for name, each in self.stages.items()]
        del fields["path"], fields["written"]
        new = self.path.with_name(f".{PROGRESS}.tmp")
        with suppress(OSError, UnicodeEncodeError):
            new.touch(mode=PRIVATE_MODE)
            new.write_text(json.dumps(fields), "utf-8")
            os.replace(new, self.path)  # noqa: PTH105  (not among what tests of kills count)
        self.written = time.monotonic()


def _why(error: BaseException) -> str:
    """In our own words: the message of a bug may quote a text."""
    if isinstance(error, UnderstudyError):
        return error.problem
    return "It was interrupted." if isinstance(error, KeyboardInterrupt | SystemExit) else "It ended by a bug."


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
