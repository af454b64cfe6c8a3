"""A plot as an SVG file that a README can show: its styles are in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from understudy.report.svg import Frame, Scale, apart, path, svg_image, tag, x_axis, y_axis

_COLOURS = ("#1d5fa8", "#b4530f", "#0b7a57", "#9b3f8f", "#7a6400", "#b3263f", "#1b7f93", "#5a626b")
_STYLE = (
    "svg { background: #ffffff; font: 12.5px sans-serif; } text { fill: #59636d; } .label { font-weight: 600; }"
    " .grid { stroke: #e2e3de; } .axis { stroke: #59636d; }"
    " .leader { stroke: #59636d; stroke-width: 0.8; opacity: 0.6; }"
    " .line { fill: none; stroke-width: 2.25; }"
)
_BESIDE = 215  # for the names of the lines
_APART, _LEADER = 15, 22  # of two labels at least; length of the line to a label
_ROOM = 1.3  # beyond the first and the last value, as a factor


def against_records(
    title: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, unit: str, powers: Sequence[float]
) -> str:
    """Both axes logarithmic: a line of slope 1 grows in proportion.

    Args:
        lines: points (records, value) by name.
        unit: of the values.
        powers: the values that get a tick.
    """
    frame = Frame(width=440 + _BESIDE, height=360, right=_BESIDE)
    records = sorted({x for points in lines.values() for x, _ in points})
    values = [y for points in lines.values() for _, y in points]
    low, high = min(values) / _ROOM, max(values) * _ROOM
    x = Scale((records[0] / _ROOM, records[-1] * _ROOM), frame.x, True, "{:,.0f}".format, tuple(records))
    y = Scale((low, high), frame.y, True, "{:,g}".format, tuple(each for each in powers if low < each < high))
    marks: list[Markup] = []
    labels = []
    for place, (name, points) in enumerate(lines.items()):
        at = [(x(a), y(b)) for a, b in sorted(points)]
        colour = _COLOURS[place % len(_COLOURS)]
        marks.append(path(at, class_="line", stroke=colour))
        marks += [tag("circle", cx=left, cy=top, r=3.5, fill=colour) for left, top in at]
        labels.append((at[-1][1], name, f"label c{place}"))
    colours = " ".join(f".c{place} {{ fill: {colour}; }}" for place, colour in enumerate(_COLOURS))
    said = "; ".join(
        f"{name}: " + ", ".join(f"{value:g} at {count:,.0f}" for count, value in sorted(points))
        for name, points in lines.items()
    )
    image = svg_image(
        "plot",
        title,
        f"{said}.",
        frame,
        tag("style", Markup(f"{_STYLE} {colours}")),
        tag("rect", width="100%", height="100%", fill="#ffffff"),
        y_axis(frame, y, unit),
        x_axis(frame, x, "private records", lines=True),
        *marks,
        *_apart(labels, frame.x[1] + 4),
    )
    size = f'xmlns="http://www.w3.org/2000/svg" width="{frame.width:g}" height="{frame.height:g}"'
    return str(image).replace("<svg ", f"<svg {size} ", 1) + "\n"


def _apart(labels: Sequence[tuple[float, str, str]], left: float) -> list[Markup]:
    """Labels pushed apart where they would touch, around their mean height, each with a line from where it belongs."""
    ordered = sorted(labels)
    heights = apart([wanted for wanted, _, _ in ordered], _APART)
    up = sum(height - wanted for height, (wanted, _, _) in zip(heights, ordered, strict=True)) / len(ordered)
    marks = []
    for height, (wanted, words, kind) in zip(heights, ordered, strict=True):
        at = height - up
        marks.append(tag("line", x1=left, x2=left + _LEADER - 4, y1=wanted, y2=at, class_="leader"))
        marks.append(tag("text", words, x=left + _LEADER, y=at + 4, class_=kind))
    return marks
