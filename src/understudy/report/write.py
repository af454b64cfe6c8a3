"""A run's reports: the one to hand out, and the one that stays inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.files import PRIVATE_MODE, atomic_file
from understudy.models.types import Embedder
from understudy.outputs import OutputFolder
from understudy.privacy.guarantee import as_typed
from understudy.privacy.secrets.budget import SecretBudget
from understudy.report.charts.bars import bar
from understudy.report.charts.curve import tradeoff_chart
from understudy.report.contents import Contents, internal, shareable
from understudy.report.grids import BETTER
from understudy.report.page import render
from understudy.report.samples import samples_of
from understudy.report.spending import spending
from understudy.report.tradeoff import tradeoff
from understudy.statement import FALSE_ALARMS, Statement
from understudy.statement.rounding import round_up

NAME = "report.html"
SECTIONS = (
    ("promise", "What is promised"),
    ("budget", "Where the budget went"),
    ("corpus", "What the texts look like"),
    ("map", "A map of the texts"),
    ("samples", "Some of the texts"),
    ("utility", "Is it any good for training"),
    ("fidelity", "How near it is to the real texts"),
    ("leakage", "Does it leak"),
    ("audit", "An attack on the run"),
    ("reproduce", "How to make it again"),
    ("limits", "What is not covered"),
)


@dataclass(frozen=True)
class ReportPaths:
    """Where the reports stand; ``internal`` is None where nothing private was measured."""

    shareable: Path
    internal: Path | None


def write_reports(folder: OutputFolder, *, embedder: Embedder | None, seed: int = 0) -> ReportPaths:
    """Write ``release/report.html`` and, where something was measured on private texts, ``private/report.html``.

    Args:
        folder: of a run.
        embedder: of the map; None leaves the map out of the shareable report.
        seed: of the map and of the samples shown; not of any noise.

    Raises:
        ConfigError: if the folder is none of a run, or a file in it cannot be read.
    """
    public = shareable(folder.shareable, embedder=embedder, seed=seed)
    path = folder.shareable / NAME
    with atomic_file(path) as file:
        file.write(page(public, seed=seed).encode())
    inside = internal(public, folder.private)
    if inside is None:
        return ReportPaths(path, None)
    private = folder.private / NAME
    with atomic_file(private, mode=PRIVATE_MODE) as file:
        file.write(page(inside, seed=seed).encode())
    return ReportPaths(path, private)


def page(contents: Contents, *, seed: int) -> str:
    """The report as HTML."""
    statement = contents.statement
    samples = samples_of(contents.texts, seed=seed)
    return render(
        "report.html",
        contents=contents,
        facts=_facts(contents),
        sections=SECTIONS,
        unit=statement.unit.kind,
        charts={
            "tradeoff": tradeoff_chart(
                tradeoff(statement), at=(FALSE_ALARMS, statement.power), unit=statement.unit.kind
            )
        },
        bar=bar,
        better=BETTER,
        spending=spending(statement),
        samples=samples,
        open_samples=6,
        writers=[],
        **_elsewhere(statement),
    )


def _facts(contents: Contents) -> list[tuple[str, str]]:
    statement, budget = contents.statement, contents.statement.budget
    if isinstance(budget, SecretBudget):
        promised = [("prior", as_typed(budget.prior)), ("posterior", as_typed(budget.posterior))]
    else:
        promised = [("epsilon", as_typed(budget.epsilon)), ("delta", as_typed(budget.delta))]
    return [*promised, ("protects", f"one {statement.unit.kind}"), ("texts", f"{len(contents.texts):,}")]


def _elsewhere(statement: Statement) -> dict[str, Any]:
    """The promise at other deltas or priors."""
    if statement.posterior_at:
        rows = [(f"{prior:g}", round_up(posterior)) for prior, posterior in statement.posterior_at.items()]
        return {"at_rows": rows, "at_heads": ("prior", "highest posterior"), "at_caption": "For other guessers."}
    rows = [(f"{delta:g}", round_up(epsilon)) for delta, epsilon in statement.epsilon_at.items()]
    return {"at_rows": rows, "at_heads": ("delta", "epsilon"), "at_caption": "The same noise, at other deltas."}
