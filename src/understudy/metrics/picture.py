"""What tables of texts look like: lengths, labels, topics and a map. Data for the report, not metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Histogram:
    """Counts between edges; ``len(edges) == len(counts) + 1``."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Profile:
    """One table: how many texts, how long they are in words, how many of which label (empty without labels)."""

    texts: int
    words: Histogram
    labels: Mapping[str, int]


@dataclass(frozen=True)
class Topic:
    """A cluster of texts: the terms that tell it from the others, and the share of each table's texts in it."""

    terms: tuple[str, ...]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Point:
    """A text on the map. ``x`` and ``y`` lie in [0, 1]."""

    x: float
    y: float
    of: str
    label: str
    text: str


@dataclass(frozen=True)
class Picture:
    """Several tables side by side, by name (``real``, ``synthetic``). Private as soon as one of them is."""

    profiles: Mapping[str, Profile]
    topics: tuple[Topic, ...]
    points: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Picture:
        return cls(
            {
                name: Profile(
                    each["texts"],
                    Histogram(tuple(each["words"]["edges"]), tuple(each["words"]["counts"])),
                    each["labels"],
                )
                for name, each in fields["profiles"].items()
            },
            tuple(Topic(tuple(each["terms"]), each["shares"]) for each in fields["topics"]),
            tuple(Point(**each) for each in fields["points"]),
        )
