"""From what a page shows to what its templates ask for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from understudy.metrics.picture import Picture
from understudy.metrics.value import HOLDOUT, Figure
from understudy.privacy.accountant import Composition
from understudy.privacy.exact import as_typed
from understudy.privacy.secrets.budget import SecretBudget
from understudy.report.audited import Audited
from understudy.report.charts.bars import bars
from understudy.report.charts.curve import tradeoff_chart
from understudy.report.charts.dots import FLOORS, dots_chart
from understudy.report.charts.histogram import lengths_chart
from understudy.report.charts.line import value_line
from understudy.report.charts.scatter import COLOURS, colours_of, map_chart
from understudy.report.contents import Charged, Contents
from understudy.report.effort import MOST_SECONDS, seconds_of_losses
from understudy.report.grids import BETTER, SIGNS, Grid, by_table, by_training, first_figures, table_words, texts_each
from understudy.report.looks import (
    CHARGED,
    charged_length_rows,
    label_rows,
    largest,
    length_rows,
    topic_rows,
    without_shares,
)
from understudy.report.numbers import cut, power_of_ten
from understudy.report.recipe import recipe
from understudy.report.samples import as_record, samples_of
from understudy.report.spending import spending
from understudy.report.tradeoff import tradeoff
from understudy.statement import FALSE_ALARMS, Statement
from understudy.statement.rounding import in_a_hundred, round_up

TITLES = {
    "promise": "What is promised",
    "budget": "Where the budget went",
    "corpus": "What the texts look like",
    "map": "A map of the texts",
    "samples": "Some of the texts",
    "utility": "How useful they are",
    "fidelity": "How near they come to the real texts",
    "leakage": "What leaks",
    "audit": "An attack on the run",
    "inside": "What stays inside",
    "reproduce": "How to make them again",
    "limits": "What is not covered",
}
MAP_TEXT = 400
"""Most characters of a text that the map tells."""
MOST_ROWS = 400
"""Labels, topics or lengths in one table of the page."""
_EXPONENT = 700.0
FEW = 100
"""Below so many texts a table the page says that distances mean little."""


_FAMILIES = ("utility", "fidelity", "leakage")
_KEY = "↓ lower is better, ↑ higher is better, ≈ best if like the real texts"


def view(contents: Contents, *, seed: int) -> dict[str, Any]:
    """The values of ``report.html``."""
    statement, picture = contents.statement, contents.picture
    measured = {family: first_figures(_of_family(contents.figures, family)) for family in _FAMILIES}
    paid = {family: first_figures(_of_family(_paid_figures(contents), family)) for family in _FAMILIES}
    families = {family: figures for family, (figures, _) in measured.items()}
    paid_for = {family: _paid(figures, family) for family, (figures, _) in paid.items()}
    looks = None if picture is None else _looks(picture, contents.charged)
    left_out = {family: (measured[family][1] + paid[family][1], "figures") for family in _FAMILIES}
    there = {
        "corpus": picture is not None,
        "map": picture is not None and bool(picture.points or contents.no_map),
        "audit": contents.audit is not None,
        "inside": not contents.internal,
        **{family: bool(families[family] or paid_for[family]) for family in families},
    }
    titles = TITLES if contents.internal else {**TITLES, "fidelity": "How varied they are"}
    return {
        "contents": contents,
        "facts": _facts(contents),
        "sections": [(anchor, title) for anchor, title in titles.items() if there.get(anchor, True)],
        "unit": statement.unit.kind,
        "charts": {"tradeoff": _tradeoff(statement), **_picture_charts(picture), **_audit_chart(contents.audit)},
        "bars": bars,
        "largest": largest,
        "better": BETTER,
        "signs": SIGNS,
        "spending": spending(statement),
        "looks": looks,
        "left_out": {**left_out, "corpus": (looks["left_out"] if looks else 0, "labels, topics or lengths")},
        "map": None if picture is None else _map(picture),
        "samples": samples_of(contents.texts, seed=seed),
        "as_record": as_record,
        "ceiling": any(figure.of == "real (all)" for figure in families["utility"]),
        "floor": any(figure.of in FLOORS for figure in families["utility"]),
        "utility": [(grid, _dots(grid, number)) for number, grid in enumerate(by_training(families["utility"]))],
        "fidelity": _grid(
            families["fidelity"], f"{'Beside the real texts' if contents.internal else 'By themselves'}. {_KEY}"
        ),
        "few": _few(contents, families["fidelity"]),
        "leakage": _grid(families["leakage"], f"{_beside(families['leakage'])}. {_KEY}"),
        "paid_for": paid_for,
        "charged_epsilon": as_typed(contents.charged.budget.epsilon) if contents.charged else "",
        "together": _together(contents),
        "charged_table": [CHARGED],
        "settings": _settings(contents.settings),
        "words": table_words,
        "recipe": "" if contents.release is None else recipe(contents.release, contents.texts),
        "writers": sorted({text.model for text in contents.texts if text.model}),
        "audit": contents.audit,
        **_elsewhere(statement),
    }


def _facts(contents: Contents) -> list[tuple[str, str]]:
    statement, budget = contents.statement, contents.statement.budget
    texts = ("texts", f"{len(contents.texts):,}")
    if not statement.private:
        return [("promised", "nothing"), texts]
    if isinstance(budget, SecretBudget):
        promised = {"prior": budget.prior, "posterior": budget.posterior}
    else:
        promised = {"epsilon": budget.epsilon, "delta": budget.delta}
    typed = [(name, power_of_ten(as_typed(value))) for name, value in promised.items()]
    if contents.charged is not None and contents.charged.private:
        typed[0] = ("epsilon", f"{typed[0][1]} + {as_typed(contents.charged.budget.epsilon)} for figures")
    return [*typed, ("protects", f"one {statement.unit.kind}"), texts]


def _tradeoff(statement: Statement) -> str:
    unit = statement.unit.kind
    curve = tradeoff(statement)
    return "" if curve is None else tradeoff_chart(curve, at=(FALSE_ALARMS, statement.power), unit=unit)


def _together(contents: Contents) -> dict[str, str] | None:
    """What the texts and the figures that were paid for promise together; None without such figures."""
    statement, charged = contents.statement, contents.charged
    if charged is None or not contents.promises or isinstance(statement.budget, SecretBudget):
        return None
    events = tuple(charge.event for charge in (*statement.charges, *charged.charges))
    # whatever the figures say, it is e^epsilon likelier at most
    pure = math.exp(min(float(charged.budget.epsilon), _EXPONENT)) * statement.power
    composed = 1.0 if seconds_of_losses(events) > MOST_SECONDS else Composition(events).power(FALSE_ALARMS)
    return {
        "epsilon": as_typed(statement.budget.epsilon + charged.budget.epsilon),
        "power": in_a_hundred(min(pure, composed)),
    }


def _elsewhere(statement: Statement) -> dict[str, Any]:
    """The promise at other deltas or priors."""
    if statement.posterior_at:
        rows = [(f"{prior:g}", round_up(posterior)) for prior, posterior in statement.posterior_at.items()]
        return {"at_rows": rows, "at_heads": ("prior", "highest posterior"), "at_caption": "For other guessers"}
    rows = [(f"{delta:g}", round_up(epsilon)) for delta, epsilon in statement.epsilon_at.items()]
    return {"at_rows": rows, "at_heads": ("delta", "epsilon"), "at_caption": "The same noise at other deltas"}


def _picture_charts(picture: Picture | None) -> dict[str, str]:
    if picture is None:
        return {}
    some = any(profile.texts for profile in picture.profiles.values())
    charts: dict[str, str] = {"lengths": lengths_chart(picture.profiles) if some else ""}
    if picture.points:
        tables = Counter(point.of for point in picture.points)
        counted = " and ".join(f"{count} {table_words(of)}" for of, count in tables.items())
        charts["map"] = map_chart(picture.points, f"{counted} texts by what they say. The table below counts them.")
    return charts


def _looks(picture: Picture, charged: Charged | None) -> dict[str, Any]:
    paid = charged.figures if charged else ()
    every = (label_rows(picture, paid), topic_rows(picture), charged_length_rows(paid))
    labels, topics, lengths = (rows[:MOST_ROWS] for rows in every)
    return {
        "label_tables": list(labels[0].shares) if labels else [],
        "left_out": sum(max(0, len(rows) - MOST_ROWS) for rows in every),
        "charged_lengths": lengths,
        "picture": picture,
        "tables": list(picture.profiles),
        "lengths": length_rows(picture.profiles),
        "labels": labels,
        "topics": topics,
    }


def _map(picture: Picture) -> dict[str, Any]:
    colours = colours_of(picture.points)
    tables = list(dict.fromkeys(point.of for point in picture.points))
    counted = Counter((point.label, point.of) for point in picture.points)
    return {
        "points": picture.points,
        "tables": tables,
        "colours": colours,
        "coloured": 1 < len(colours) <= COLOURS,
        "data": [{"of": p.of, "label": p.label, "text": cut(p.text, MAP_TEXT)} for p in picture.points],
        "counts": [(label, [counted[label, of] for of in tables]) for label in colours],
    }


def _beside(figures: Sequence[Figure]) -> str:
    held_out = any(figure.of == HOLDOUT for figure in figures)
    return (
        "Beside real texts that were never used" if held_out else "Without held-out texts to compare with (--holdout)"
    )


def _grid(figures: Sequence[Figure], title: str) -> Grid | None:
    return by_table(figures, title) if figures else None


def _few(contents: Contents, fidelity: Sequence[Figure]) -> int | None:
    """How many texts a table were compared, where they are so few that it must be said."""
    if not (contents.internal and fidelity):
        return None
    counts = [texts for figure in fidelity if (texts := texts_each(figure)) is not None]
    if contents.picture is not None:
        counts += [profile.texts for profile in contents.picture.profiles.values()]
    fewest = min(counts, default=FEW)
    return fewest if fewest < FEW else None


def _of_family(figures: Sequence[Figure], family: str) -> list[Figure]:
    return [figure for figure in without_shares(figures) if figure.metric.family == family]


def _paid_figures(contents: Contents) -> Sequence[Figure]:
    return contents.charged.figures if contents.charged else ()


def _paid(figures: Sequence[Figure], family: str) -> list[Grid]:
    if family == "utility":
        return list(by_training(figures))
    return [by_table(figures, "Released with noise")] if figures else []


def _dots(grid: Grid, number: int) -> str | None:
    """The chart of a grid with at least two numbers to compare."""
    values = [cell for row in grid.rows for cell in row.cells if cell is not None and cell.value is not None]
    return dots_chart(f"utility-{number}", grid) if len(values) > 1 else None


def _audit_chart(audit: Audited | None) -> Mapping[str, str]:
    if audit is None:
        return {}
    values = {
        "promised": (audit.epsilon, "synthetic"),
        "found at least": (audit.bound, "real"),
        "could be found": (audit.largest_bound, "holdout"),
    }
    return {"audit": value_line("audit-line", "epsilon", values)}


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How it was measured; of files their names, not where they lay."""
    found = []
    for name, value in settings.items():
        words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if value not in (None, [], (), ""):
            found.append((name.replace("_", " "), Path(words).name if Path(words).is_absolute() else words))
    return found
