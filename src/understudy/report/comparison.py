"""The comparison of several runs as a page of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from understudy.privacy.exact import as_typed
from understudy.report.charts.against import against_epsilon
from understudy.report.compared import Comparison, compare, read_runs, together
from understudy.report.grids import BETTER, MOST_FIGURES, SIGNS
from understudy.report.page import page_of, render, write_page


def write_comparison(
    runs: Sequence[Path], output: Path, *, names: Sequence[str] | None = None, shareable: bool = False
) -> Path:
    """Write one page that shows what the texts of each run are good for, against the epsilon that it promised.

    Args:
        runs: folders of runs, each with ``private/evaluation.json``.
        output: the file to write, readable by its owner only unless ``shareable``.
        names: one a run; runs of one name are one line. None: by their methods, and by their folders where several
            promise the same epsilon.
        shareable: show only figures that were released with a charge, from ``release/metrics.json``.

    Raises:
        ConfigError: if a folder is none of a run, nothing was measured there, a run protects secrets, or the file
            cannot be written.
    """
    with page_of(*runs):
        text = _text(runs, names, shareable)
    write_page(output, text, private=not shareable)
    return output


def _text(runs: Sequence[Path], names: Sequence[str] | None, shareable: bool) -> str:
    found = read_runs(runs, names=names, shareable=shareable)
    shown = [(each, _charts(each, number)) for number, each in enumerate(compare(found))]
    return render(
        "comparison.html",
        runs=found,
        comparisons=shown,
        together=together(found),
        datasets=list(dict.fromkeys(run.statement.dataset for run in found)),
        internal=not shareable,
        left_out=sum(run.left_out for run in found),
        better=BETTER,
        signs=SIGNS,
        typed=as_typed,
        most_figures=MOST_FIGURES,
    )


def _charts(comparison: Comparison, number: int) -> list[tuple[str, Markup]]:
    """Each column that has one, with its chart."""
    charts = [
        (column, against_epsilon(f"chart-{number}-{place}", comparison, column))
        for place, column in enumerate(comparison.columns)
    ]
    return [(column, chart) for column, chart in charts if chart is not None]
