"""Numbers against epsilon, and a dataset's account over time, as the report's kind of chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

from understudy.report.numbers import short
from understudy.report.svg import COLOURS, Frame, Scale, padded, path, svg_image, tag, x_axis, y_axis

_STEEP = 8.0
"""Where the largest value is so many times the smallest, the scale is logarithmic."""
_MANY = 2.0  # decades, beyond which only powers of ten are marked
_TICKS = 4
_LETTER = 13.0  # of one letter below another


@dataclass(frozen=True)
class Line:
    """A title, and (x, y) from left to right."""

    title: str
    points: Sequence[tuple[float, float]]

    @staticmethod
    def letter(place: int) -> str:
        """By which the line is told apart without its colour."""
        return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place % 26]


def curves(
    name: str, title: str, lines: Sequence[Line], *, at: float | None, even: float | None = None, width: float = 400
) -> Markup:
    """A line for each, against epsilon.

    Args:
        name: unique on the page.
        lines: with one point at least, together.
        at: the epsilon in the form, where a mark stands.
        even: a value worth a line of its own: where the signal is as large as the noise.
        width: of the chart.
    """
    xs = sorted({x for line in lines for x, _ in line.points})
    values = [y for line in lines for _, y in line.points] + ([] if even is None else [even])
    frame = Frame(width=width, height=0.15 * width + 170, top=14, left=52, right=26)
    x = Scale((xs[0] / 1.15, xs[-1] * 1.15), frame.x, log=True, marks=tuple(xs))
    y = _scale(values, frame)
    marks: list[Markup] = []
    if even is not None:
        marks.append(tag("line", x1=frame.x[0], x2=frame.x[1], y1=y(even), y2=y(even), class_="reference"))
        marks.append(tag("text", "signal = noise", x=frame.x[1], y=y(even) - 5, text_anchor="end", class_="note"))
    if at is not None:
        marks.append(tag("line", x1=x(at), x2=x(at), y1=frame.y[0], y2=frame.y[1], class_="reference"))
    said = []
    heights = _apart([y(line.points[-1][1]) for line in lines])
    for place, line in enumerate(lines):
        colour = f"c{place % COLOURS}"
        points = [(x(a), y(b)) for a, b in line.points]
        marks.append(path(points, class_=f"line {colour}"))
        marks += [
            tag("circle", cx=left, cy=top, r=4.5 if a == at else 2.5, class_=f"dot {colour}")
            for (left, top), (a, _) in zip(points, line.points, strict=True)
        ]
        if len(lines) > 1:
            right = points[-1][0] + 9
            marks.append(tag("text", line.letter(place), x=right, y=heights[place] + 4, class_=f"label {colour}"))
        elif at is not None and (here := dict(line.points).get(at)) is not None:
            marks.append(_value(short(here), x(at), y(here), frame, rises=line.points[-1][1] > line.points[0][1]))
        said.append(f"{line.title}: " + ", ".join(f"{short(b)} at epsilon {a:g}" for a, b in line.points))
    return svg_image(
        f"chart-{name}",
        f"{title} against epsilon",
        f"{'; '.join(said)}. The table has the same numbers.",
        frame,
        y_axis(frame, y, ""),
        x_axis(frame, x, "epsilon"),
        *marks,
    )


def _apart(heights: Sequence[float]) -> list[float]:
    """The same, pushed down where letters would touch."""
    found, last = list(heights), -_LETTER
    for place in sorted(range(len(found)), key=found.__getitem__):
        last = found[place] = max(found[place], last + _LETTER)
    return found


def _value(words: str, left: float, top: float, frame: Frame, *, rises: bool) -> Markup:
    """A number beside its point, where the line is not."""
    near_the_end = left > frame.x[1] - 60
    top += 0 if rises == near_the_end else 20
    return tag(
        "text",
        words,
        x=left + (-9 if near_the_end else 9),
        y=max(top - 8, frame.y[1] + 8),
        text_anchor="end" if near_the_end else "start",
        class_="label",
    )


def _scale(values: Sequence[float], frame: Frame) -> Scale:
    """From zero, or by the logarithm where the values lie far apart."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _STEEP:
        ends = low / 1.2, high * 1.2
        return Scale(ends, frame.y, log=True, words=_tick, marks=_log_ticks(*ends))
    return Scale(padded(min(low, 0), max(high, 0), 0.04) if high > low or low else (0, 1), frame.y, words=_tick)


def _tick(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:g}"


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2 and 5 times powers of ten; only the powers, or some of them, where there are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1,) if math.log10(high / low) > _MANY else (1, 2, 5)
    step = max(1, (last - first) // 6)
    found = [factor * 10.0**power for power in range(first, last + 1, step) for factor in factors]
    return tuple(float(f"{each:g}") for each in found if low <= each <= high)


@dataclass(frozen=True)
class Step:
    """What is true from a moment on: what is spent, and the cap (None where it is not known)."""

    at: datetime
    spent: float
    cap: float | None


def account_chart(name: str, title: str, steps: Sequence[Step], *, end: datetime, measure: str) -> Markup:
    """What is spent as an area of steps, the cap as a line above it.

    Args:
        name: unique on the page.
        steps: in order of time, one at least.
        end: the right edge.
        measure: what the numbers are: ``epsilon`` or ``posterior``.
    """
    frame = Frame(width=640, height=240, top=24, left=52)
    start = steps[0].at
    whole = max((end - start).total_seconds(), 60.0)
    x = Scale((0, whole), frame.x)
    highest = max([step.spent for step in steps] + [step.cap for step in steps if step.cap is not None])
    y = Scale((0, highest * 1.1 or 1), frame.y, words=_tick)
    offsets = [(step.at - start).total_seconds() for step in steps]
    spent = _stairs([(offset, step.spent) for offset, step in zip(offsets, steps, strict=True)], whole)
    caps = _stairs(
        [(offset, step.cap) for offset, step in zip(offsets, steps, strict=True) if step.cap is not None], whole
    )
    outline = [(x(a), y(b)) for a, b in spent]
    marks = [
        path([(x(0), y(0)), *outline, (x(whole), y(0))], class_="area synthetic"),
        path(outline, class_="line synthetic"),
    ]
    if caps:
        marks.append(path([(x(a), y(b)) for a, b in caps], class_="chance"))
        marks.append(tag("text", "cap", x=x(whole), y=y(caps[-1][1]) - 6, text_anchor="end", class_="note"))
    marks += [
        tag("circle", cx=x(at), cy=y(step.spent), r=3, class_="dot synthetic")
        for at, step in zip(offsets, steps, strict=True)
    ]
    ticks = [
        (x(whole * place / _TICKS), start + timedelta(seconds=whole * place / _TICKS)) for place in range(_TICKS + 1)
    ]
    form = "%d %b %Y" if whole > 3e7 else "%d %b" if whole > 4e5 else "%d %b %H:%M" if whole > 9e4 else "%H:%M"
    for place, (left, moment) in enumerate(ticks):
        anchor = "start" if place == 0 else "end" if place == _TICKS else "middle"
        words = moment.strftime(form).lstrip("0") if "%d" in form else moment.strftime(form)
        marks.append(tag("text", words, x=left, y=frame.y[0] + 17, text_anchor=anchor, class_="tick"))
    marks.append(tag("line", x1=frame.x[0], x2=frame.x[1], y1=frame.y[0], y2=frame.y[0], class_="axis"))
    said = "; ".join(f"{step.at:%Y-%m-%d %H:%M}: {short(step.spent)}" for step in steps)
    return svg_image(
        f"account-{name}",
        title,
        f"Spent {measure} after each entry: {said}. The table has the same numbers.",
        frame,
        y_axis(frame, y, measure),
        *marks,
    )


def _stairs(points: Sequence[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    """Level from each point to the next."""
    found: list[tuple[float, float]] = []
    for left, value in points:
        if found:
            found.append((left, found[-1][1]))
        found.append((left, value))
    return [*found, (end, found[-1][1])] if found else []
