"""The map: a dot a text, filled where it is synthetic, a ring where it is real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from understudy.metrics.picture import Point
from understudy.metrics.value import SYNTHETIC
from understudy.report.charts.svg import Frame, picture, tag

COLOURS = 8
FEW = 500
"""Texts that are few enough for larger dots."""
_SIDE, _EDGE, _LEAST = 600.0, 12.0, 0.4
"""Of the map: its width, its margin, and its least height as a share of its width."""


def colours_of(points: Sequence[Point]) -> Mapping[str, str]:
    """A class of colour for each label; the same for all where there are more labels than colours."""
    labels = sorted({point.label for point in points})
    return {label: f"c{place}" if len(labels) <= COLOURS else "c0" for place, label in enumerate(labels)}


def map_chart(points: Sequence[Point], description: str) -> Markup:
    """The dots in the order of ``points``, real ones below synthetic ones; the page's script tells about them.

    Args:
        points: at least one. x and y have one scale, and the map is as high as they need.
        description: for those who cannot see it.
    """
    colours, size = colours_of(points), 5.5 if len(points) <= FEW else 4
    low, high = min(point.y for point in points), max(point.y for point in points)
    across = _SIDE - 2 * _EDGE
    frame = Frame(width=_SIDE, height=across * max(high - low, _LEAST) + 2 * _EDGE)
    dots = [
        tag(
            "circle",
            cx=_EDGE + point.x * across,
            cy=frame.height / 2 + ((low + high) / 2 - point.y) * across,
            r=size,
            class_=f"point {'filled' if point.of == SYNTHETIC else 'ring'} {colours[point.label]}",
            data_number=number,
        )
        for number, point in sorted(enumerate(points), key=lambda pair: pair[1].of == SYNTHETIC)
    ]
    ring = tag("circle", r=9, class_="chosen", id="map-chosen", data_off="")
    return picture("map-chart", "A map of the texts", description, frame, *dots, ring)
