"""Several runs side by side: what each promised, and what its texts are good for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from understudy.assess.synthetic import release_named_in
from understudy.errors import ConfigError
from understudy.metrics.value import SYNTHETIC, Figure, Metric
from understudy.outputs import OutputFolder
from understudy.privacy.exact import as_typed
from understudy.privacy.guarantee import Budget
from understudy.privacy.secrets.budget import SecretBudget
from understudy.report.contents import Charged, read_charged, read_evaluation, read_statement
from understudy.report.grids import SIZE, Grid, Row, column_words, first_figures, remarks, training_words
from understudy.report.numbers import short
from understudy.statement import Statement

COLOURS = 8
T = TypeVar("T")
_MOST_DELTA = Fraction("0.999999999")  # what a delta of 1 or more amounts to: no promise
REFERENCES = ("real (all)", "real", "zero-shot", "untuned")
"""What the synthetic texts of all runs on a dataset are compared with, where it was measured."""


@dataclass(frozen=True)
class Run:
    """One run: its name on the page, its promise, the figures of its texts' utility, and what those cost.

    Args:
        release: the Release that its texts were made from, by name; where none is known, the folder.
        charged: the figures that were released with a charge; None where others are shown.
        left_out: how many figures there are beyond those.
    """

    name: str
    statement: Statement
    figures: tuple[Figure, ...]
    release: str
    charged: Charged | None = None
    left_out: int = 0

    @property
    def epsilon(self) -> float | None:
        """What was promised; None where noise was off."""
        assert not isinstance(self.statement.budget, SecretBudget)
        return float(self.statement.budget.epsilon) if self.statement.private else None

    @property
    def promised(self) -> str:
        """In words, with what the figures cost."""
        cost = "" if self.charged is None else f" + {as_typed(self.charged.budget.epsilon)} for the figures"
        return "noise off: NOT PRIVATE" if self.epsilon is None else f"epsilon = {self.epsilon:g}{cost}"

    def figure(self, metric: str, column: str, of: str) -> Figure | None:
        """The figure of one metric and setting, or None."""
        return self._by_place.get((metric, column, of))

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, str], Figure]:
        return {(f.metric.name, column_words(f), f.of): f for f in reversed(self.figures)}


@dataclass(frozen=True)
class Comparison:
    """The runs on one dataset that measured one metric.

    Args:
        dataset: its declared name.
        metric: the metric.
        columns: its settings, such as classifiers.
        runs: by name and epsilon.
    """

    dataset: str
    metric: Metric
    columns: tuple[str, ...]
    runs: tuple[Run, ...]

    @property
    def colours(self) -> dict[str, str]:
        """The classes of each line: the same in every chart."""
        names = dict.fromkeys(run.name for run in self.runs if run.epsilon is not None)
        return {
            name: f"c{place % COLOURS}" + (" dashed" if place >= COLOURS else "") for place, name in enumerate(names)
        }

    def reference(self, of: str, column: str) -> Figure | None:
        """What the first run that measured it says of a ceiling or a floor."""
        found = (run.figure(self.metric.name, column, of) for run in self.runs)
        return next((figure for figure in found if figure is not None), None)

    @property
    def unlike(self) -> tuple[str, ...]:
        """The ceilings and floors that runs measured differently, in words: other real texts or other sizes."""
        said = []
        for of in REFERENCES:
            for column in self.columns:
                found = (run.figure(self.metric.name, column, of) for run in self.runs)
                known = dict.fromkeys((short(f.value), f.settings.get(SIZE)) for f in found if f is not None)
                if len(known) > 1:
                    values = ", ".join(value if size is None else f"{value} ({size:,} texts)" for value, size in known)
                    said.append(f"{training_words(of)}{f', {column}' if column else ''}: {values}")
        return tuple(said)

    @property
    def grid(self) -> Grid:
        """A row a run, and one a ceiling or floor."""
        rows = [
            Row(run.name, f"{run.promised}{_size(cells)}", cells)
            for run in self.runs
            for cells in [tuple(run.figure(self.metric.name, column, SYNTHETIC) for column in self.columns)]
        ]
        for of in REFERENCES:
            cells = tuple(self.reference(of, column) for column in self.columns)
            if any(cells):
                rows.append(Row(training_words(of), _size(cells).removeprefix(", "), cells))
        figures = [cell for row in rows for cell in row.cells if cell is not None]
        return Grid(self.metric.title, self.columns, tuple(rows), (self.metric,), remarks(figures))


@dataclass(frozen=True)
class Together:
    """What all runs of a comparison on one dataset cost: their budgets add up, for one and the same privacy unit.

    Args:
        dataset: its declared name.
        unit: whom they protect: an epsilon for records adds nothing to one for owners.
        budget: the sum over Releases and charged figures, each counted once however many runs show it. Those of one
            name count as one only where the whole of what is stated of them agrees.
        unpromised: runs without noise, which are not in the sum.
    """

    dataset: str
    unit: str
    budget: Budget
    unpromised: tuple[str, ...]


def together(runs: Sequence[Run]) -> tuple[Together, ...]:
    """The sum for each dataset and privacy unit."""
    found = []
    for dataset, unit in dict.fromkeys((run.statement.dataset, run.statement.unit.name) for run in runs):
        own = [run for run in runs if (run.statement.dataset, run.statement.unit.name) == (dataset, unit)]
        releases = _each_once((run.release, run.statement) for run in own if run.statement.private)
        figures = _each_once((run.charged.run or run.release, run.charged) for run in own if run.charged)
        budgets = [*(statement.budget for _, statement in releases), *(charged.budget for _, charged in figures)]
        known = [budget for budget in budgets if isinstance(budget, Budget)]
        epsilon, delta = (sum(part, Fraction(0)) for part in ((b.epsilon for b in known), (b.delta for b in known)))
        unpromised = tuple(dict.fromkeys(run.name for run in own if not run.statement.private))
        if epsilon:
            found.append(Together(dataset, unit, Budget.of(epsilon, min(delta, _MOST_DELTA)), unpromised))
    return tuple(found)


def _each_once(named: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """One of those that agree in everything: names come from files, and two may share one that promise differently."""
    found: list[tuple[str, T]] = []
    for each in named:
        if each not in found:
            found.append(each)
    return found


def _size(cells: Sequence[Figure | None]) -> str:
    """How many texts were trained on, where it is known."""
    found = (cell.settings[SIZE] for cell in cells if cell is not None and SIZE in cell.settings)
    size = next(found, None)
    return "" if size is None else f", {size:,} texts"


def read_runs(folders: Sequence[Path], *, names: Sequence[str] | None, shareable: bool) -> tuple[Run, ...]:
    """The runs in ``folders``, in order.

    Args:
        names: one a folder; None: by their methods, and where those and epsilon agree by their folders, too.
        shareable: read only figures that were released with a charge.

    Raises:
        ConfigError: if a folder is none of a run, nothing was measured there, or a run has no epsilon.
    """
    if names is not None and len(names) != len(folders):
        raise ConfigError(f"There are {len(folders)} runs and {len(names)} names.", "Give each run one --name.")
    if names is not None:
        return tuple(_read(OutputFolder(folder), name, shareable) for folder, name in zip(folders, names, strict=True))
    runs = [_read(OutputFolder(folder), None, shareable) for folder in folders]
    count = Counter(map(_promise, runs))
    return tuple(
        replace(run, name=f"{run.name} ({folder})") if count[_promise(run)] > 1 else run
        for run, folder in zip(runs, _apart(folders), strict=True)
    )


def _promise(run: Run) -> tuple[str, str, float | None]:
    return run.statement.dataset, run.statement.method, run.epsilon


def _apart(folders: Sequence[Path]) -> list[str]:
    """Their names, with as many of the folders above as it takes to tell them apart."""
    parts = [folder.absolute().parts for folder in folders]
    depths = range(1, max(map(len, parts), default=1) + 1)
    depth = next((d for d in depths if len({own[-d:] for own in parts}) == len(parts)), 1)
    return ["/".join(own[-depth:]) for own in parts]


def compare(runs: Sequence[Run]) -> tuple[Comparison, ...]:
    """One comparison a dataset and metric, in the order in which they are met."""
    found = []
    for dataset in dict.fromkeys(run.statement.dataset for run in runs):
        own = [run for run in runs if run.statement.dataset == dataset]
        order = {name: place for place, name in enumerate(dict.fromkeys(run.name for run in own))}
        own.sort(key=lambda run: (order[run.name], float("inf") if run.epsilon is None else run.epsilon))
        figures = [figure for run in own for figure in run.figures if figure.of == SYNTHETIC]
        for metric in {figure.metric.name: figure.metric for figure in figures}.values():
            columns = dict.fromkeys(column_words(figure) for figure in figures if figure.metric.name == metric.name)
            found.append(Comparison(dataset, metric, tuple(columns), tuple(own)))
    return tuple(found)


def _read(folder: OutputFolder, name: str | None, shareable: bool) -> Run:
    statement = read_statement(folder.shareable)
    if isinstance(statement.budget, SecretBudget):
        raise ConfigError(
            f"The run {folder.root.name} protects secrets: it has no epsilon to compare by.", "Leave it out."
        )
    charged = None
    if shareable:
        charged = read_charged(folder.shareable)
        figures = () if charged is None else charged.figures
        if charged is not None and not charged.private:
            raise ConfigError(
                f"The figures of {folder.root.name} were released without noise: they are NOT PRIVATE.",
                "Release them with noise, or leave out --shareable.",
            )
        cure = "Release some with `understudy evaluate --charge-metrics`, or leave out --shareable."
    else:
        evaluation = read_evaluation(folder.shareable, folder.evaluation_file)
        figures = () if evaluation is None else evaluation.figures
        cure = "Measure it first with `understudy evaluate`."
    utility = tuple(figure for figure in figures if figure.metric.family == "utility")
    if not utility:
        raise ConfigError(f"Nothing was measured of what the texts of {folder.root.name} are good for.", cure)
    release = release_named_in(folder.shareable) or str(folder.root.resolve())
    shown, left_out = first_figures(utility)
    return Run(name or statement.method, statement, shown, release, charged, left_out)
