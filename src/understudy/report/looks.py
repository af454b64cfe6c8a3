"""What tables of texts look like, as rows: labels, topics, lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from understudy.metrics.picture import Picture, Profile
from understudy.metrics.value import Figure
from understudy.report.grids import setting_words

CHARGED = "charged"
"""Real texts, as figures that were released with a charge tell of them."""
_SHARES = ("label_share", "length_share")


@dataclass(frozen=True)
class Shares:
    """A row: its name, and the share of each table's texts that it stands for."""

    name: str
    shares: Mapping[str, float]


def label_rows(picture: Picture, charged: Sequence[Figure]) -> tuple[Shares, ...]:
    """Each label's share of every table that has labels, largest first; the charged ones as a table of their own."""
    shares = {
        of: {label: count / max(1, profile.texts) for label, count in profile.labels.items()}
        for of, profile in picture.profiles.items()
        if profile.labels
    }
    if paid := settings_shares(charged, "label_share"):
        shares[CHARGED] = paid
    labels = sorted({label for of_table in shares.values() for label in of_table})
    rows = [Shares(label, {of: of_table.get(label, 0.0) for of, of_table in shares.items()}) for label in labels]
    return tuple(sorted(rows, key=lambda row: -max(row.shares.values())))


def charged_length_rows(charged: Sequence[Figure]) -> tuple[Shares, ...]:
    """The shares of lengths that were paid for."""
    return tuple(Shares(words, {CHARGED: share}) for words, share in settings_shares(charged, "length_share").items())


def settings_shares(figures: Sequence[Figure], metric: str) -> dict[str, float]:
    """A metric's values by what tells them apart."""
    return {
        setting_words(figure): figure.value
        for figure in figures
        if figure.metric.name == metric and figure.value is not None
    }


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


def without_shares(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    """All but the shares of labels and lengths, which stand in tables of their own."""
    return tuple(figure for figure in figures if figure.metric.name not in _SHARES)
