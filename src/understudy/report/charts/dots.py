"""Figures as dots with their intervals, one row each, beside the ceiling and the floor."""

from __future__ import annotations

from markupsafe import Markup

from understudy.metrics.value import REAL, Figure
from understudy.report.charts.scales import Scale, padded
from understudy.report.charts.svg import Frame, picture, tag, x_axis
from understudy.report.grids import Grid
from understudy.report.numbers import cut, short, span

ROW, GAP = 22, 34
_LONGEST = 20
"""Letters of a row's title that there is room for."""
CEILING, FLOORS = "real (all)", ("zero-shot", "untuned")


def dots_chart(name: str, grid: Grid) -> Markup:
    """A block a column of the grid; in it a dot a row, and a line through the ceiling and the floor.

    Args:
        name: unique on the page.
        grid: of one metric, with a number in it at least.
    """
    (metric,) = grid.metrics
    figures = [figure for row in grid.rows for figure in row.cells if figure is not None and figure.value is not None]
    ends = [end for figure in figures for end in _ends(figure)]
    height = 8 + (GAP + ROW * len(grid.rows)) * len(grid.columns) + 46
    frame = Frame(left=136, top=4, height=height)
    x = Scale(padded(min(ends), max(ends)), frame.x, words="{:g}".format)
    marks, at = [], frame.top
    for place, column in enumerate(grid.columns):
        first, last = at + GAP - 8, at + GAP + ROW * (len(grid.rows) - 1) + 8
        marks.append(tag("text", column, x=0, y=at + 16, class_="label"))
        for row in grid.rows:
            figure = row.cells[place]
            if figure is not None and figure.of in (CEILING, *FLOORS) and figure.value is not None:
                here = x(figure.value)
                marks.append(tag("line", x1=here, x2=here, y1=first, y2=last, class_="reference"))
        for number, row in enumerate(grid.rows):
            middle = at + GAP + ROW * number
            marks.append(
                tag("text", cut(row.title, _LONGEST), x=frame.left - 12, y=middle + 4, text_anchor="end", class_="tick")
            )
            marks.append(_mark(row.cells[place], x, middle))
        at += GAP + ROW * len(grid.rows)
    said = "; ".join(
        _said(row.title, column, row.cells[place]) for row in grid.rows for place, column in enumerate(grid.columns)
    )
    return picture(
        name,
        metric.title,
        f"{said}. The table has the same numbers.",
        frame,
        x_axis(frame, x, metric.title, lines=True),
        *marks,
    )


def _ends(figure: Figure) -> tuple[float, ...]:
    assert figure.value is not None
    inner = (figure.value,)
    return inner if figure.interval is None else (figure.interval.low, figure.interval.high, *inner)


def _mark(figure: Figure | None, x: Scale, middle: float) -> Markup:
    if figure is None or figure.value is None:
        return Markup("")
    kind = "floor" if figure.of in FLOORS else "real" if figure.of in (REAL, CEILING) else "synthetic"
    parts = []
    if figure.interval is not None:
        low, high = x(figure.interval.low), x(figure.interval.high)
        parts.append(tag("line", x1=low, x2=high, y1=middle, y2=middle, class_=f"whisker {kind}"))
    parts.append(tag("circle", cx=x(figure.value), cy=middle, r=4.5, class_=f"dot {kind}"))
    return Markup("").join(parts)


def _said(row: str, column: str, figure: Figure | None) -> str:
    if figure is None or figure.value is None:
        return f"{row}, {column}: none"
    between = f" ({span(figure.interval)})" if figure.interval else ""
    return f"{row}, {column}: {short(figure.value)}{between}"
