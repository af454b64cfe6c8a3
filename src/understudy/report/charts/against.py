"""A figure against epsilon: one line a method, between the ceilings and the floor."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from understudy.metrics.value import SYNTHETIC, Figure
from understudy.report.charts.scales import Scale, padded
from understudy.report.charts.svg import Frame, path, picture, tag, x_axis, y_axis
from understudy.report.compared import REFERENCES, Comparison
from understudy.report.grids import training_words
from understudy.report.numbers import cut, short

_APART = 15
"""Least distance of two labels."""
_LEADER = 22
"""Length of the line to a label."""
_LETTER, _LONGEST = 7.4, 30
"""About a letter's width, and the most letters of a label."""


def against_epsilon(name: str, comparison: Comparison, column: str) -> Markup | None:
    """The chart of one column, or None where no run has both an epsilon and a number.

    Args:
        name: unique on the page.
        comparison: the runs.
        column: one of ``comparison.columns``.
    """
    lines = _lines(comparison, column)
    if not lines:
        return None
    references = [
        (of, figure)
        for of in REFERENCES
        if (figure := comparison.reference(of, column)) is not None and figure.value is not None
    ]
    names = [cut(name, _LONGEST) for name in lines] + [training_words(of) for of, _ in references]
    right = 10 + _LEADER + _LETTER * max(map(len, names))
    frame = Frame(width=360 + right, height=320, right=right)
    epsilons = sorted({epsilon for points in lines.values() for epsilon, _ in points})
    values = [end for points in lines.values() for _, figure in points for end in _ends(figure)]
    y = Scale(padded(*_range([*values, *(figure.value or 0 for _, figure in references)])), frame.y)
    low, high = epsilons[0] / 1.15, epsilons[-1] * 1.15
    x = Scale((low, high), (frame.x[0] + 6, frame.x[1]), log=True, marks=tuple(epsilons))
    marks, labels = [], []
    for of, figure in references:
        at = y(figure.value or 0)
        marks.append(tag("line", x1=frame.x[0], x2=frame.x[1], y1=at, y2=at, class_="reference"))
        labels.append((at, training_words(of), "note"))
    for place, (method, points) in enumerate(lines.items()):
        aside = (place - (len(lines) - 1) / 2) * 5
        colour = comparison.colours[method]
        at_points = [(x(epsilon) + aside, y(figure.value or 0)) for epsilon, figure in points]
        marks.append(path(at_points, class_=f"line {colour}"))
        for (left, middle), (_, figure) in zip(at_points, points, strict=True):
            if figure.interval is not None:
                top, bottom = y(figure.interval.high), y(figure.interval.low)
                marks.append(tag("line", x1=left, x2=left, y1=top, y2=bottom, class_=f"whisker {colour}"))
            marks.append(tag("circle", cx=left, cy=middle, r=4, class_=f"dot {colour}"))
        labels.append((at_points[-1][1], cut(method, _LONGEST), f"label {colour}"))
    title = f"{comparison.metric.title} against epsilon" + (f", {column}" if column else "")
    said = "; ".join(
        f"{method}: " + ", ".join(f"{short(figure.value)} at epsilon {epsilon:g}" for epsilon, figure in points)
        for method, points in lines.items()
    )
    beside = "; ".join(f"{training_words(of)}: {short(figure.value)}" for of, figure in references)
    return picture(
        name,
        title,
        f"{said}. {f'{beside}. ' if beside else ''}The table has the same numbers.",
        frame,
        y_axis(frame, y, comparison.metric.title),
        x_axis(frame, x, "epsilon (logarithmic)"),
        *marks,
        *_apart(labels, frame.x[1] + 4),
    )


def _lines(comparison: Comparison, column: str) -> dict[str, list[tuple[float, Figure]]]:
    """Of each name the points with a number, by epsilon."""
    lines: dict[str, list[tuple[float, Figure]]] = {}
    for run in comparison.runs:
        figure = run.figure(comparison.metric.name, column, SYNTHETIC)
        if run.epsilon is not None and figure is not None and figure.value is not None:
            lines.setdefault(run.name, []).append((run.epsilon, figure))
    return lines


def _ends(figure: Figure) -> tuple[float, ...]:
    inner = (figure.value or 0,)
    return inner if figure.interval is None else (figure.interval.low, figure.interval.high, *inner)


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _apart(labels: Sequence[tuple[float, str, str]], left: float) -> list[Markup]:
    """Labels pushed apart where they would touch, around their mean height, each with a line from where it belongs."""
    heights: list[float] = []
    for wanted, _, _ in (ordered := sorted(labels)):
        heights.append(max(wanted, heights[-1] + _APART) if heights else wanted)
    up = sum(height - wanted for height, (wanted, _, _) in zip(heights, ordered, strict=True)) / len(ordered)
    marks = []
    for height, (wanted, words, kind) in zip(heights, ordered, strict=True):
        at = height - up
        marks.append(tag("line", x1=left, x2=left + _LEADER - 4, y1=wanted, y2=at, class_="leader"))
        marks.append(tag("text", words, x=left + _LEADER, y=at + 4, class_=kind))
    return marks
