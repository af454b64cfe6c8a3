"""The jobs of the studio: ``generate`` and ``report``, which read no private table, charge nothing and use no endpoint.
Only one process runs at a time, and it writes only below the folder of runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from understudy.base.errors import ConfigError, UnderstudyError
from understudy.ledger.store import begun_settings
from understudy.methods.registry import method_class, method_names
from understudy.models.builtin import CHAT, is_pulled
from understudy.models.machine import missing_packages
from understudy.privacy.noise import SystemNoise
from understudy.run.outputs import OutputFolder, schema_of_table
from understudy.run.progress import Progress, read_progress
from understudy.run.settings import MOST_RECORDS
from understudy.studio.runs import FoundRun

_COMMAND = (sys.executable, "-P", "-m", "understudy")  # -P: ignore a file of that name in the working directory
_KEPT = ("CACHE", "DEBUG", "DEVICE", "DTYPE", "LEDGER", "THREADS")
"""The variables ``UNDERSTUDY_...`` that a job inherits; the others are options, which only the form sets."""
_LONGEST = 500
_PATIENCE = 10
"""Seconds that a stopped process has to write its results."""


@dataclass(frozen=True)
class GenerateForm:
    """The choices of ``generate`` for one run's Release.

    Args:
        models: language models on this machine that may write; none if the method uses none.
        model: the proposed one.
        columns: names of typed columns for conditions; None if unknown.
        configured: the run's language model if it is not one of ``models``.
    """

    release: Path
    models: tuple[str, ...]
    model: str
    columns: tuple[str, ...] | None
    configured: str
    document_type: str

    @classmethod
    def of(cls, run: FoundRun) -> GenerateForm | None:
        """Return the form; None if there is no Release, or its method is not installed."""
        if run.statement is None or run.statement.method not in method_names():
            return None
        release, needs = run.folder.release_file(run.statement.method), method_class(run.statement.method).needs
        begun = {} if run.in_use else begun_settings(run.folder.private, SystemNoise().origin)
        llm = str(begun.get("llm") or "")
        asks, here = needs.generation_llm, is_pulled(CHAT) and not missing_packages()
        models = [] if asks == "never" else [*(["builtin"] * here), *(["none"] * (asks == "optional"))]
        if not release.is_file() or (not models and asks != "never") or (needs.generation_model and not here):
            return None
        try:
            schema = schema_of_table(run.folder.shareable)
        except UnderstudyError:
            return None
        columns = None if schema is None else tuple(column.name for column in schema.columns)
        return cls(
            release,
            tuple(models),
            llm if llm in models else next(iter(models), ""),
            () if needs.rows else columns,
            llm if models and llm not in ("", *models) else "",
            str(begun.get("document_type") or ""),
        )

    def words(self, values: Mapping[str, str], output: Path) -> list[str]:
        """Return the words of the command. Raises ConfigError if a field is invalid."""
        words = ["generate", str(self.release), f"--output={output}"]
        if records := values.get("records", "").strip():
            if not (records.isascii() and records.isdigit() and len(records) < 9 and 0 < int(records) <= MOST_RECORDS):
                raise ConfigError("The number of records is not a whole number in range.", f"Use 1 to {MOST_RECORDS}.")
            words.append(f"--records={int(records)}")
        if self.models:
            if (llm := values.get("llm", self.model)) not in self.models:
                raise ConfigError("The studio cannot use this language model.", "Choose one from the form.")
            words.append(f"--llm={llm}")
        if self.document_type:
            words.append(f"--document-type={self.document_type}")
        if self.columns != () and (where := _line(values, "where")):
            words.append(f"--where={where}")  # one word, so that a value with -- is not a flag
        return words


def _report_words(run: FoundRun, values: Mapping[str, str]) -> list[str]:
    responsible = _line(values, "responsible")
    return ["report", str(run.folder.root), *([f"--responsible={responsible}"] if responsible else [])]


def _line(values: Mapping[str, str], name: str) -> str:
    value = values.get(name, "").strip()
    if len(value) > _LONGEST or not value.isprintable():
        raise ConfigError(
            f"The field {name!r} is too long, or is not a line of text.", f"Write one line of up to {_LONGEST}."
        )
    return value


@dataclass(eq=False)
class Job:
    """A process that the studio started, and the last lines of its output."""

    verb: str
    run: FoundRun
    output: OutputFolder
    process: subprocess.Popen[str]
    listener: threading.Thread = field(init=False)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=60))

    def __post_init__(self) -> None:
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    @property
    def state(self) -> str:
        code = self.process.poll()
        return "running" if code is None else "stopped" if code else "finished"

    @property
    def progress(self) -> Progress | None:
        return read_progress(self.output) if self.verb == "generate" else None

    @property
    def text(self) -> str:
        return "".join(tuple(self.lines))  # a copy, because more may arrive

    def _listen(self) -> None:
        """Collect its output until it ends."""
        assert self.process.stdout is not None
        with self.process.stdout as said:
            self.lines.extend(said)


class Jobs:
    """The running process, of which there is at most one, or the last one that ended."""

    def __init__(self, root: Path, *, ledger: str | None = None) -> None:
        self._root, self._ledger = root, ledger
        self._lock = threading.Lock()
        self.now: Job | None = None

    def start(self, verb: str, run: FoundRun, values: Mapping[str, str]) -> None:
        """Start ``generate`` or ``report``. Raises ConfigError if a job is running, or the run is not in the folder."""
        root, place = self._root.resolve(), run.folder.root.resolve()
        run = replace(run, folder=OutputFolder(place))
        with self._lock:
            if self.now is not None and self.now.state == "running":
                raise ConfigError("Another job is running.", "Wait until it ends, or stop it on the page Jobs.")
            output = run.folder
            if verb == "generate":
                if (form := GenerateForm.of(run)) is None:
                    raise ConfigError(
                        "The studio cannot generate from this run.", "Use `understudy generate` on the command line."
                    )
                output = OutputFolder(_free(place if place == root else place.parent, f"{place.name}-texts"))
                words, read = form.words(values, output.root), form.release
            else:
                words, read = _report_words(run, values), place
            if not all(each.is_relative_to(root) for each in (place, read.resolve(), output.root)):
                raise ConfigError(
                    "A symbolic link leads out of the folder of runs.", "Remove the link, or use the command line."
                )
            self.now = self._started(verb, run, output, words)

    def _started(self, verb: str, run: FoundRun, output: OutputFolder, words: Sequence[str]) -> Job:
        dropped = {name for name in os.environ if name.startswith("UNDERSTUDY_") and name[11:] not in _KEPT}
        around: dict[str, Any] = {name: value for name, value in os.environ.items() if name not in dropped}
        around |= {"HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"}
        if self._ledger is not None:  # not in the command line, which other users may read
            around["UNDERSTUDY_LEDGER"] = self._ledger
        process = subprocess.Popen(
            [*_COMMAND, *words],
            env=around,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        return Job(verb, run, output, process)

    def stop(self) -> None:
        """Stop the running job; its results so far stay."""
        if (job := self.now) is not None and job.state == "running":
            job.process.terminate()
            try:
                job.process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                job.process.kill()


def _free(folder: Path, name: str) -> Path:
    """Return an unused path in the folder."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(folder / each for each in names if not os.path.lexists(folder / each))
