"""From what a page shows to what its templates ask for."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.evaluate.metrics.overview import Overview
from understudy.evaluate.metrics.value import HOLDOUT, MAJORITY, REAL_ALL, MetricValue
from understudy.evaluate.synthetic import SyntheticText
from understudy.privacy.accountant import Composition
from understudy.privacy.exact import as_typed, in_a_hundred, round_up
from understudy.privacy.guarantee import SecretBudget
from understudy.release.statement import FALSE_ALARMS, Statement
from understudy.report.budget import MOST_SECONDS, seconds_of_losses, spending, tradeoff
from understudy.report.charts import (
    bars,
    colours_of,
    dots_chart,
    lengths_chart,
    map_chart,
    number_line,
    tradeoff_chart,
)
from understudy.report.contents import Contents
from understudy.report.grids import (
    BETTER,
    CHARGED,
    FLOORS,
    SIGNS,
    Grid,
    by_table,
    by_training,
    charged_length_rows,
    column_rows,
    column_values,
    first_values,
    label_rows,
    largest,
    length_rows,
    table_words,
    topic_rows,
    without_shares,
)
from understudy.report.numbers import cut, power_of_ten
from understudy.report.recipe import recipe
from understudy.report.svg import COLOURS

TITLES = {
    "promise": "What is promised",
    "budget": "Where the budget went",
    "corpus": "What the texts look like",
    "columns": "What the columns hold",
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
"""Below so many texts per table the page says that distances mean little."""
_FAMILIES = ("utility", "fidelity", "leakage")
_KEY = "↓ lower is better, ↑ higher is better, ≈ best if like the real texts"
LABELS_SHOWN = 40


@dataclass(frozen=True)
class Samples:
    """Some of a label's texts, and how many it has in all."""

    label: str | None
    texts: tuple[SyntheticText, ...]
    count: int


def as_record(text: str) -> Mapping[str, str] | None:
    """The fields of a text that is a JSON object; None for any other."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in fields.items()
    }


def samples_of(texts: Sequence[SyntheticText], *, seed: int, each: int = 3) -> tuple[Samples, ...]:
    """``each`` texts of each label at random, in the table's order; at most ``LABELS_SHOWN`` labels, by name."""
    by_label: dict[str | None, list[SyntheticText]] = {}
    for text in texts:
        by_label.setdefault(text.label, []).append(text)
    generator, found = np.random.default_rng(seed), []
    for label in sorted(by_label, key=lambda label: label or "")[:LABELS_SHOWN]:
        own = by_label[label]
        chosen = np.sort(generator.choice(len(own), size=min(each, len(own)), replace=False))
        found.append(Samples(label, tuple(own[place] for place in chosen), len(own)))
    return tuple(found)


def view(contents: Contents, *, seed: int) -> dict[str, Any]:
    """The values of ``report.html``."""
    statement, overview = contents.statement, contents.overview
    charged = contents.charged.values if contents.charged else ()
    families, paid, left_out = {}, {}, {}
    for family in _FAMILIES:
        families[family], more = _of_family(contents.values, family)
        values, charged_more = _of_family(charged, family)
        paid[family] = _paid(values, family)
        left_out[family] = more + charged_more, "values"
    looks = None if overview is None else _looks(overview, charged)
    columns = _columns(contents)
    there = {
        "corpus": overview is not None,
        "columns": bool(columns["rows"]),
        "map": overview is not None and bool(overview.points or contents.no_map),
        "audit": contents.audit is not None,
        "inside": not contents.internal,
        **{family: bool(families[family] or paid[family]) for family in families},
    }
    titles = TITLES if contents.internal else {**TITLES, "fidelity": "How varied they are"}
    return {
        "contents": contents,
        "facts": _facts(contents),
        "sections": [(anchor, title) for anchor, title in titles.items() if there.get(anchor, True)],
        "unit": statement.unit.kind,
        "charts": _charts(contents),
        "bars": bars,
        "largest": largest,
        "better": BETTER,
        "signs": SIGNS,
        "spending": spending(statement),
        "looks": looks,
        "columns": columns,
        "conditions": sorted({text.where for text in contents.texts if text.where}),
        "left_out": {
            **left_out,
            "corpus": (looks["left_out"] if looks else 0, "labels, topics or lengths"),
            "columns": (columns["left_out"], "cells"),
        },
        "map": None if overview is None else _map(overview),
        "samples": samples_of(contents.texts, seed=seed),
        "as_record": as_record,
        "ceiling": any(each.of == REAL_ALL for each in families["utility"]),
        "floor": any(each.of in FLOORS for each in families["utility"]),
        "majority": any(each.of == MAJORITY for each in families["utility"]),
        "utility": [(grid, _dots(grid, number)) for number, grid in enumerate(by_training(families["utility"]))],
        "fidelity": _grid(
            families["fidelity"], f"{'Beside the real texts' if contents.internal else 'By themselves'}. {_KEY}"
        ),
        "few": _few(contents, families["fidelity"]),
        "leakage": _grid(families["leakage"], f"{_beside(families['leakage'])}. {_KEY}"),
        "paid_for": paid,
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
        typed[0] = ("epsilon", f"{typed[0][1]} + {as_typed(contents.charged.budget.epsilon)} for metrics")
    return [*typed, ("protects", f"one {statement.unit.kind}"), texts]


def _together(contents: Contents) -> dict[str, str] | None:
    """What the texts and the charged metrics promise together; None without such metrics."""
    statement, charged = contents.statement, contents.charged
    if charged is None or not contents.promises or isinstance(statement.budget, SecretBudget):
        return None
    events = tuple(charge.event for charge in (*statement.charges, *charged.charges))
    # whatever the metrics say, it is e^epsilon likelier at most
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


def _charts(contents: Contents) -> dict[str, str]:
    statement, overview, audit = contents.statement, contents.overview, contents.audit
    curve, at = tradeoff(statement), (FALSE_ALARMS, statement.power)
    charts: dict[str, str] = {"tradeoff": tradeoff_chart(curve, at=at, unit=statement.unit.kind) if curve else ""}
    if overview is not None:
        some = any(profile.texts for profile in overview.profiles.values())
        charts["lengths"] = lengths_chart(overview.profiles) if some else ""
    if overview is not None and overview.points:
        tables = Counter(point.of for point in overview.points)
        counted = " and ".join(f"{count} {table_words(of)}" for of, count in tables.items())
        charts["map"] = map_chart(overview.points, f"{counted} texts by what they say. The table below counts them.")
    if audit is not None:
        bounds = {
            "promised": (audit.epsilon, "synthetic"),
            "found at least": (audit.bound, "real"),
            "could be found": (audit.largest_bound, "holdout"),
        }
        charts["audit"] = number_line("audit-line", "epsilon", bounds)
    return charts


def _looks(overview: Overview, charged: Sequence[MetricValue]) -> dict[str, Any]:
    every = (label_rows(overview, charged), topic_rows(overview), charged_length_rows(charged))
    labels, topics, lengths = (rows[:MOST_ROWS] for rows in every)
    return {
        "label_tables": list(labels[0].shares) if labels else [],
        "left_out": sum(max(0, len(rows) - MOST_ROWS) for rows in every),
        "charged_lengths": lengths,
        "overview": overview,
        "tables": list(overview.profiles),
        "lengths": length_rows(overview.profiles),
        "labels": labels,
        "topics": topics,
    }


def _columns(contents: Contents) -> dict[str, Any]:
    """Each typed column's cells, as many as a page has room for, and the distances of columns and pairs."""
    rows = column_rows(contents.overview, contents.release)
    room, shown = MOST_ROWS, {}
    for name, cells in rows.items():
        shown[name] = cells[:room]
        room -= len(shown[name])
    values, more = column_values(contents.values)
    return {
        "rows": {name: (cells, list(cells[0].shares)) for name, cells in shown.items() if cells},
        "beside": all(len(cells[0].shares) < 3 for cells in rows.values() if cells),
        "left_out": sum(map(len, rows.values())) - sum(map(len, shown.values())),
        "distances": _grid(values, f"{_beside_rows(values)}. {_KEY}"),
        "more_pairs": more,
    }


def _beside_rows(values: Sequence[MetricValue]) -> str:
    held_out = any(measured.of == HOLDOUT for measured in values)
    other = "real rows that were never used" if held_out else "the other half of them"
    return f"From {'the real rows' if held_out else 'one half of the real rows'}, beside {other}"


def _map(overview: Overview) -> dict[str, Any]:
    colours = colours_of(overview.points)
    tables = list(dict.fromkeys(point.of for point in overview.points))
    counted = Counter((point.label, point.of) for point in overview.points)
    return {
        "points": overview.points,
        "tables": tables,
        "colours": colours,
        "coloured": 1 < len(colours) <= COLOURS,
        "data": [{"of": p.of, "label": p.label, "text": cut(p.text, MAP_TEXT)} for p in overview.points],
        "counts": [(label, [counted[label, of] for of in tables]) for label in colours],
    }


def _beside(values: Sequence[MetricValue]) -> str:
    held_out = any(measured.of == HOLDOUT for measured in values)
    return (
        "Beside real texts that were never used" if held_out else "Without held-out texts to compare with (--holdout)"
    )


def _grid(values: Sequence[MetricValue], title: str) -> Grid | None:
    return by_table(values, title) if values else None


def _few(contents: Contents, fidelity: Sequence[MetricValue]) -> int | None:
    """How many texts per table were compared, where they are so few that it must be said."""
    if not (contents.internal and fidelity):
        return None
    counts = [measured.sample_size for measured in fidelity if measured.sample_size is not None]
    if contents.overview is not None:
        counts += [profile.texts for profile in contents.overview.profiles.values()]
    fewest = min(counts, default=FEW)
    return fewest if fewest < FEW else None


def _of_family(values: Sequence[MetricValue], family: str) -> tuple[tuple[MetricValue, ...], int]:
    """Those of a family that a page shows, and how many more there are."""
    return first_values([measured for measured in without_shares(values) if measured.metric.family == family])


def _paid(values: Sequence[MetricValue], family: str) -> list[Grid]:
    if family == "utility":
        return list(by_training(values))
    return [by_table(values, "Released with noise")] if values else []


def _dots(grid: Grid, number: int) -> str | None:
    """The chart of a grid with at least two numbers to compare."""
    values = [cell for row in grid.rows for cell in row.cells if cell is not None and cell.value is not None]
    return dots_chart(f"utility-{number}", grid) if len(values) > 1 else None


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How it was measured; of files their names, not where they lay."""
    found = []
    for name, value in settings.items():
        words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if value not in (None, [], (), ""):
            found.append((name.replace("_", " "), Path(words).name if Path(words).is_absolute() else words))
    return found
