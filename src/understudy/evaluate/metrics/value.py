"""A metric, and one value of it: never a bare number.

These values are their own JSON form: what is read from a file, which may come from anybody, is checked against the
types of their fields (:mod:`understudy.evaluate.metrics.results`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field

Family = Literal["fidelity", "utility", "leakage"]
Better = Literal["lower", "higher", "same", "none"]
"""Which direction is better; ``same``: nearer to the value of the reference texts (real or held out) is better."""

SYNTHETIC, REAL, HOLDOUT = "synthetic", "real", "holdout"
"""Whose value it is; other tables (such as a baseline) have other names."""
REAL_ALL = "real (all)"
"""Whose value it is if a classifier is trained on all real texts."""
OTHER_HALF = "real (other half)"
"""Whose value it is if one half of the real rows is compared with the other, without held-out ones."""
MAJORITY = "most frequent"
"""Whose value it is if nothing is trained: the answer is always the most frequent value."""

SETTING_TITLES = {"reference_texts": "reference texts"}
"""Titles of settings whose names are not their titles."""
_LARGEST = 1e30


def _in_range(value: float) -> float:
    if not abs(value) <= _LARGEST:
        raise ValueError("a number is out of range")
    return value


Number = Annotated[float, AfterValidator(_in_range)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Setting = str | Annotated[int | float, AfterValidator(_in_range)]


@dataclass(frozen=True)
class Metric:
    """The definition of a metric: its name, title, family, and what it means.

    Args:
        name: unique, snake_case.
        definition: in one to three sentences, with its range and unit.
    """

    family: Family
    name: str
    title: str
    definition: str
    source: str
    better: Better


@cache
def _catalogue() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files(__package__).joinpath("metrics.toml").read_text("utf-8"))


def metric_named(name: str, **numbers: float) -> Metric:
    """Return the metric of this name in ``metrics.toml``, with ``numbers`` filled into its title and definition."""
    metrics = _catalogue()
    family = next(each for each in get_args(Family) if name in metrics[each])
    fields = dict(metrics[family][name])
    for part in ("title", "definition"):
        for said, sentence in metrics["shared"].items():
            fields[part] = fields[part].replace(f"{{{said}}}", sentence)
        fields[part] = " ".join(fields[part].split()).format(**numbers)
    return Metric(family, name, **fields)


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Args:
        low, high: its ends, ``low <= high``.
        method: how it was computed, such as ``"bootstrap over the synthetic texts"`` or ``"t over 5 seeds"``.
    """

    low: Number
    high: Number
    method: str
    level: Share = 0.95


@dataclass(frozen=True)
class MetricValue:
    """One value of a metric.

    Args:
        value: None if these texts do not determine it; ``note`` then says why.
        of: the table that was measured: ``synthetic``, ``real``, ``holdout``, or the name of another table.
        interval: its uncertainty; None if there is none (or none is known: ``note`` says so).
        settings: distinguish the values of one metric (``classifier``, ``label``, ``shots``, ``n`` ...).
        note: a remark in one sentence.
        reads_private: whether real texts went into it. If so, it is not covered by epsilon and stays in ``private/``.
        sample_size: number of the table's texts that it is based on: those trained on, or those that every table
            was cut to; None for all.
    """

    metric: Metric
    value: Number | None
    of: str = SYNTHETIC
    interval: Interval | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    note: str = ""
    reads_private: bool = True
    sample_size: Count | None = None
