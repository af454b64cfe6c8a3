"""SVG elements as escaped markup, and the frame that every chart stands in."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape

from understudy.report.charts.scales import Scale


def tag(element: str, *children: str, **attributes: str | float) -> Markup:
    """One element. ``class_`` is written ``class``, ``text_anchor`` ``text-anchor``; numbers to two decimals.

    >>> print(tag("text", "a < b", x=1.005, text_anchor="end"))
    <text x="1" text-anchor="end">a &lt; b</text>
    """
    written = "".join(f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"' for name, value in attributes.items())
    return Markup(f"<{element}{written}>{Markup('').join(map(escape, children))}</{element}>")


def _value(value: str | float) -> str:
    return str(escape(value)) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Frame:
    """Where a chart's axes stand, in units of its view box (about a pixel on a phone)."""

    width: float = 400
    height: float = 240
    left: float = 44
    right: float = 14
    top: float = 10
    bottom: float = 40

    @property
    def x(self) -> tuple[float, float]:
        return self.left, self.width - self.right

    @property
    def y(self) -> tuple[float, float]:
        return self.height - self.bottom, self.top


def picture(name: str, title: str, description: str, frame: Frame, *children: str) -> Markup:
    """The chart: an image to those who cannot see it, with its title and what it shows.

    Args:
        name: unique on the page.
    """
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *children,
        class_="chart",
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def axes(frame: Frame, x: Scale, y: Scale, x_title: str, y_title: str) -> Markup:
    """Ticks, faint lines at the ticks of y, and the titles of both axes."""
    bottom, _ = frame.y
    parts = [tag("line", x1=frame.x[0], x2=frame.x[1], y1=bottom, y2=bottom, class_="axis")]
    for value, words in y.ticks():
        at = y(value)
        parts.append(tag("line", x1=frame.x[0], x2=frame.x[1], y1=at, y2=at, class_="grid"))
        parts.append(tag("text", words, x=frame.left - 6, y=at + 4, text_anchor="end", class_="tick"))
    for value, words in x.ticks():
        at = x(value)
        parts.append(tag("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="axis"))
        parts.append(tag("text", words, x=at, y=bottom + 16, text_anchor="middle", class_="tick"))
    middle = (frame.x[0] + frame.x[1]) / 2
    parts.append(tag("text", x_title, x=middle, y=frame.height - 4, text_anchor="middle", class_="axis-title"))
    if y_title:
        parts.append(tag("text", y_title, x=0, y=frame.top - 2, class_="axis-title"))
    return tag("g", *parts, aria_hidden="true")


def path(points: list[tuple[float, float]], **attributes: str | float) -> Markup:
    """A line through the points."""
    steps = " ".join(f"{'M' if i == 0 else 'L'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return tag("path", d=steps, **attributes)
