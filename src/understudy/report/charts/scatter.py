"""The map: a dot a text, filled where it is synthetic, a ring where it is real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from understudy.evaluation.figure import SYNTHETIC
from understudy.evaluation.picture import Point
from understudy.report.charts.svg import Frame, picture, tag

COLOURS = 8
FEW = 500
"""Texts that are few enough for larger dots."""
_FRAME = Frame(width=600, height=600, left=12, right=12, top=12, bottom=12)


def colours_of(points: Sequence[Point]) -> Mapping[str, str]:
    """A class of colour for each label; the same for all where there are more labels than colours."""
    labels = sorted({point.label for point in points})
    return {label: f"c{place}" if len(labels) <= COLOURS else "c0" for place, label in enumerate(labels)}


def map_chart(points: Sequence[Point], description: str) -> Markup:
    """The dots in the order of ``points``, real ones below synthetic ones; the page's script tells about them."""
    colours = colours_of(points)
    (left, right), (bottom, top) = _FRAME.x, _FRAME.y
    size = 5.5 if len(points) <= FEW else 4
    dots = [
        tag(
            "circle",
            cx=left + point.x * (right - left),
            cy=bottom + point.y * (top - bottom),
            r=size,
            class_=f"point {'filled' if point.of == SYNTHETIC else 'ring'} {colours[point.label]}",
            data_number=number,
        )
        for number, point in sorted(enumerate(points), key=lambda pair: pair[1].of == SYNTHETIC)
    ]
    ring = tag("circle", r=9, class_="chosen", id="map-chosen", data_off="")
    return picture("map-chart", "A map of the texts", description, _FRAME, *dots, ring)
