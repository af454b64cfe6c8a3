"""The page of topics: what the texts are about, how many are, and what is promised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from understudy.methods.additions.topics.found import Topic
from understudy.methods.additions.topics.plan import sample_of
from understudy.report.charts import bars
from understudy.report.page import page_of, render, write_page
from understudy.report.svg import Frame, svg_image, tag
from understudy.report.views import promised
from understudy.run.topics import FoundTopics

PAGE = "topics.html"
_EXAMPLES = 3
_SIDE, _EDGE, _LARGEST = 600.0, 70.0, 46.0  # of the map: width, margin, radius of the largest topic


@dataclass(frozen=True)
class ShownTopic:
    """A topic with a bar of its size, and example texts made of its terms."""

    topic: Topic
    bar: Markup
    examples: tuple[str, ...]


def write_topics(made: FoundTopics, path: Path, *, seed: int = 0) -> Path:
    """Write the page, which may be handed out as the Release may."""
    with page_of(path.parent):
        shown, small = shown_topics(made, seed=seed)
        statement = made.release.statement
        text = render(
            "topics.html",
            statement=statement,
            unit=statement.unit.kind,
            promised=promised(statement.budget),
            topics=shown,
            small=small,
            map=map_of(made),
            sampled=sample_of(statement.charges),
        )
    write_page(path, text, private=False)
    return path


def shown_topics(made: FoundTopics, *, seed: int) -> tuple[list[ShownTopic], list[Topic]]:
    """The topics whose size stands clear of the noise, and those that are too small to show."""
    generator = np.random.default_rng(seed)
    clear = sorted((each for each in made.topics if each.clear), key=lambda each: -each.size)
    most = max((each.high for each in clear), default=1.0)
    shown = [
        ShownTopic(
            each,
            bars({"synthetic": each.size}, most),
            tuple(", ".join(each.some_terms(generator)) for _ in range(_EXAMPLES)),
        )
        for each in clear
    ]
    return shown, [each for each in made.topics if not each.clear]


def map_of(made: FoundTopics) -> Markup | None:
    """The clear topics' centres along their two main directions, as discs by size; None of fewer than three."""
    clear = [each for each in made.topics if each.clear]
    if len(clear) < 3:
        return None
    vectors, topic = made.release.arrays["centres"], made.release.arrays["topic"]
    centres = np.array([vectors[topic == each.number].mean(axis=0) for each in clear], dtype=np.float64)
    centres -= centres.mean(axis=0)
    _, _, directions = np.linalg.svd(centres, full_matrices=False)
    places = centres @ directions[:2].T
    low, reach = places.min(axis=0), np.maximum(np.ptp(places, axis=0), 1e-9)
    across = _SIDE - 2 * _EDGE
    frame = Frame(width=_SIDE, height=_SIDE * 0.7)
    spots = (places - low) / reach * (across, frame.height - 2 * _EDGE) + _EDGE
    largest = max(each.size for each in clear)
    discs = [
        tag("circle", cx=x, cy=y, r=max(3.0, _LARGEST * float(np.sqrt(each.size / largest))), class_="point ring c0")
        for each, (x, y) in zip(clear, spots.tolist(), strict=True)
    ]
    names = [
        tag("text", each.terms[0], x=x, y=y + 4, text_anchor="middle", class_="label")
        for each, (x, y) in zip(clear, spots.tolist(), strict=True)
    ]
    told = "Topics that are near each other are about like things; a disc is as large as its topic."
    return svg_image("topics-map", "A map of the topics", told, frame, *discs, *names)
