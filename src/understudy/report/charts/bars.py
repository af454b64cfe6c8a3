"""Bars that stand in table cells, so that the table is their text."""

from __future__ import annotations

from markupsafe import Markup

from understudy.report.charts.svg import tag


def bar(share: float, kind: str = "") -> Markup:
    """A share of a whole as a bar; hidden from screen readers, which read the number beside it."""
    return tag(
        "svg",
        tag("rect", width=100, height=10, class_="back"),
        tag("rect", width=100 * share, height=10, class_=f"front {kind}".strip()),
        class_="rail",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
