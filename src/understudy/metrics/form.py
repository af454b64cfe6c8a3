"""The form of an evaluation as JSON, which may come from anybody: every field of its type."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from understudy.metrics.value import Better, Family
from understudy.untrusted import Form

_LARGEST = 1e30


def _in_range(value: float) -> float:
    if abs(value) > _LARGEST:
        raise ValueError("a number is out of range")
    return value


Number = Annotated[int | float, AfterValidator(_in_range)]
Share = Annotated[float, Field(ge=0, le=1)]
_SIZE = "training texts"
_MOST_BINS, _MOST_TABLES, _MOST_TOPICS, _MOST_POINTS = 1000, 50, 1000, 20_000
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


def _sized(settings: dict[str, str | Number]) -> dict[str, str | Number]:
    if isinstance(settings.get(_SIZE), str):
        raise ValueError("how many texts were trained on is no number")
    return settings


class _Figure(Form):
    metric: str
    value: Number | None
    of: str
    interval: IntervalForm | None
    settings: Annotated[dict[str, str | Number], AfterValidator(_sized)]
    note: str
    reads_private: bool


class _Histogram(Form):
    edges: Annotated[list[Number], Field(max_length=_MOST_BINS)]
    counts: list[_Count]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.counts or len(self.edges) != len(self.counts) + 1:
            raise ValueError("a histogram has one edge more than counts")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("the edges of a histogram do not rise")
        return self


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
    profiles: Annotated[dict[str, _Profile], Field(max_length=_MOST_TABLES)]
    topics: Annotated[list[_Topic], Field(max_length=_MOST_TOPICS)]
    points: Annotated[list[_Point], Field(max_length=_MOST_POINTS)]


class EvaluationForm(Form):
    version: int
    settings: dict[str, Any]
    metrics: dict[str, _Metric]
    figures: list[_Figure]
    picture: _Picture | None
