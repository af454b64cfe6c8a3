"""A run's reports: the one to hand out, and the one that stays inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from understudy.models.types import Embedder
from understudy.outputs import OutputFolder
from understudy.report.contents import Contents, internal, shareable
from understudy.report.page import page_of, render, write_page
from understudy.report.views import view


@dataclass(frozen=True)
class ReportPaths:
    """Where the reports stand; ``internal`` is None where nothing private was measured."""

    shareable: Path
    internal: Path | None


def write_reports(folder: OutputFolder, *, embedder: Embedder | None, seed: int = 0) -> ReportPaths:
    """Write ``release/report.html`` and, where something was measured on private texts, ``private/report.html``.

    Args:
        folder: of a run.
        embedder: of the topics and the map of the shareable report; None: they go by the words of the texts.
        seed: of the map and of the samples shown; not of any noise.

    Raises:
        ConfigError: if the folder is none of a run, or a file in it cannot be read, or the report not written.
    """
    with page_of(folder.root):
        return _write_reports(folder, embedder=embedder, seed=seed)


def _write_reports(folder: OutputFolder, *, embedder: Embedder | None, seed: int) -> ReportPaths:
    public = shareable(folder.shareable, embedder=embedder, seed=seed)
    write_page(folder.report_file, page(public, seed=seed), private=False)
    inside = internal(public, folder.shareable, folder.private)
    if inside is None:
        return ReportPaths(folder.report_file, None)
    write_page(folder.internal_report_file, page(inside, seed=seed), private=True)
    return ReportPaths(folder.report_file, folder.internal_report_file)


def page(contents: Contents, *, seed: int) -> str:
    """The report as HTML."""
    return render("report.html", **view(contents, seed=seed))
