"""Bars that stand in table cells, so that the table is their text."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from understudy.report.charts.svg import tag

_THICK = 8


def bars(values: Mapping[str, float], most: float) -> Markup:
    """A bar for each value, one below the other, coloured by its key; hidden from screen readers, which read the cells.

    Args:
        values: in [0, ``most``].
        most: as long as the cell.
    """
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
