"""Turn the contents of a page into the values of its templates, such as the shares of the budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.evaluate.metrics.overview import Overview
from understudy.evaluate.metrics.value import HOLDOUT, MAJORITY, REAL_ALL, MetricValue
from understudy.evaluate.synthetic import SyntheticText
from understudy.methods.base import Method, Needs
from understudy.methods.registry import method_class
from understudy.privacy.accountant import Composition
from understudy.privacy.events import (
    Event,
    GaussianEvent,
    MixtureEvent,
    PureEvent,
    SubsampledGaussianEvent,
    SubsampledPureEvent,
    ZCDPEvent,
    budget_shares,
)
from understudy.privacy.exact import as_typed, in_a_hundred, round_up
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Charge
from understudy.privacy.unit import Unit
from understudy.release import PublicSchema, Release
from understudy.release.statement import FALSE_ALARMS, Statement
from understudy.report import grids
from understudy.report.charts import (
    colours_of,
    dots_chart,
    lengths_chart,
    map_chart,
    number_line,
    tradeoff_chart,
)
from understudy.report.contents import Contents
from understudy.report.numbers import cut
from understudy.report.svg import COLOURS

TITLES = {
    "promise": "What is promised",
    "budget": "Where the budget went",
    "corpus": "What the texts look like",
    "columns": "Values of the columns",
    "map": "A map of the texts",
    "samples": "Some of the texts",
    "utility": "How useful they are",
    "fidelity": "How close they are to the real texts",
    "leakage": "What leaks",
    "audit": "An attack on the run",
    "inside": "What stays inside",
    "reproduce": "How to make them again",
    "limits": "What is not covered",
}
MAP_TEXT = 400
"""Largest number of characters of a text on the map."""
MOST_ROWS = 400
"""Largest number of labels, topics or lengths in one table of the page."""
_EXPONENT = 700.0
FEW = 100
"""With fewer texts per table, the page says that distances mean little."""
_FAMILIES = ("utility", "fidelity", "leakage")
_BESIDE = ("Without held-out texts to compare with (--holdout)", "Compared with real texts that were never used")
_BESIDE_ROWS = (
    "Distance from one half of the real rows, compared with that of the other half",
    "Distance from the real rows, compared with that of real rows that were never used",
)
LABELS_SHOWN = 40
_WEAK = 10
"""From this epsilon on, the one sentence says that the limit is weak."""
MOST_SECONDS = 60.0
"""Most seconds for computing the trade-off curve; a page whose curve would take longer has none."""
_GRID = 2e4  # points per unit of loss, on both sides
_TAIL = 8.0  # standard deviations of a privacy loss to keep
_A_POINT = 2e-6
_AHEAD = 4  # a single release takes as much work as composing this many
_SPLITS = 20  # approximate number of groups of secrets to try
_A_SECRET, _A_PAIR, _A_CELL = 4e-5, 1e-10, 1e-3
RATES = (1e-4, 1e-3, 0.003, *(i / 100 for i in range(1, 20)), *(i / 40 for i in range(8, 40)), 0.99)
_COARSE = 3  # every third rate is enough if each takes a numerical search


class Samples(NamedTuple):
    """Some of a label's texts, and their total number."""

    label: str | None
    texts: tuple[SyntheticText, ...]
    size: int


def samples_of(
    texts: Sequence[SyntheticText], *, seed: int, each: int = 3, labels: int | None = LABELS_SHOWN
) -> tuple[Samples, ...]:
    """Return ``each`` random texts per label, in the table's order, of at most ``labels`` labels, by name."""
    by_label: dict[str | None, list[SyntheticText]] = {}
    for text in texts:
        by_label.setdefault(text.label, []).append(text)
    generator, found = np.random.default_rng(seed), []
    for label in sorted(by_label, key=lambda label: label or "")[:labels]:
        own = by_label[label]
        chosen = np.sort(generator.choice(len(own), size=min(each, len(own)), replace=False))
        found.append(Samples(label, tuple(own[place] for place in chosen), len(own)))
    return tuple(found)


def view(contents: Contents, *, seed: int) -> dict[str, Any]:
    """Return the values of ``report.html``."""
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
        "sentence": one_sentence(statement) if statement.private else "",
        "warnings": () if contents.release is None else contents.release.noise_check.warnings,
        "sections": [(anchor, title) for anchor, title in titles.items() if there.get(anchor, True)],
        "unit": statement.unit.kind,
        "charts": _charts(contents),
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
        "ceiling": any(each.of == REAL_ALL for each in families["utility"]),
        "floor": any(each.of in grids.FLOORS for each in families["utility"]),
        "majority": any(each.of == MAJORITY for each in families["utility"]),
        "utility": [(grid, _dots(grid, number)) for number, grid in enumerate(grids.by_training(families["utility"]))],
        "fidelity": _grid(families["fidelity"], "Next to the real texts" if contents.internal else "Synthetic texts"),
        "few": _few(contents, families["fidelity"]),
        "leakage": _grid(families["leakage"], _BESIDE[any(each.of == HOLDOUT for each in families["leakage"])]),
        "paid_for": paid,
        "charged_epsilon": as_typed(contents.charged.budget.epsilon) if contents.charged else "",
        "together": _together(contents),
        "charged_table": [grids.CHARGED],
        "settings": _settings(contents.settings),
        "recipe": "" if contents.release is None else recipe(contents.release, contents.texts),
        "writers": sorted({text.model for text in contents.texts if text.model}),
        "audit": contents.audit,
        **_elsewhere(statement),
    }


def one_sentence(statement: Statement) -> str:
    """Return the promise in one sentence; the statement has the exact words."""
    unit, budget = statement.unit, statement.budget
    said = "let them conclude about whether any one record was in the data"
    if unit.kind == "owner":
        said = f"let them conclude about whether the records of any one {unit.name} were in the data"
    elif unit.kind == "secret":
        said = "add to their guess at any one secret of the data"
    weak = " At this budget the limit is weak." * (isinstance(budget, Budget) and budget.epsilon >= _WEAK)
    return (
        f"However much anyone knows and however hard they try, what these texts {said} is limited. The figures above "
        f"are the limit.{weak}"
    )


def promised(budget: Budget | SecretBudget) -> list[tuple[str, str]]:
    """Return the two numbers of a budget, by name, as they are typed."""
    names = ("prior", "posterior") if isinstance(budget, SecretBudget) else ("epsilon", "delta")
    return [(name, as_typed(getattr(budget, name))) for name in names]


def _facts(contents: Contents) -> list[tuple[str, str]]:
    statement, budget = contents.statement, contents.statement.budget
    texts = ("texts", f"{len(contents.texts):,}")
    if not statement.private:
        return [("promised", "nothing"), texts]
    typed = promised(budget)
    if contents.charged is not None and contents.charged.private:
        typed[0] = ("epsilon", f"{typed[0][1]} + {as_typed(contents.charged.budget.epsilon)} for metrics")
    return [*typed, ("protects", f"one {statement.unit.kind}"), texts]


def _together(contents: Contents) -> dict[str, str] | None:
    statement, charged = contents.statement, contents.charged
    if charged is None or not contents.promises or isinstance(statement.budget, SecretBudget):
        return None
    events = tuple(charge.event for charge in (*statement.charges, *charged.charges))
    # the metrics make any result at most e^epsilon times as likely
    pure = math.exp(min(float(charged.budget.epsilon), _EXPONENT)) * statement.power
    composed = 1.0 if seconds_of_losses(events) > MOST_SECONDS else Composition(events).power(FALSE_ALARMS)
    return {
        "epsilon": as_typed(statement.budget.epsilon + charged.budget.epsilon),
        "power": in_a_hundred(min(pure, composed)),
    }


def _elsewhere(statement: Statement) -> dict[str, Any]:
    if statement.posterior_at:
        rows = [(f"{prior:g}", round_up(posterior)) for prior, posterior in statement.posterior_at.items()]
        return {"at_rows": rows, "at_heads": ("prior", "highest posterior"), "at_caption": "For other attackers"}
    rows = [(f"{delta:g}", round_up(epsilon)) for delta, epsilon in statement.epsilon_at.items()]
    return {"at_rows": rows, "at_heads": ("delta", "epsilon"), "at_caption": "Epsilon at other deltas"}


def _charts(contents: Contents) -> dict[str, str]:
    statement, overview, audit = contents.statement, contents.overview, contents.audit
    curve, at = tradeoff(statement), (FALSE_ALARMS, statement.power)
    charts: dict[str, str] = {"tradeoff": tradeoff_chart(curve, at=at, unit=statement.unit.kind) if curve else ""}
    if overview is not None:
        some = any(profile.texts for profile in overview.profiles.values())
        charts["lengths"] = lengths_chart(overview.profiles) if some else ""
    if overview is not None and overview.points:
        tables = Counter(point.of for point in overview.points)
        counted = " and ".join(f"{count} {grids.table_words(of)}" for of, count in tables.items())
        charts["map"] = map_chart(overview.points, f"{counted} texts, by what they say. The table below counts them.")
    if audit is not None:
        bounds = {
            "promised": (audit.epsilon, "synthetic"),
            "found at least": (audit.bound, "real"),
            "could be found": (audit.largest_bound, "holdout"),
        }
        charts["audit"] = number_line("audit-line", "epsilon", bounds)
    return charts


def _looks(overview: Overview, charged: Sequence[MetricValue]) -> dict[str, Any]:
    every = (grids.label_rows(overview, charged), grids.topic_rows(overview), grids.charged_length_rows(charged))
    labels, topics, lengths = (rows[:MOST_ROWS] for rows in every)
    return {
        "label_tables": list(labels[0].shares) if labels else [],
        "left_out": sum(max(0, len(rows) - MOST_ROWS) for rows in every),
        "charged_lengths": lengths,
        "overview": overview,
        "tables": list(overview.profiles),
        "lengths": grids.length_rows(overview.profiles),
        "labels": labels,
        "topics": topics,
    }


def _columns(contents: Contents) -> dict[str, Any]:
    rows = grids.column_rows(contents.overview, contents.release)
    room, shown = MOST_ROWS, {}
    for name, cells in rows.items():
        shown[name] = cells[:room]
        room -= len(shown[name])
    values, more = grids.column_values(contents.values)
    return {
        "rows": {name: (cells, list(cells[0].shares)) for name, cells in shown.items() if cells},
        "noisy": any(grids.CHARGED in cells[0].shares for cells in shown.values() if cells),
        "beside": all(len(cells[0].shares) < 3 for cells in rows.values() if cells),
        "left_out": sum(map(len, rows.values())) - sum(map(len, shown.values())),
        "distances": _grid(values, _BESIDE_ROWS[any(measured.of == HOLDOUT for measured in values)]),
        "more_pairs": more,
    }


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


def _grid(values: Sequence[MetricValue], beside: str) -> grids.Grid | None:
    return grids.by_table(values, f"{beside}. {grids.KEY}") if values else None


def _few(contents: Contents, fidelity: Sequence[MetricValue]) -> int | None:
    """Return how many texts per table were compared, if they are so few that the page must say it."""
    if not (contents.internal and fidelity):
        return None
    counts = [measured.sample_size for measured in fidelity if measured.sample_size is not None]
    if contents.overview is not None:
        counts += [profile.texts for profile in contents.overview.profiles.values()]
    fewest = min(counts, default=FEW)
    return fewest if fewest < FEW else None


def _of_family(values: Sequence[MetricValue], family: str) -> tuple[tuple[MetricValue, ...], int]:
    return grids.first_values(
        [measured for measured in grids.without_shares(values) if measured.metric.family == family]
    )


def _paid(values: Sequence[MetricValue], family: str) -> list[grids.Grid]:
    if family == "utility":
        return list(grids.by_training(values))
    return [grids.by_table(values, "Released with noise")] if values else []


def _dots(grid: grids.Grid, number: int) -> str | None:
    values = [cell for row in grid.rows for cell in row.cells if cell is not None and cell.value is not None]
    return dots_chart(f"utility-{number}", grid) if len(values) > 1 else None


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return titles and values of the settings of a measurement; files are named without their folders."""
    found = []
    for name, value in settings.items():
        words = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if value not in (None, [], (), ""):
            found.append((name.replace("_", " "), Path(words).name if Path(words).is_absolute() else words))
    return found


def seconds_of_losses(events: Sequence[Event]) -> float:
    """Estimate the time of :meth:`~understudy.privacy.accountant.Composition.power`; 0 if it has a closed form."""
    closed = all(isinstance(event, GaussianEvent) for event in events)
    if closed or any(isinstance(event, ZCDPEvent | MixtureEvent) for event in events):
        return 0.0
    return _A_POINT * sum((place + _AHEAD) * _GRID * _width(event) for place, event in enumerate(events, 1))


def seconds_of_secrets(events: Sequence[Event], priors: int) -> float:
    """Estimate the time of :func:`~understudy.privacy.secrets.composition.posterior` at this many priors."""
    cost = 0.0
    for event in {event for event in events if isinstance(event, MixtureEvent)}:
        secrets = set(event.inclusion)
        held = [sum(records for _, records in secret) for secret in secrets]
        cost += sum(_A_SECRET + _A_PAIR * records**2 for records in held)
        if len(events) > 1:  # composed on a grid, for each likely number of sampled records
            most = max(held, default=0)
            likely = min(float(most), 2 * _TAIL * math.sqrt(most))
            cost += (_SPLITS if len(secrets) > 1 else 1) * _A_CELL * (_AHEAD + likely)
    return priors * cost


def _width(event: Event) -> float:
    if isinstance(event, GaussianEvent | SubsampledGaussianEvent):
        return 1 / (2 * event.noise_multiplier**2) + _TAIL / event.noise_multiplier
    assert isinstance(event, PureEvent | SubsampledPureEvent)
    return event.pure_epsilon


def tradeoff(statement: Statement) -> tuple[tuple[float, float], ...] | None:
    """Return the largest true-positive rate at each false-positive rate, from (0, 0) to (1, 1).

    For the composed events: with epsilon by :meth:`understudy.privacy.accountant.Composition.power` (the trade-off
    function of f-DP, Dong, Roth and Su 2022, or bounds on it), with secrets the highest posterior at each prior.

    Returns:
        The points; None if it would take longer than :data:`MOST_SECONDS`.
    """
    events = tuple(charge.event for charge in statement.charges)
    if isinstance(statement.budget, SecretBudget):
        from understudy.privacy.secrets.composition import posterior

        if seconds_of_secrets(events, len(RATES[::_COARSE])) > MOST_SECONDS:
            return None
        inner = [(rate, posterior(events, rate)) for rate in RATES[::_COARSE]]
    else:
        if seconds_of_losses(events) > MOST_SECONDS:
            return None
        composition = Composition(events)
        inner = [(rate, composition.power(rate)) for rate in RATES]
    return ((0.0, min(1.0, inner[0][1])), *((rate, max(rate, min(1.0, power))) for rate, power in inner), (1.0, 1.0))


class Share(NamedTuple):
    """A charge and its share of the budget, in [0, 1]; None if the noise was off."""

    charge: Charge
    share: float | None


def spending(statement: Statement) -> tuple[Share, ...]:
    """Return each charge of a run with its share of the budget."""
    shares = budget_shares([charge.event for charge in statement.charges])
    return tuple(map(Share, statement.charges, shares))


def recipe(release: Release, texts: Sequence[SyntheticText]) -> str:
    """Return YAML with the columns, the unit, the budget, the method's parameters that differ from the defaults, and
    how many texts were written by which model.

    It does not contain what is private (the data, and how secrets are recognised) or unknown to the Release and the
    table (how texts were written).
    """
    statement = release.statement
    fields = {
        "dataset": statement.dataset,
        **{name: value for name, value in release.schema.layout.to_json().items() if name in ("delimiter", "encoding")},
        **_columns_of(release.schema, declared=statement.labels_declared),
        **_unit(statement.unit),
        **_budget(statement.budget),
        "method": release.method,
        **_parameters(release),
        **_writing(release, texts),
    }
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
    return text


def _columns_of(schema: PublicSchema, *, declared: bool) -> dict[str, Any]:
    texts = schema.texts
    owner = [schema.owner] if schema.owner and schema.owner.format else []
    typed = [column.to_json() for column in (*schema.columns, *owner)]
    columns = {"columns": {fields.pop("name"): fields for fields in typed}} if typed else {}
    if schema.label is None:
        return {**texts, **columns}
    if schema.topics:
        return {**texts, "topics": len(schema.labels), **columns}
    labels = {"labels": list(schema.labels)} if declared else {"labels_from_data": True}
    return {**texts, "label": schema.label, **({} if schema.crossed else labels), **columns}


def _unit(unit: Unit) -> dict[str, Any]:
    if unit.kind == "owner":
        return {"owner": unit.column, "max_records_per_owner": unit.max_records}
    return {"max_records_per_secret": unit.max_records} if unit.kind == "secret" else {}


def _budget(budget: Any) -> dict[str, str]:
    if isinstance(budget, SecretBudget):
        return {"secret_prior": as_typed(budget.prior), "secret_posterior": as_typed(budget.posterior)}
    return {"epsilon": as_typed(budget.epsilon), "delta": as_typed(budget.delta)}


def _parameters(release: Release) -> dict[str, Any]:
    """Return the parameters that differ from the method's defaults; all set ones if the method is not installed."""
    method = _method(release)
    known = Parameters if method is None else method.parameters
    fields = known.model_fields.items()
    plain = ((name, field.get_default(call_default_factory=True)) for name, field in fields)
    defaults = {name: list(value) if isinstance(value, tuple) else value for name, value in plain}
    return {
        name: value
        for name, value in release.parameters.items()
        if value is not None and (name not in defaults or value != defaults[name])
    }


def _writing(release: Release, texts: Sequence[SyntheticText]) -> dict[str, Any]:
    """Return how many texts were written by which model; nothing if the Release itself contains the texts."""
    method = _method(release)
    needs = Needs() if method is None else method.needs
    if not texts or needs.holds_texts:
        return {}
    counts, labels = Counter(text.label for text in texts), release.schema.labels
    if release.schema.label is not None and len(set(counts.values())) == 1 and len(counts) == len(labels):
        asked: dict[str, Any] = {"records_per_label": counts[texts[0].label]}
    else:
        asked = {"records": len(texts)}
    models = {text.model for text in texts}
    if all(text.bare for text in texts):
        return {**asked, "llm": "none"}
    if len(models) != 1 or models == {""}:  # the table does not say
        return asked
    (model,) = models
    flag = "private_model" if needs.generation_model else "llm"
    return {**asked, flag: "builtin" if model.startswith("builtin:") else model}


def _method(release: Release) -> type[Method] | None:
    """Return the method's class; None if it is not installed here."""
    try:
        return method_class(release.method)
    except ConfigError:
        return None
