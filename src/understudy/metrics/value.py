"""What a metric is, and one value of it: never a bare number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Family = Literal["fidelity", "utility", "leakage"]
Better = Literal["lower", "higher", "same", "none"]
"""Which way is good; ``same``: the nearer to the same figure of the reference texts (real or held out), the better."""

Setting = str | int | float

SYNTHETIC, REAL, HOLDOUT = "synthetic", "real", "holdout"
"""Whose figure it is; other tables (a zero-shot floor, say) have names of their own."""


@dataclass(frozen=True)
class Metric:
    """The definition of a number.

    Args:
        name: unique, snake_case.
        title: for people, in a table's first column.
        family: the question that it answers.
        definition: in one to three sentences, with its range and unit.
        source: paper or standard.
        better: which way is good.
    """

    name: str
    title: str
    family: Family
    definition: str
    source: str
    better: Better

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "family": self.family,
            "definition": self.definition,
            "source": self.source,
            "better": self.better,
        }


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Args:
        low, high: its ends, ``low <= high``.
        method: how it came about, such as ``"bootstrap over the synthetic texts"`` or ``"t over 5 seeds"``.
        level: its confidence, in (0, 1).
    """

    low: float
    high: float
    method: str
    level: float = 0.95

    def to_json(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "method": self.method, "level": self.level}


@dataclass(frozen=True)
class Figure:
    """One value of a metric.

    Args:
        metric: what was measured.
        value: None where it cannot be told from these texts; ``note`` then says why.
        of: whose figure: ``synthetic``, ``real``, ``holdout``, or the name of another table.
        interval: its uncertainty; None where there is none (or none is known: ``note`` says so).
        settings: what tells apart the figures of one metric (``classifier``, ``label``, ``shots``, ``n`` ...).
        note: a remark in one sentence.
        reads_private: whether real texts went into it. If so, it is not covered by epsilon and stays in ``private/``.
    """

    metric: Metric
    value: float | None
    of: str = SYNTHETIC
    interval: Interval | None = None
    settings: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""
    reads_private: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric.name,
            "value": self.value,
            "of": self.of,
            "interval": None if self.interval is None else self.interval.to_json(),
            "settings": dict(self.settings),
            "note": self.note,
            "reads_private": self.reads_private,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], metrics: Mapping[str, Metric]) -> Figure:
        interval = fields["interval"]
        return cls(
            metric=metrics[fields["metric"]],
            value=fields["value"],
            of=fields["of"],
            interval=None if interval is None else Interval(**interval),
            settings=fields["settings"],
            note=fields["note"],
            reads_private=fields["reads_private"],
        )
