"""How long texts are: one outline a table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from markupsafe import Markup

from understudy.metrics.picture import Profile
from understudy.report.charts.scales import Scale
from understudy.report.charts.svg import Frame, path, picture, x_axis, y_axis
from understudy.report.grids import table_words
from understudy.report.numbers import percent


def lengths_chart(profiles: Mapping[str, Profile]) -> Markup:
    """Shares of each table's texts by their number of words.

    Args:
        profiles: by table name; one with a text at least.
    """
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
    return picture(
        "lengths",
        "How long the texts are",
        f"Share of the texts by their number of words, of {' and '.join(map(table_words, shown))} texts. "
        "The table below has the numbers.",
        frame,
        y_axis(frame, y, "share of the texts"),
        x_axis(frame, x, "words"),
        *outlines,
    )
