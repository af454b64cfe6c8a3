"""The form of an evaluation as JSON, which may come from anybody: every field of its type."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from understudy.evaluation.figure import Better, Family
from understudy.untrusted import Form

_LARGEST = 1e30


def _in_range(value: float) -> float:
    if abs(value) > _LARGEST:
        raise ValueError("a number is out of range")
    return value


Number = Annotated[int | float, AfterValidator(_in_range)]
Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class IntervalForm(Form, extra="forbid"):
    low: Number
    high: Number
    method: str
    level: Share = 0.95


class _Metric(Form, extra="forbid"):
    name: str
    title: str
    family: Family
    definition: str
    source: str
    better: Better


class _Figure(Form):
    metric: str
    value: Number | None
    of: str
    interval: IntervalForm | None
    settings: dict[str, str | Number]
    note: str
    reads_private: bool


class _Histogram(Form):
    edges: list[Number]
    counts: list[_Count]


class _Profile(Form):
    texts: _Count
    words: _Histogram
    labels: dict[str, _Count]


class _Topic(Form):
    terms: list[str]
    shares: dict[str, Number]


class _Point(Form, extra="forbid"):
    x: Number
    y: Number
    of: str
    label: str
    text: str


class _Picture(Form):
    profiles: dict[str, _Profile]
    topics: list[_Topic]
    points: list[_Point]


class EvaluationForm(Form):
    version: int
    settings: dict[str, Any]
    metrics: dict[str, _Metric]
    figures: list[_Figure]
    picture: _Picture | None
