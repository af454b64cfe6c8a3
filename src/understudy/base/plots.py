"""Draw charts for notebooks with matplotlib, which is loaded when a chart is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from understudy.base.lazy import library

_HEIGHT, _WIDTH, _LEAST = 0.45, 7.0, 1.6  # in inches: of a group of bars, of the chart, of the smallest chart


def bars(groups: Sequence[str], series: Mapping[str, Sequence[float | None]], *, title: str, axes: Any = None) -> Any:
    """Draw horizontal bars, one per group and series, the first group on top.

    Args:
        series: the values by the name of the series, one per group; None leaves a gap.
        axes: a ``matplotlib.axes.Axes`` to draw on. Default: those of a new figure.

    Returns:
        The axes.

    Raises ConfigError if matplotlib is not installed.
    """
    if axes is None:
        height = max(_LEAST, _HEIGHT * len(groups) * len(series) + 1)
        axes = library("matplotlib.pyplot").subplots(figsize=(_WIDTH, height), layout="constrained")[1]
    thick = 0.8 / max(len(series), 1)
    for place, (name, values) in enumerate(series.items()):
        drawn = [(row, value) for row, value in enumerate(values) if value is not None]
        at = [row + (place - (len(series) - 1) / 2) * thick for row, _ in drawn]
        axes.bar_label(axes.barh(at, [value for _, value in drawn], thick, label=name), fmt="%.3g", padding=3)
    axes.set_yticks(range(len(groups)), groups)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return axes
