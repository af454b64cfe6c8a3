"""The charts of the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup

from understudy.evaluate.metrics.overview import Point, Profile
from understudy.evaluate.metrics.value import REAL, REAL_ALL, SYNTHETIC, MetricValue
from understudy.privacy.exact import in_a_hundred
from understudy.report.grids import FLOORS, Grid, table_words
from understudy.report.numbers import cut, percent, short, span
from understudy.report.svg import COLOURS, Frame, Scale, padded, path, svg_image, tag, x_axis, y_axis

FEW = 500
"""Up to this many texts, the map has larger dots."""
_THICK = 8  # of a bar
_ROW, _GAP = 22, 34
_LONGEST_ROW = 20  # most letters of a row's title
_SIDE, _EDGE, _LEAST = 600.0, 12.0, 0.4  # of the map: width, margin, least height as a share of the width


def bars(values: Mapping[str, float], most: float) -> Markup:
    """Draw a column of bars, one per value, in its key's colour; hidden from screen readers, which read the cells."""
    height = (_THICK + 2) * len(values) - 2
    return tag(
        "svg",
        *(
            tag("rect", y=(_THICK + 2) * place, width=100 * value / most, height=_THICK, class_=f"front {kind}")
            for place, (kind, value) in enumerate(values.items())
        ),
        class_=f"rail rows-{len(values)}",
        viewBox=f"0 0 100 {height}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def tradeoff_chart(points: Sequence[tuple[float, float]], *, at: tuple[float, float], unit: str) -> Markup:
    """Draw true positives against false positives; ``at`` is the point that the statement names."""
    frame = Frame(height=350)
    x = Scale((0, 1), frame.x, words=percent)
    y = Scale((0, 1), frame.y, words=percent)
    curve = [(x(a), y(b)) for a, b in points]
    diagonal = [(x(0), y(0)), (x(1), y(1))]
    left, right, most = x(at[0]), y(at[1]), f"{in_a_hundred(at[1])} %"
    return svg_image(
        "tradeoff",
        "The best that an attacker can do",
        f"Largest rate of true positives against the rate of false positives, for any test of whether one {unit} was "
        f"in the data. At {percent(at[0])} false positives at most {most} true positives. Blind guessing is "
        "the diagonal.",
        frame,
        y_axis(frame, y, f"right about {unit}s that were in the data"),
        x_axis(frame, x, f"wrong about {unit}s that were not"),
        path([*curve, *reversed(diagonal)], class_="gain"),
        path(diagonal, class_="chance"),
        path(curve, class_="line synthetic"),
        tag("text", "blind guessing", x=x(0.6) + 6, y=y(0.6) + 16, class_="note"),
        tag("circle", cx=left, cy=right, r=4.5, class_="dot synthetic"),
        tag("text", f"{percent(at[0])} wrong, {most} right", x=left + 10, y=right + 4, class_="label"),
    )


def dots_chart(name: str, grid: Grid) -> Markup:
    """Draw a block per column of the grid, with a dot per row, and lines through the ceiling and the floor.

    Args:
        grid: of one metric, with at least one number.
    """
    (metric,) = grid.metrics
    ends = [end for row in grid.rows for measured in row.cells for end in _ends(measured)]
    height = _GAP + _ROW * len(grid.rows)
    frame = Frame(left=136, top=4, height=8 + height * len(grid.columns) + 46)
    x = Scale(padded(min(ends), max(ends)), frame.x, words="{:g}".format)
    marks = []
    for place, column in enumerate(grid.columns):
        top = frame.top + height * place
        first, last = top + _GAP - 8, top + height - _ROW + 8
        marks.append(tag("text", column, x=0, y=top + 16, class_="label"))
        for row in grid.rows:
            measured = row.cells[place]
            if measured is not None and measured.of in (REAL_ALL, *FLOORS) and measured.value is not None:
                here = x(measured.value)
                marks.append(tag("line", x1=here, x2=here, y1=first, y2=last, class_="reference"))
        for number, row in enumerate(grid.rows):
            middle, title = top + _GAP + _ROW * number, cut(row.title, _LONGEST_ROW)
            marks.append(tag("text", title, x=frame.left - 12, y=middle + 4, text_anchor="end", class_="tick"))
            marks.append(_mark(row.cells[place], x, middle))
    said = "; ".join(
        _said(row.title, column, row.cells[place]) for row in grid.rows for place, column in enumerate(grid.columns)
    )
    described = f"{said}. The table has the same numbers."
    return svg_image(name, metric.title, described, frame, x_axis(frame, x, metric.title, lines=True), *marks)


def _ends(measured: MetricValue | None) -> tuple[float, ...]:
    if measured is None or measured.value is None:
        return ()
    interval = measured.interval
    return (measured.value,) if interval is None else (interval.low, interval.high, measured.value)


def _mark(measured: MetricValue | None, x: Scale, middle: float) -> Markup:
    if measured is None or measured.value is None:
        return Markup("")
    kind = "floor" if measured.of in FLOORS else "real" if measured.of in (REAL, REAL_ALL) else "synthetic"
    dot = tag("circle", cx=x(measured.value), cy=middle, r=4.5, class_=f"dot {kind}")
    if measured.interval is None:
        return dot
    low, high = x(measured.interval.low), x(measured.interval.high)
    return tag("line", x1=low, x2=high, y1=middle, y2=middle, class_=f"whisker {kind}") + dot


def _said(row: str, column: str, measured: MetricValue | None) -> str:
    if measured is None or measured.value is None:
        return f"{row}, {column}: none"
    between = f" ({span(measured.interval)})" if measured.interval else ""
    return f"{row}, {column}: {short(measured.value)}{between}"


def lengths_chart(profiles: Mapping[str, Profile]) -> Markup:
    """Draw the shares of each table's texts by their number of words."""
    shown = {of: profile for of, profile in profiles.items() if profile.texts}
    shares = {of: [count / profile.texts for count in profile.words.counts] for of, profile in shown.items()}
    frame = Frame(height=270)
    edges = [edge for profile in shown.values() for edge in profile.words.edges]
    x = Scale((min(edges), max(edges)), frame.x, words="{:,.0f}".format)
    y = Scale((0, 1.08 * max(map(max, shares.values()))), frame.y, words=percent)
    outlines = []
    for of, profile in shown.items():
        bottom = (x(profile.words.edges[0]), y(0))
        steps = [bottom]
        for (left, right), share in zip(pairwise(profile.words.edges), shares[of], strict=True):
            steps += [(x(left), y(share)), (x(right), y(share))]
        steps.append((x(profile.words.edges[-1]), y(0)))
        outlines.append(path(steps, class_=f"area {of}"))
        outlines.append(path(steps, class_=f"line {of}"))
    return svg_image(
        "lengths",
        "How long the texts are",
        f"Share of the texts by their number of words, of {' and '.join(map(table_words, shown))} texts. "
        "The table below has the numbers.",
        frame,
        y_axis(frame, y, "share of the texts"),
        x_axis(frame, x, "words"),
        *outlines,
    )


def number_line(name: str, title: str, values: Mapping[str, tuple[float, str]]) -> Markup:
    """Draw a row per value, with a line from 0 to it.

    Args:
        values: number and colour by name.
    """
    row = 30
    frame = Frame(left=136, right=44, top=4, height=row * len(values) + 46)
    x = Scale((0, 1.05 * max((value for value, _ in values.values()), default=1) or 1), frame.x)
    marks = []
    for place, (words, (value, kind)) in enumerate(values.items()):
        middle = frame.top + row * place + row / 2
        marks.append(tag("text", words, x=frame.left - 12, y=middle + 4, text_anchor="end", class_="tick"))
        marks.append(tag("line", x1=x(0), x2=x(value), y1=middle, y2=middle, class_=f"stem {kind}"))
        marks.append(tag("circle", cx=x(value), cy=middle, r=5, class_=f"dot {kind}"))
        marks.append(tag("text", short(value), x=x(value) + 10, y=middle + 4, class_="label"))
    said = "; ".join(f"{words}: {short(value)}" for words, (value, _) in values.items())
    return svg_image(name, title, f"{said}.", frame, x_axis(frame, x, title, lines=True), *marks)


def colours_of(points: Sequence[Point]) -> Mapping[str, str]:
    """Return a colour class for each label; the same for all if there are more labels than colours."""
    labels = sorted({point.label for point in points})
    return {label: f"c{place}" if len(labels) <= COLOURS else "c0" for place, label in enumerate(labels)}


def map_chart(points: Sequence[Point], description: str) -> Markup:
    """Draw the dots in the order of ``points``, real ones below synthetic ones; the page's script shows their texts.

    Args:
        points: at least one. x and y have the same scale, which decides the height of the map.
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
    return svg_image("map-chart", "A map of the texts", description, frame, *dots, ring)
