"""The pages of runs: their list, and the progress, texts and measurements of each."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from understudy.base.errors import ConfigError, UnderstudyError
from understudy.evaluate.metrics.results import Evaluation
from understudy.evaluate.synthetic import SyntheticText, first_rows, provenances, read_evaluation, read_synthetic
from understudy.ledger.store import is_in_use
from understudy.release.statement import Statement
from understudy.report.grids import KEY, by_table, by_training, first_values
from understudy.report.views import promised
from understudy.run.outputs import OutputFolder, find_table, read_statement
from understudy.run.progress import Progress, read_progress

MOST_RUNS = 500
PER_PAGE = 25
"""Texts on one page."""
_FAMILIES = {
    "utility": "How useful the texts are",
    "fidelity": "How close they are to the real texts",
    "leakage": "What leaks",
}
_SIGNS = {"epsilon": "ε", "delta": "δ", "prior": "p", "posterior": "r"}
_NOT_SHOWN = {"phrases", "kept", "release", "stamp", "model", "prompt", "document_type", "made_for"}
"""Provenance that is shown elsewhere, or is a hash or number without meaning here."""


@dataclass(frozen=True)
class FoundRun:
    """An output folder.

    Args:
        id: its name in addresses: a hash of its path, never the path.
        name: its path below the folder of runs.
        progress: that of its last run; None for folders from others.
        in_use: whether a process is working on it now.
    """

    id: str
    name: str
    folder: OutputFolder
    progress: Progress | None
    in_use: bool
    statement: Statement | None
    problem: str

    @property
    def state(self) -> str:
        """Return ``running``, ``stopped``, ``finished``, or ``released`` if only a statement is known."""
        if self.in_use:
            return "running"
        if self.progress is not None:
            return "stopped" if self.progress.state == "running" else self.progress.state
        return "finished" if find_table(self.folder.shareable) is not None else "released"

    @property
    def why_stopped(self) -> str:
        """Return why it stopped; empty if it did not."""
        if self.progress is None or self.state != "stopped":
            return ""
        return self.progress.problem or "It ended without a message: it was killed, or the machine stopped."

    @property
    def method(self) -> str:
        return self.statement.method if self.statement else self.progress.method if self.progress else ""

    @property
    def dataset(self) -> str:
        return self.statement.dataset if self.statement else self.progress.dataset if self.progress else ""

    @property
    def promise(self) -> str:
        """Return the promise in short."""
        if self.statement is None:
            return "–"
        if not self.statement.private:
            return "NOT PRIVATE"
        return ", ".join(f"{_SIGNS[name]} = {number}" for name, number in promised(self.statement.budget))

    @property
    def day(self) -> str:
        """Return the day of its last run's last message; empty if there is none."""
        return self.progress.at[:10] if self.progress else ""


def find_runs(root: Path) -> list[FoundRun]:
    """Return the runs in a folder and in its folders, by name; the folder itself if it is a run."""
    return [_found(root, folder) for folder in _run_folders(root)]


def find_run(root: Path, identifier: str) -> FoundRun:
    """Return the run that an address names. Raises HTTPException 404 if there is none."""
    for folder in _run_folders(root):
        if _id_of(root, folder) == identifier:
            return _found(root, folder)
    raise HTTPException(404)


def run_at(root: Path, place: Path) -> FoundRun | None:
    """Return the run whose folder has the resolved path ``place``; None if there is none (yet)."""
    folders = (folder for folder in _run_folders(root) if folder.resolve() == place)
    return next((_found(root, folder) for folder in folders), None)


def _run_folders(root: Path) -> list[Path]:
    below = [each for each in _folders(root) if not each.name.startswith(".")]
    deeper = [each for folder in below if not _is_run(folder) for each in _folders(folder)]
    return [folder for folder in (root, *below, *deeper) if _is_run(folder)][:MOST_RUNS]


def _id_of(root: Path, folder: Path) -> str:
    place = folder.relative_to(root).as_posix()
    return hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return []


def _is_run(folder: Path) -> bool:
    try:
        found = OutputFolder(folder)
        marks = (found.shareable / "statement.json", found.private / "run.sqlite", found.private / "insecure.sqlite")
        return any(mark.is_file() for mark in marks)
    except (OSError, ConfigError):  # another user's folder, or one with links that lead out of it
        return False


def _found(root: Path, folder: Path) -> FoundRun:
    place = folder.relative_to(root).as_posix()
    output, statement, problem = OutputFolder(folder), None, ""
    if (output.shareable / "statement.json").is_file():
        try:
            statement = read_statement(output.shareable)
        except UnderstudyError as error:
            problem = error.problem
    return FoundRun(
        id=_id_of(root, folder),
        name=root.resolve().name if place == "." else place,
        folder=output,
        progress=read_progress(output),
        in_use=is_in_use(output.private),
        statement=statement,
        problem=problem,
    )


def run_page(run: FoundRun) -> dict[str, Any]:
    """Return everything about a run except its texts, for ``run.html``."""
    problems: list[UnderstudyError] = []
    texts: tuple[SyntheticText, ...] = ()
    evaluation: Evaluation | None = None
    try:
        texts = _texts(run.folder)
        evaluation = read_evaluation(run.folder.shareable, run.folder.evaluation_file)
    except UnderstudyError as error:
        problems.append(error)
    grids, left_out = [], 0
    for family, title in _FAMILIES.items():
        own = [each for each in (evaluation.values if evaluation else ()) if each.metric.family == family]
        shown, more = first_values(own)
        left_out += more
        if shown:
            of_family = by_training(shown) if family == "utility" else (by_table(shown, KEY),)
            grids.append((title, of_family))
    reports = (run.folder.internal_report_file, run.folder.report_file)
    return {
        "run": run,
        "texts": len(texts),
        "labels": len({text.label for text in texts}),
        "grids": tuple(grids),
        "left_out": left_out,
        "problems": tuple(problems),
        "report": next((path for path in reports if path.is_file()), None),
    }


@dataclass(frozen=True)
class TextRow:
    """One text: its number in the table from 1, the text, its phrases with whether each is in it, and its other
    provenance."""

    number: int
    text: SyntheticText
    phrases: tuple[tuple[str, bool], ...]
    origin: tuple[tuple[str, str], ...]


def texts_page(run: FoundRun, *, label: str | None, number: str) -> dict[str, Any]:
    """Return one page of the texts and what they were written from, of one label if there is such a label, for
    ``texts.html``."""
    texts = _texts(run.folder)
    labels = Counter(text.label for text in texts if text.label is not None)
    label = label if label in labels else None
    fitting = [(place, text) for place, text in enumerate(texts, 1) if label is None or text.label == label]
    last = max(1, -(-len(fitting) // PER_PAGE))
    page = min(last, max(1, int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 1))
    shown = fitting[(page - 1) * PER_PAGE : page * PER_PAGE]
    known = provenances(run.folder.shareable, {place - 1 for place, _ in shown})
    return {
        "run": run,
        "labels": sorted(labels.items()),
        "label": label,
        "rows": [_row(place, text, known.get(place - 1, {})) for place, text in shown],
        "number": page,
        "last": last,
        "count": len(fitting),
        "first_shown": (page - 1) * PER_PAGE + 1,
        "table": first_rows(run.folder.shareable) if page == 1 and label is None else [],
    }


def _row(number: int, text: SyntheticText, provenance: Mapping[str, Any]) -> TextRow:
    kept = provenance.get("kept")
    inside = set(map(str, kept)) if isinstance(kept, list) else set(text.phrases)
    origin = [
        (name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in provenance.items()
        if name not in _NOT_SHOWN and (name, value) != ("finish", "stop") and value not in (None, "", [])
    ]
    phrases = tuple((phrase, phrase in inside) for phrase in text.phrases)
    return TextRow(number, text, phrases, tuple(origin))


def _texts(folder: OutputFolder) -> tuple[SyntheticText, ...]:
    table = find_table(folder.shareable)
    if table is None:
        return ()
    known = table.stat()
    return _texts_of(folder.shareable, table, known.st_mtime_ns, known.st_size)


@lru_cache(maxsize=4)
def _texts_of(shareable: Path, _table: Path, _changed: int, _size: int) -> tuple[SyntheticText, ...]:
    return read_synthetic(shareable)
