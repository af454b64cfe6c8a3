"""What tables of texts look like, as rows: labels, topics, lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from understudy.evaluation.figure import Figure
from understudy.evaluation.picture import Picture, Profile

LABEL_SHARE = "label_share"


@dataclass(frozen=True)
class Shares:
    """A row: its name, and the share of each table's texts that it stands for."""

    name: str
    shares: Mapping[str, float]


def label_rows(picture: Picture) -> tuple[Shares, ...]:
    """Each label's share of every table that has labels, largest first."""
    profiles = {of: profile for of, profile in picture.profiles.items() if profile.labels}
    labels = sorted({label for profile in profiles.values() for label in profile.labels})
    rows = [
        Shares(label, {of: profile.labels.get(label, 0) / max(1, profile.texts) for of, profile in profiles.items()})
        for label in labels
    ]
    return tuple(sorted(rows, key=lambda row: -max(row.shares.values())))


def topic_rows(picture: Picture) -> tuple[Shares, ...]:
    """Each topic by its terms, largest first."""
    rows = [Shares(", ".join(topic.terms), topic.shares) for topic in picture.topics]
    return tuple(sorted(rows, key=lambda row: -max(row.shares.values(), default=0)))


def length_rows(profiles: Mapping[str, Profile]) -> tuple[Shares, ...]:
    """Each bin of lengths, where all tables have the same bins; else none."""
    edges = {profile.words.edges for profile in profiles.values()}
    if len(edges) != 1:
        return ()
    (shared,) = edges
    return tuple(
        Shares(
            f"{shared[place]:,.0f} to {shared[place + 1]:,.0f}",
            {of: profile.words.counts[place] / max(1, profile.texts) for of, profile in profiles.items()},
        )
        for place in range(len(shared) - 1)
    )


def largest(rows: tuple[Shares, ...]) -> float:
    """The largest share of all; never 0."""
    return max((share for row in rows for share in row.shares.values()), default=0) or 1.0


def without_labels(figures: tuple[Figure, ...]) -> tuple[Figure, ...]:
    """All but the labels' shares, which stand in a table of their own."""
    return tuple(figure for figure in figures if figure.metric.name != LABEL_SHARE)
