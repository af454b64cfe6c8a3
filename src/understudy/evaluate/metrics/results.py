"""Results as JSON files that may come from anybody: one writer, and one reader that checks every type.

Each file contains one frozen dataclass, which is its form, and the version of that form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from understudy.base.display import aligned, plural
from understudy.base.errors import ConfigError
from understudy.base.files import PRIVATE_MODE, SHARED_MODE, write_file
from understudy.base.lazy import library
from understudy.base.plots import bars
from understudy.base.untrusted import MOST_BYTES, MOST_VALUES, read_form, read_json
from understudy.evaluate.metrics.overview import Overview
from understudy.evaluate.metrics.value import HOLDOUT, MAJORITY, OTHER_HALF, REAL, SYNTHETIC, Family, MetricValue
from understudy.privacy.events import PureEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge
from understudy.privacy.unit import Unit
from understudy.release.statement import Sealed, read_budget, read_charge

VERSION = 1
"""Version of every form; files of other versions are refused."""
MOST_EVALUATION_BYTES = 64 * 1024**2
"""Largest file of an evaluation, which contains some thousands of whole texts for the map."""
T = TypeVar("T")


@dataclass(frozen=True)
class Evaluation:
    """The content of ``private/evaluation.json``.

    Args:
        values: every number with its definition, in the order in which they were measured.
        overview: charts of the tables; None if not requested.
        table_sha256: of the synthetic table of an output folder.
        remarks: limitations of the results, in sentences.
    """

    values: tuple[MetricValue, ...]
    overview: Overview | None
    settings: Mapping[str, Any]
    table_sha256: str | None = None
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{family} {len(rows)}" for family, rows in self.tables().items())
        return f"<Evaluation: {sizes or 'nothing measured'}>"

    def __str__(self) -> str:
        """Return the summary for the user, which is as private as the evaluation."""
        return "\n".join([aligned(("", *SUMMARY), self.summary), *self.remarks])

    @property
    def summary(self) -> list[tuple[str, ...]]:
        """Return at most ten rows: a name, and its values under :data:`SUMMARY` (empty cells if nothing was
        measured)."""
        found: list[tuple[str, ...]] = []
        for name in _SUMMARISED:
            only = _ONE_OF.get(name, {}).items()
            told = [each for each in self.values if each.metric.name == name and only <= each.settings.items()]
            own_values = [each for each in told if each.of == SYNTHETIC and each.value is not None]
            if name == _OF_GROUPS:  # the one most easily overlooked
                own_values = sorted(own_values, key=lambda each: each.value or 0.0)[:1]
            for own in own_values:
                like = {each.of: each.value for each in told if each.settings == own.settings}
                beside = next((like[of] for of in (REAL, HOLDOUT, OTHER_HALF) if of in like), None)
                chance = like.get(MAJORITY, self._most_frequent if name == "accuracy" else None)
                kind = [f", {own.settings[each]}" for each in _TELLING if each in own.settings]
                cells = map(_rounded, (own.value, beside, chance))
                found.append(("".join([own.metric.title, *kind]), *cells, own.metric.better.replace("none", "")))
        return found[:10]

    @property
    def _most_frequent(self) -> float | None:
        """Return the share of the real texts' most frequent label, which can be guessed without training."""
        shares = [each.value for each in self.values if (each.metric.name, each.of) == ("label_share", REAL)]
        return max((share for share in shares if share is not None), default=None)

    def plot(self, axes: Any = None) -> Any:
        """Draw the summary's values between 0 and 1: the synthetic table's next to the real one's, with matplotlib.

        Private, like all of it.

        Args:
            axes: a ``matplotlib.axes.Axes`` to draw on. None: those of a new figure.

        Returns:
            The axes.

        Raises ConfigError if matplotlib is not installed, or no such value was measured.
        """
        rows = [(name, _number(own), _number(like)) for name, own, like, *_ in self.summary]
        shown = [row for row in rows if row[1] is not None and all(0 <= (value or 0) <= 1 for value in row[1:])]
        if not shown:
            raise ConfigError("No value of the summary can be drawn.", "Measure fidelity or utility (metrics).")
        names, own, like = zip(*shown, strict=True)
        return bars(names, {SUMMARY[0]: own, SUMMARY[1]: like}, title="Synthetic and real table", axes=axes)

    def to_pandas(self) -> Any:
        """Return every value as a row of a ``pandas.DataFrame``. Private, like all of it."""
        rows = [
            {
                **{"family": each.metric.family, "metric": each.metric.name, "of": each.of, "value": each.value},
                **{end: each.interval and getattr(each.interval, end) for end in ("low", "high")},
                **{"settings": dict(each.settings), "texts": each.sample_size, "note": each.note},
            }
            for each in self.values
        ]
        return library("pandas").DataFrame(rows)

    def of_family(self, family: Family) -> tuple[MetricValue, ...]:
        return tuple(measured for measured in self.values if measured.metric.family == family)

    def tables(self) -> dict[Family, list[tuple[str, ...]]]:
        """Return a table for each family of metrics, with the columns :data:`HEADS`. Kinds of personal data that were
        not found are left out."""
        found: dict[Family, list[tuple[str, ...]]] = {
            family: [
                cells_of(measured)
                for measured in self.of_family(family)
                if measured.value is not None or not measured.metric.name.startswith("pii_")
            ]
            for family in get_args(Family)
        }
        return {family: rows for family, rows in found.items() if rows}

    def save(self, path: Path) -> None:
        """Write it, readable by its owner only."""
        write_result(path, result_json(self))


SUMMARY = ("synthetic", "real", "chance", "better")
"""Heads of the summary: whose value it is, the value of guessing, and which direction is better."""
_ONE_OF: Mapping[str, Mapping[str, float]] = {"distinct_n": {"n": 2}, "near_duplicates": {"similarity": 0.9}}
_OF_GROUPS = "group_coverage"
_TELLING = ("classifier", "column", "label", "length")
_SUMMARISED = (
    *("accuracy", "mauve", "frechet_distance", _OF_GROUPS, "vocabulary_divergence", "distinct_n", "label_distance"),
    *("near_duplicates", "copied_words", "longest_copied_span", "column_accuracy"),
)
"""Metrics of the summary in order, and the chosen value of those with many."""


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


HEADS = ("metric", "of", "value", "interval", "settings", "note")


def cells_of(measured: MetricValue) -> tuple[str, ...]:
    """Return a value's row of a table with the columns :data:`HEADS`."""
    shown = [f"{name} {setting}" for name, setting in measured.settings.items()]
    settings = ", ".join(shown if measured.sample_size is None else [*shown, plural(measured.sample_size, "text")])
    value = "-" if measured.value is None else f"{measured.value:.4g}"
    interval = f"{measured.interval.low:.4g} to {measured.interval.high:.4g}" if measured.interval else ""
    return measured.metric.title, measured.of, value, interval, settings, measured.note


@dataclass(frozen=True)
class ReleasedMetrics:
    """The content of ``release/metrics.json``: values of private texts that were released with noise, and their cost.

    Args:
        table_sha256: of the synthetic table of the output folder.
        sealed: the seals of the released counts.
        trusted: endpoints and clusters that could read private texts.
        unit, protects: the privacy unit, also in words.
    """

    values: tuple[MetricValue, ...]
    settings: Mapping[str, Any]
    table_sha256: str | None
    sealed: Sealed
    dataset: str
    trusted: tuple[str, ...]
    unit: Annotated[Unit, PlainValidator(Unit.from_json), PlainSerializer(Unit.to_json)]
    protects: str
    budget: Annotated[Budget, PlainValidator(read_budget), PlainSerializer(Budget.to_json)]
    charges: tuple[Annotated[Charge, PlainValidator(read_charge), PlainSerializer(Charge.to_json)], ...]

    def __post_init__(self) -> None:
        costs = [charge.event.epsilon for charge in self.charges if isinstance(charge.event, PureEvent)]
        if not costs or len(costs) < len(self.charges) or sum(costs) > float(self.budget.epsilon) * (1 + 1e-9):
            raise ValueError("the charges exceed the budget")

    @property
    def private(self) -> bool:
        """Return whether the promise holds: False if the noise was off or seeded."""
        return self.sealed.private

    def save(self, path: Path) -> None:
        write_result(path, result_json(self), mode=SHARED_MODE)


def load_evaluation(path: Path) -> Evaluation:
    """Read the file of :meth:`Evaluation.save`. Raises ConfigError as :func:`read_result` does."""
    return read_result(path, Evaluation, made_by="evaluate", most=MOST_EVALUATION_BYTES, values=None)


def load_released(path: Path) -> ReleasedMetrics:
    """Read the file of :meth:`ReleasedMetrics.save`. Raises ConfigError as :func:`read_result` does."""
    return read_result(path, ReleasedMetrics, made_by="evaluate --charge-metrics")


def result_json(result: Any) -> dict[str, Any]:
    """Return a result (a frozen dataclass) as JSON values, with the version of its format."""
    fields: dict[str, Any] = TypeAdapter(type(result)).dump_python(result, mode="json")
    return {"version": VERSION, **fields}


def write_result(path: Path, fields: dict[str, Any], *, mode: int = PRIVATE_MODE) -> None:
    """Write the values of :func:`result_json`, whole or not at all; for the owner only unless ``mode`` differs."""
    write_file(path, json.dumps(fields, ensure_ascii=False, allow_nan=False), mode=mode)


def read_result(
    path: Path, kind: type[T], *, made_by: str, most: int = MOST_BYTES, values: int | None = MOST_VALUES
) -> T:
    """Read a file of :func:`write_result`; unknown fields are ignored."""
    try:
        fields = read_json(path, most=most, values=values)
        if fields.pop("version") != VERSION:
            raise ValueError("another version")
        return read_form(kind, fields)
    except Exception:  # a damaged file fails in many ways
        raise ConfigError(
            f"{path.name} cannot be read: it is damaged or was made by another version.",
            f"Make it again with `understudy {made_by}`.",
        ) from None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
