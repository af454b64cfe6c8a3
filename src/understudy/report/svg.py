"""SVG elements as escaped markup; scales, axes and labels of charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

COLOURS = 8
"""Number of colours in the style sheet."""
_LEAST = 1e-100
"""Values that are closer than this count as equal, because there are no round values between them."""
_STEEP = 8.0
"""From this ratio of the largest to the smallest value on, the scale is logarithmic."""
_MANY = 2.0  # with more decades, only powers of ten are marked


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic scale from ``domain`` to ``places``, with ticks at ``marks`` or at round values."""

    domain: tuple[float, float]
    places: tuple[float, float]
    log: bool = False
    words: Callable[[float], str] = "{:g}".format
    marks: tuple[float, ...] = ()

    def __call__(self, value: float) -> float:
        low, high = self.domain
        part = (value - low) / ((high - low) or 1)
        if self.log:
            part = math.log(value / low) / math.log(high / low)
        return self.places[0] + part * (self.places[1] - self.places[0])

    def ticks(self) -> list[tuple[float, str]]:
        return [(value, self.words(value)) for value in self.marks or ticks(*self.domain)]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about as many round values in [low, high] as ``about`` says, to mark an axis: multiples of 1, 2 or 5 times
    a power of ten.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> ticks(3, 47)
    [10.0, 20.0, 30.0, 40.0]
    """
    if not high - low > _LEAST:
        return []
    power = 10.0 ** math.floor(math.log10((high - low) / about))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= (high - low) / about * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """Return a slightly wider range, which is never empty."""
    if high - low <= max(_LEAST, 1e-12 * max(abs(low), abs(high))):
        half = max(0.5, abs(low) / 2)
        return low - half, low + half
    return low - share * (high - low), high + share * (high - low)


def from_zero(values: Sequence[float], places: tuple[float, float]) -> Scale:
    """Return a scale from zero, or a logarithmic one if the values differ widely."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _STEEP:
        ends = low / 1.2, high * 1.2
        return Scale(ends, places, log=True, words=counted, marks=_log_ticks(*ends))
    return Scale(padded(min(low, 0), max(high, 0), 0.04) if high > low or low else (0, 1), places, words=counted)


def counted(value: float) -> str:
    """Format a tick's number, with separators for thousands."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:g}"


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return 1, 2 and 5 times powers of ten; only (some of) the powers if there are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1,) if math.log10(high / low) > _MANY else (1, 2, 5)
    step = max(1, (last - first) // 6)
    found = [factor * 10.0**power for power in range(first, last + 1, step) for factor in factors]
    return tuple(float(f"{each:g}") for each in found if low <= each <= high)


def apart(heights: Sequence[float], gap: float, least: float = -math.inf) -> list[float]:
    """Return the heights, none below ``least``, moved apart if they are closer than ``gap``."""
    found, last = list(heights), least - gap
    for place in sorted(range(len(found)), key=found.__getitem__):
        last = found[place] = max(found[place], last + gap)
    return found


def tag(element: str, *children: str, **attributes: str | float) -> Markup:
    """Return one element. ``class_`` becomes ``class``, ``text_anchor`` ``text-anchor``; numbers have two decimals.

    >>> print(tag("text", "a < b", x=1.005, text_anchor="end"))
    <text x="1" text-anchor="end">a &lt; b</text>
    """
    written = "".join(f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"' for name, value in attributes.items())
    return Markup(f"<{element}{written}>{Markup('').join(map(escape, children))}</{element}>")


def _value(value: str | float) -> str:
    return str(escape(value)) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Frame:
    """The positions of a chart's axes, in view box coordinates (about a pixel on a phone)."""

    width: float = 400
    height: float = 240
    left: float = 48
    right: float = 16
    top: float = 28
    bottom: float = 42

    @property
    def x(self) -> tuple[float, float]:
        return self.left, self.width - self.right

    @property
    def y(self) -> tuple[float, float]:
        return self.height - self.bottom, self.top


def svg_image(name: str, title: str, description: str, frame: Frame, *children: str) -> Markup:
    """Return the chart, which screen readers treat as an image with a title and a description."""
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


def x_axis(frame: Frame, scale: Scale, title: str, *, lines: bool = False, inward: bool = False) -> Markup:
    """Draw ticks along the bottom, and the title below them.

    Args:
        lines: whether to draw faint lines upwards from the ticks.
        inward: whether the labels of the first and last tick stay within the axis.
    """
    bottom, top = frame.y
    anchors = {frame.x[0]: "start", frame.x[1]: "end"} if inward else {}
    parts = [tag("line", x1=frame.x[0], x2=frame.x[1], y1=bottom, y2=bottom, class_="axis")]
    for value, words in scale.ticks():
        at = scale(value)
        if lines:
            parts.append(tag("line", x1=at, x2=at, y1=bottom, y2=top, class_="grid"))
        parts.append(tag("text", words, x=at, y=bottom + 17, text_anchor=anchors.get(at, "middle"), class_="tick"))
    if title:
        middle = (frame.x[0] + frame.x[1]) / 2
        parts.append(tag("text", title, x=middle, y=bottom + 36, text_anchor="middle", class_="axis-title"))
    return tag("g", *parts, aria_hidden="true")


def y_axis(frame: Frame, scale: Scale, title: str) -> Markup:
    """Draw ticks on the left with faint lines, and the title above."""
    parts = [tag("text", title, x=0, y=frame.top - 14, class_="axis-title")]
    for value, words in scale.ticks():
        at = scale(value)
        parts.append(tag("line", x1=frame.x[0], x2=frame.x[1], y1=at, y2=at, class_="grid"))
        parts.append(tag("text", words, x=frame.left - 7, y=at + 4, text_anchor="end", class_="tick"))
    return tag("g", *parts, aria_hidden="true")


def path(points: list[tuple[float, float]], **attributes: str | float) -> Markup:
    """Draw a line through the points."""
    steps = " ".join(f"{'M' if i == 0 else 'L'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return tag("path", d=steps, **attributes)
