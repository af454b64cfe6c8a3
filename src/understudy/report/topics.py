"""The page of topics: what the texts are about, with sizes and the guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from understudy.evaluate.synthetic import SyntheticText
from understudy.methods.additions.topics.found import Topic, by_share, held_of
from understudy.methods.additions.topics.plan import sample_of
from understudy.report.charts import bars
from understudy.report.page import page_of, render, write_page
from understudy.report.svg import Frame, svg_image, tag
from understudy.report.views import promised, samples_of
from understudy.run.topics import FoundTopics

_SIDE, _EDGE, _LARGEST = 600.0, 70.0, 46.0  # of the map: width, margin, radius of the largest topic
_LETTER, _LINE = 7.5, 14.0  # of a label: width of a letter, height of a line


@dataclass(frozen=True)
class ShownTopic:
    """A topic, its share of all topics in percent, a bar of its size, and up to three synthetic texts about it."""

    topic: Topic
    percent: float
    bar: Markup
    texts: tuple[SyntheticText, ...] = ()


def write_topics(made: FoundTopics, path: Path, texts: Sequence[SyntheticText] = (), *, seed: int = 0) -> Path:
    """Write the page, which may be handed out like the Release.

    Args:
        texts: the synthetic texts, if the topics are their labels; ``seed`` chooses up to three of each to be shown.
    """
    with page_of(path.parent):
        shown, small = shown_topics(made, texts, seed)
        statement = made.release.statement
        text = render(
            "topics.html",
            statement=statement,
            unit=statement.unit.kind,
            promised=promised(statement.budget),
            topics=shown,
            small=small,
            texts=any(each.texts for each in shown),
            map=map_of(made),
            sampled=sample_of(statement.charges),
        )
    write_page(path, text, private=False)
    return path


def shown_topics(
    made: FoundTopics, texts: Sequence[SyntheticText] = (), seed: int = 0
) -> tuple[list[ShownTopic], list[Topic]]:
    """Return the topics whose size is clear of the noise, the largest first, and those that are too small to show."""
    names, written = made.release.schema.labels, [each for each in texts if not each.bare and each.text.strip()]
    samples = {each.label: each.texts for each in samples_of(written, seed=seed, labels=None)}
    clear = [(each, share) for each, share in by_share(made.topics) if each.clear]
    most = max((each.high for each, _ in clear), default=1.0)
    shown = [
        ShownTopic(
            each,
            100 * share,
            bars({"synthetic": each.size}, most),
            samples.get(str(names[each.number]), ()) if samples else (),
        )
        for each, share in clear
    ]
    return shown, [each for each in made.topics if not each.clear]


def map_of(made: FoundTopics) -> Markup | None:
    """Draw the clear topics' centres along their two main directions, as circles by size; None if fewer than three."""
    clear = [each for each in made.topics if each.clear]
    if len(clear) < 3:
        return None
    held = held_of(made.release)
    centres = np.array([held.centres[held.topic == each.number].mean(axis=0) for each in clear], dtype=np.float64)
    centres -= centres.mean(axis=0)
    _, _, directions = np.linalg.svd(centres, full_matrices=False)
    places = centres @ directions[:2].T
    low, reach = places.min(axis=0), np.maximum(np.ptp(places, axis=0), 1e-9)
    across = _SIDE - 2 * _EDGE
    frame = Frame(width=_SIDE, height=_SIDE * 0.7)
    spots = (places - low) / reach * (across, frame.height - 2 * _EDGE) + _EDGE
    largest = max(each.size for each in clear)
    discs = [
        tag("circle", tag("title", each.name), cx=x, cy=y, r=_radius(each, largest), class_="point ring c0")
        for each, (x, y) in zip(clear, spots.tolist(), strict=True)
    ]
    names = [
        tag("text", each.terms[0], x=x, y=y, text_anchor="middle", class_="label")
        for each, x, y in _without_overlaps(clear, spots, discs_of=largest)
    ]
    told = "Topics that are close together are about similar things. Circle size shows topic size."
    return svg_image("topics-map", "A map of the topics", told, frame, *discs, *names)


def _radius(topic: Topic, largest: float) -> float:
    return max(3.0, _LARGEST * float(np.sqrt(topic.size / largest)))


def _without_overlaps(
    topics: Sequence[Topic], spots: NDArray[np.float64], *, discs_of: float
) -> Iterator[tuple[Topic, float, float]]:
    """Yield each topic with the position of its label: in its circle, below or above it; skip it if all are taken."""
    taken: list[tuple[float, float, float]] = []  # left, right, height
    for place in sorted(range(len(topics)), key=lambda place: -topics[place].size):
        topic, (x, y) = topics[place], spots[place].tolist()
        half, reach = len(topic.terms[0]) * _LETTER / 2, _radius(topic, discs_of)
        for height in (y + 4, y + reach + _LINE, y - reach - 5):
            if all(right < x - half or left > x + half or abs(height - at) > _LINE for left, right, at in taken):
                taken.append((x - half, x + half, height))
                yield topic, x, height
                break
