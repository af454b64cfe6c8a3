"""The trade-off curve: what the promise lets an attacker reach, beside blind guessing."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from understudy.report.charts.scales import Scale
from understudy.report.charts.svg import Frame, path, picture, tag, x_axis, y_axis
from understudy.report.numbers import percent
from understudy.statement.rounding import in_a_hundred


def tradeoff_chart(points: Sequence[tuple[float, float]], *, at: tuple[float, float], unit: str) -> Markup:
    """False positives to the right, true positives upwards.

    Args:
        points: of the curve, from left to right.
        at: the point that the statement names.
        unit: what is guessed about, such as ``record``.
    """
    frame = Frame(height=350)
    x = Scale((0, 1), frame.x, words=percent)
    y = Scale((0, 1), frame.y, words=percent)
    curve = [(x(a), y(b)) for a, b in points]
    diagonal = [(x(0), y(0)), (x(1), y(1))]
    left, right, most = x(at[0]), y(at[1]), f"{in_a_hundred(at[1])} %"
    return picture(
        "tradeoff",
        "What an attacker can reach",
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
