"""Named values on one line."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from understudy.report.charts.scales import Scale
from understudy.report.charts.svg import Frame, picture, tag, x_axis
from understudy.report.numbers import short


def value_line(name: str, title: str, values: Mapping[str, tuple[float, str]]) -> Markup:
    """A row a value, from 0 to it.

    Args:
        name: unique on the page.
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
    return picture(name, title, f"{said}.", frame, x_axis(frame, x, title, lines=True), *marks)
