"""Several runs side by side: what each promised, and what its texts are good for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from understudy.base.errors import ConfigError
from understudy.evaluate.metrics.results import ReleasedMetrics
from understudy.evaluate.metrics.value import SYNTHETIC, Metric, MetricValue
from understudy.evaluate.synthetic import read_evaluation, read_released, release_named_in
from understudy.privacy.exact import as_typed
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.release.statement import Statement
from understudy.report.contents import read_statement
from understudy.report.grids import (
    REFERENCES,
    Grid,
    Row,
    first_values,
    remarks,
    setting_words,
    size_words,
    training_row,
    training_words,
)
from understudy.report.numbers import short
from understudy.report.svg import COLOURS
from understudy.run.outputs import OutputFolder

T = TypeVar("T")
_MOST_DELTA = Fraction("0.999999999")  # what a delta of 1 or more amounts to: no promise


@dataclass(frozen=True)
class Run:
    """One run: its name on the page, its promise, how useful its texts are, and what those values cost.

    Args:
        release: the Release that its texts were made from, by name; where none is known, the folder.
        charged: the values that were released with a charge; None where others are shown.
        left_out: how many values there are beyond those.
    """

    name: str
    statement: Statement
    values: tuple[MetricValue, ...]
    release: str
    charged: ReleasedMetrics | None = None
    left_out: int = 0

    @property
    def epsilon(self) -> float | None:
        """What was promised; None where noise was off."""
        assert not isinstance(self.statement.budget, SecretBudget)
        return float(self.statement.budget.epsilon) if self.statement.private else None

    @property
    def promised(self) -> str:
        """In words, with what the metrics cost."""
        cost = "" if self.charged is None else f" + {as_typed(self.charged.budget.epsilon)} for the metrics"
        return "noise off: NOT PRIVATE" if self.epsilon is None else f"epsilon = {self.epsilon:g}{cost}"

    def measured(self, metric: str, column: str, of: str) -> MetricValue | None:
        """The value of one metric and setting, or None."""
        return self._by_place.get((metric, column, of))

    @cached_property
    def _by_place(self) -> dict[tuple[str, str, str], MetricValue]:
        return {(each.metric.name, setting_words(each), each.of): each for each in reversed(self.values)}


@dataclass(frozen=True)
class Comparison:
    """The runs on one dataset that measured one metric."""

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

    def all_of(self, of: str, column: str) -> list[MetricValue]:
        """What the runs that measured it say of a ceiling or a floor."""
        found = (run.measured(self.metric.name, column, of) for run in self.runs)
        return [measured for measured in found if measured is not None]

    def reference(self, of: str, column: str) -> MetricValue | None:
        """What the first of them says, which the page shows."""
        return next(iter(self.all_of(of, column)), None)

    @property
    def unlike(self) -> tuple[str, ...]:
        """The ceilings and floors that runs measured differently, in words: other real texts or other sizes."""
        said = []
        for of in REFERENCES:
            for column in self.columns:
                known = dict.fromkeys((short(each.value), size_words([each])) for each in self.all_of(of, column))
                if len(known) > 1:
                    values = ", ".join(f"{value} ({size})" if size else value for value, size in known)
                    said.append(f"{training_words(of)}{f', {column}' if column else ''}: {values}")
        return tuple(said)

    @property
    def grid(self) -> Grid:
        """A row per run, and one per ceiling or floor."""
        rows = []
        for run in self.runs:
            cells = tuple(run.measured(self.metric.name, column, SYNTHETIC) for column in self.columns)
            rows.append(Row(run.name, ", ".join(filter(None, (run.promised, size_words(cells)))), cells))
        for of in REFERENCES:
            beside = [self.reference(of, column) for column in self.columns]
            if any(beside):
                rows.append(training_row(of, beside))
        values = [cell for row in rows for cell in row.cells if cell is not None]
        return Grid(self.metric.title, self.columns, tuple(rows), (self.metric,), remarks(values))


@dataclass(frozen=True)
class Together:
    """What all runs of a comparison on one dataset cost: their budgets add up, for one and the same privacy unit.

    Args:
        unit: whom they protect: an epsilon for records adds nothing to one for owners.
        budget: the sum over Releases and charged metrics, each counted once however many runs show it. Those of one
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
        metrics = _each_once((run.charged.sealed.run_id or run.release, run.charged) for run in own if run.charged)
        budgets = [*(statement.budget for _, statement in releases), *(charged.budget for _, charged in metrics)]
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


def read_runs(folders: Sequence[Path], *, names: Sequence[str] | None, shareable: bool) -> tuple[Run, ...]:
    """The runs in ``folders``, in order.

    Args:
        names: one per folder; None: by their methods, and where those and epsilon agree by their folders, too.
        shareable: read only values that were released with a charge.
    """
    if names is not None and len(names) != len(folders):
        raise ConfigError(f"There are {len(folders)} runs and {len(names)} names.", "Give each run one --name.")
    runs = [_read(OutputFolder(folder), shareable) for folder in folders]
    if names is not None:
        return tuple(replace(run, name=name) for run, name in zip(runs, names, strict=True))
    count = Counter(map(_promise, runs))
    return tuple(
        replace(run, name=f"{run.name} ({folder})") if count[_promise(run)] > 1 else run
        for run, folder in zip(runs, _apart(folders), strict=True)
    )


def _promise(run: Run) -> tuple[str, str, float | None]:
    return run.statement.dataset, run.statement.method, run.epsilon


def _apart(folders: Sequence[Path]) -> list[str]:
    parts = [folder.absolute().parts for folder in folders]
    depths = range(1, max(map(len, parts), default=1) + 1)
    depth = next((d for d in depths if len({own[-d:] for own in parts}) == len(parts)), 1)
    return ["/".join(own[-depth:]) for own in parts]


def _read(folder: OutputFolder, shareable: bool) -> Run:
    statement, name = read_statement(folder.shareable), folder.root.name
    if isinstance(statement.budget, SecretBudget):
        raise ConfigError(f"The run {name} protects secrets: it has no epsilon to compare by.", "Leave it out.")
    charged = read_released(folder.shareable) if shareable else None
    if charged is not None and not charged.private:
        raise ConfigError(
            f"The metrics of {name} were released without noise: they are NOT PRIVATE.",
            "Release them with noise, or leave out --shareable.",
        )
    measured = charged if shareable else read_evaluation(folder.shareable, folder.evaluation_file)
    utility = [each for each in (measured.values if measured else ()) if each.metric.family == "utility"]
    if not utility:
        raise ConfigError(
            f"Nothing was measured of what the texts of {name} are good for.",
            "Release some metrics with `understudy evaluate --charge-metrics`, or leave out --shareable."
            if shareable
            else "Measure it first with `understudy evaluate`.",
        )
    release = release_named_in(folder.shareable) or str(folder.root.resolve())
    shown, left_out = first_values(utility)
    return Run(statement.method, statement, shown, release, charged, left_out)


def compare(runs: Sequence[Run]) -> tuple[Comparison, ...]:
    """One comparison per dataset and metric, in the order in which they are met."""
    found = []
    for dataset in dict.fromkeys(run.statement.dataset for run in runs):
        own = [run for run in runs if run.statement.dataset == dataset]
        order = {name: place for place, name in enumerate(dict.fromkeys(run.name for run in own))}
        own.sort(key=lambda run: (order[run.name], float("inf") if run.epsilon is None else run.epsilon))
        values = [measured for run in own for measured in run.values if measured.of == SYNTHETIC]
        for name, metric in {measured.metric.name: measured.metric for measured in values}.items():
            columns = dict.fromkeys(setting_words(measured) for measured in values if measured.metric.name == name)
            found.append(Comparison(dataset, metric, tuple(columns), tuple(own)))
    return tuple(found)
