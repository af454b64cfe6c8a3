"""The plan page: one form, and for each chosen method what the budget buys, next to smaller and larger budgets.

Forecasts are made in the background; a page shows the finished ones and asks again."""

from __future__ import annotations

import json
import shlex
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Any, Literal, get_args, get_origin

import yaml
from markupsafe import Markup
from pydantic.fields import FieldInfo
from starlette.datastructures import QueryParams

from understudy.base.errors import ConfigError, UnderstudyError
from understudy.base.parameters import kinds_of
from understudy.methods.registry import method_class, method_names
from understudy.privacy.facts import Fact
from understudy.privacy.guarantee import Budget
from understudy.report.numbers import short
from understudy.report.svg import COLOURS, Frame, Scale, apart, from_zero, path, svg_image, tag, x_axis, y_axis
from understudy.run.forecast import Forecast, forecast
from understudy.run.settings import run_config

Outcome = Forecast | UnderstudyError
"""The result of planning a configuration."""
MOST_KEPT, MOST_WAITING = 2000, 200
WORKERS = 2
"""More than one, so that a slow point does not delay quick ones."""

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)
"""Budgets of the curves, in addition to the one in the form."""
_BELOW, _ABOVE = 1 / 9, 5.0
PATIENCE = 0.25
"""Seconds that a page waits for its first points."""
_COSTS = ("records", "calls", "input_tokens", "output_tokens", "money")
_SIGNAL = "signal_to_noise"
_FORECAST_ONLY = ("price_input", "price_output")

DEFAULTS = {
    **{"epsilon": "4", "delta": "1e-6", "label": "label", "expected_records": "10000"},
    **{"records_per_label": "100", "llm": "builtin"},
}
YES = "yes"
_FIELDS = (
    *("epsilon", "delta", "guide", "expected_records", "labels", "label", "columns", "owner", "max_records_per_owner"),
    *("records_per_label", "llm", "price_input", "price_output"),
)
"""The fields of every method in ``plan.html``."""
_OF_METHODS = (
    *("noise", "length", "samples", "rounds", "population", "variations", "batches", "tokens_per_batch"),
    *("sampling_rate", "tokens", "exemplars", "steps", "teachers", "queries"),
)
"""Parameters of methods that decide what the budget buys."""
_FIRST = ("dp-kps", "aug-pe", "guided-evolution")
_LONGEST = 400
_MOST_LABELS = 200
_LETTER = 13.0  # between letters


@dataclass(frozen=True)
class Field:
    """One parameter of a method in the form: its name there, its title and hint, and its choices."""

    key: str
    name: str
    title: str
    hint: str
    default: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """The content of the form, as typed: text by field, the methods, and their parameters by ``METHOD.NAME``."""

    values: Mapping[str, str]
    methods: tuple[str, ...]
    own: Mapping[str, str]

    @classmethod
    def of(cls, query: QueryParams) -> Form:
        """Read the form from an address; an empty address gives the initial form."""
        typed = {name: query[name].strip()[:_LONGEST] for name in query}
        offered = offered_methods()
        chosen = tuple(name for name in offered if name in query.getlist("method"))
        values = {name: typed.get(name, "" if typed else DEFAULTS.get(name, "")) for name in _FIELDS}
        keys = [field.key for method in offered for field in fields_of(method)]
        own = {key: typed[key] for key in keys if typed.get(key)}
        return cls(values, chosen or tuple(name for name in offered if not typed and name in _FIRST), own)

    def settings(self, method: str, epsilon: str) -> dict[str, Any]:
        """Return the settings as in flags, YAML and Python, without empty fields."""
        values: dict[str, Any] = {"method": method, **{k: v for k, v in self.values.items() if v}, "epsilon": epsilon}
        labels = [label.strip() for label in values.pop("labels", "").split(",") if label.strip()][:_MOST_LABELS]
        if "columns" in values:
            values["columns"] = values["columns"].lstrip("@ ")  # never a file
        if labels:
            values["labels"] = labels
        elif "columns" not in values or "*" not in values.get("label", ""):
            values.pop("label", None)
        if values.pop("guide", "") == YES:
            values["guide"] = True
        if "owner" not in values:
            values.pop("max_records_per_owner", None)
        own = {field.name: self.own[field.key] for field in fields_of(method) if field.key in self.own}
        return values | own

    @property
    def epsilon(self) -> float | None:
        """Return the typed epsilon; None if it is not a number."""
        try:
            number = float(self.values["epsilon"])
        except ValueError:
            return None
        return number if 0 < number < float("inf") else None

    @property
    def epsilons(self) -> list[str]:
        """Return the epsilons of the curves, the one in the form first."""
        typed = self.values["epsilon"]
        if (middle := self.epsilon) is None:
            return [typed]
        near = [each for each in EPSILONS if middle * _BELOW <= each <= middle * _ABOVE and each != middle]
        return [typed, *(f"{each:g}" for each in near)]


@dataclass(frozen=True)
class Chart:
    """A figure, and the titles of its lines by letter."""

    image: Markup
    title: str
    lines: tuple[tuple[str, str], ...]


def offered_methods() -> list[str]:
    """Return the methods that promise (epsilon, delta), the default first."""
    names = [name for name in method_names() if method_class(name).private and name != "sec-pe"]
    return sorted(names, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))


def fields_of(method: str) -> tuple[Field, ...]:
    """Return the parameters of a method for the form: numbers and choices, never the name of a file."""
    known = method_class(method).parameters.flags()
    return tuple(_field(method, name, known[name]) for name in _OF_METHODS if name in known and _is_plain(known[name]))


def _is_plain(field: FieldInfo) -> bool:
    return all(kind in (int, float) or get_origin(kind) is Literal for kind in kinds_of(field))


def _field(method: str, name: str, field: FieldInfo) -> Field:
    choices = [each for kind in kinds_of(field) for each in get_args(kind)]
    default = field.get_default()
    return Field(
        key=f"{method}.{name}",
        name=name,
        title=name.replace("_", " "),
        hint=(field.description or "").replace("``", "").split(". ")[0].rstrip("."),
        default="" if default is None else f"{default:g}" if isinstance(default, float) else str(default),
        choices=tuple(map(str, choices)),
    )


CHOICES: dict[str, Any] = {"offered_methods": offered_methods, "fields_of": fields_of}
"""The functions and values that the form's template uses."""


def results(form: Form, forecasts: Forecasts) -> dict[str, Any]:
    """Return the finished results of the form, for ``plan_results.html``; the rest is planned in the background, the
    form's epsilon first."""
    epsilons = form.epsilons
    wanted = [(method, epsilon) for epsilon in epsilons for method in form.methods]
    found = dict(zip(wanted, forecasts.ask([form.settings(m, e) for m, e in wanted], patience=PATIENCE), strict=True))
    panels = [_panel(form, method, {e: found[method, e] for e in epsilons}) for method in form.methods]
    errors = {str(panel["error"]): panel["error"] for panel in panels}
    problem = next(iter(errors.values())) if len(errors) == 1 and len(panels) > 1 else None  # the same for every method
    return {
        "epsilon": form.values["epsilon"],
        "made": sum(outcome is not None for outcome in found.values()),
        "asked": len(wanted),
        "problem": problem,
        "signal": None if problem else _signal(form, found),
        "panels": [] if problem else panels,
        "money": any("money" in panel["costs"] for panel in panels),
    }


def _panel(form: Form, method: str, outcomes: Mapping[str, Outcome | None]) -> dict[str, Any]:
    """Return what the budget buys with one method at the form's epsilon, with charts and a table over epsilon."""
    here = outcomes[form.values["epsilon"]]
    points = _points(outcomes)
    plan = here if isinstance(here, Forecast) else None
    facts = [] if plan is None else [*plan.plan.forecast.entries, *plan.calls.entries]
    varying = _varying(points)
    return {
        "method": method,
        "error": here if isinstance(here, UnderstudyError) else None,
        "waiting": here is None,
        "asks": method_class(method).needs.generation_llm != "never",
        "costs": {fact.name: _shown(fact.value) for fact in facts if fact.name in _COSTS},
        "lines": tuple(fact.line() for fact in facts if fact.name not in _COSTS),
        "verdict": "" if plan is None else plan.plan.usefulness,
        "warnings": () if plan is None else (*plan.plan.forecast.warnings, *plan.calls.warnings),
        "charts": tuple(_charts(method, varying, points, form.epsilon)),
        "heads": ("epsilon", *(fact.title for fact in varying)),
        "rows": tuple(
            (f"{epsilon:g}", *(_shown(of[fact.name].value) if fact.name in of else "–" for fact in varying))
            for epsilon, of in points
        ),
        "commands": _commands(form.settings(method, form.values["epsilon"])),
    }


_Points = list[tuple[float, Mapping[str, Fact]]]
"""The forecast's facts by name, at each epsilon for which it is known."""


def _points(outcomes: Mapping[str, Outcome | None]) -> _Points:
    found = [
        (float(epsilon), {fact.name: fact for fact in made.plan.forecast.entries})
        for epsilon, made in outcomes.items()
        if isinstance(made, Forecast) and isinstance(made.plan.budget, Budget)
    ]
    return sorted(found, key=lambda point: point[0])


def _values(name: str, points: _Points) -> list[tuple[float, float]]:
    facts = [(epsilon, facts[name].value) for epsilon, facts in points if name in facts]
    return [(epsilon, value) for epsilon, value in facts if isinstance(value, int | float)]


def _varying(points: _Points) -> list[Fact]:
    by_name: dict[str, list[Fact]] = {}
    for _, facts in points:
        for fact in facts.values():
            by_name.setdefault(fact.name, []).append(fact)
    return [
        facts[0]
        for facts in by_name.values()
        if all(isinstance(fact.value, int | float) for fact in facts) and len({fact.value for fact in facts}) > 1
    ]


def _charts(method: str, varying: Sequence[Fact], points: _Points, at: float | None) -> list[Chart]:
    """Return one chart per kind of number: numbers with the same unit together, and one number at several places."""
    found = []
    kinds = sorted(varying, key=lambda fact: [_kind(each, varying) for each in varying].index(_kind(fact, varying)))
    for number, (kind, facts) in enumerate(groupby(kinds, key=lambda fact: _kind(fact, varying))):
        named = [(fact.title, fact.name) for fact in facts]
        stems = {name.partition("_at_")[0] for _, name in named}
        stem = kind if len(stems) == 1 and len(kind.split()) > 1 else ""
        shared = stem or _common([words for words, _ in named]) or named[0][0]
        title = named[0][0] if len(named) == 1 else shared
        lines = [Line(words, _values(name, points)) for words, name in named]
        found.append(_chart(f"{method}-{number}", title, lines, at))
    return found


def _common(titles: Sequence[str]) -> str:
    """Return the words that all titles end with, if they are at least two; else an empty string."""
    ends = [list(reversed(title.split())) for title in titles]
    words = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, zip(*ends, strict=False))]
    return " ".join(reversed(words)) if len(words) > 1 else ""


def _kind(fact: Fact, all_of_them: Sequence[Fact]) -> str:
    stem = fact.name.partition("_at_")[0]
    first = next(each for each in all_of_them if each.name.partition("_at_")[0] == stem)
    unit = first.title.rpartition(" (")[2].rstrip(")") if first.title.endswith(")") else ""
    return unit if unit and not unit.startswith("--") else stem.replace("_", " ")


def _signal(form: Form, found: Mapping[tuple[str, str], Outcome | None]) -> Chart | None:
    lines = []
    for method in form.methods:
        points = _points({epsilon: found[method, epsilon] for epsilon in form.epsilons})
        lines += [
            Line(f"{method}: {fact.title}", _values(fact.name, points))
            for fact in _varying(points)
            if _SIGNAL in fact.name
        ]
    return _chart("signal", "Signal to noise", lines, form.epsilon, even=1.0, width=640) if lines else None


def _chart(name: str, title: str, lines: Sequence[Line], at: float | None, **more: Any) -> Chart:
    image = curves(name, title, lines, at=at, **more)
    letters = [(line.letter(place), line.title) for place, line in enumerate(lines)] if len(lines) > 1 else []
    return Chart(image, title, tuple(letters))


def _shown(value: Any) -> str:
    return short(value) if isinstance(value, int | float) else ", ".join(map(str, value)) if value else "–"


def _commands(settings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    planned = [word for name, value in settings.items() for word in _flag(name, value)]
    running = [word for name, value in settings.items() if name not in _FORECAST_ONLY for word in _flag(name, value)]
    data = ["--data", "TABLE.csv", "--text", "COLUMN"]
    file = {"data": "TABLE.csv", "text": "COLUMN", **settings, "output": "out"}
    return (
        ("This forecast", shlex.join(["understudy", "plan", *planned])),
        ("The run", shlex.join(["understudy", "run", *data, *running, "--output", "out/"])),
        (
            "A configuration file, for all verbs (--config FILE)",
            yaml.safe_dump(file, sort_keys=False, allow_unicode=True),
        ),
    )


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, ",".join(value) if isinstance(value, list) else str(value)]


class Forecasts:
    """Outcomes by configuration; each is kept, and the latest requests are planned first.

    Most take milliseconds; some take seconds, if the accountant adds up privacy loss distributions.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[str, Outcome] = OrderedDict()
        self._waiting: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._changed = threading.Condition()
        self._workers: list[threading.Thread] = []

    def ask(self, wanted: list[Mapping[str, Any]], *, patience: float = 0.0) -> list[Outcome | None]:
        """Return the outcome of each configuration; None for the others, which are then planned in this order."""
        keys = [json.dumps(values, sort_keys=True) for values in wanted]
        with self._changed:
            for key, values in reversed(list(zip(keys, wanted, strict=True))):
                if key not in self._made:
                    self._waiting[key] = values
                    self._waiting.move_to_end(key)
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)
            while len(self._workers) < WORKERS:
                self._workers.append(threading.Thread(target=self._work, daemon=True))
                self._workers[-1].start()
            self._changed.notify_all()
            self._changed.wait_for(lambda: all(key in self._made for key in keys), timeout=patience)
            return [self._made.get(key) for key in keys]

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                key, values = self._waiting.popitem()
            outcome = _outcome(values)
            with self._changed:
                self._made[key] = outcome
                self._waiting.pop(key, None)  # requested again meanwhile
                while len(self._made) > MOST_KEPT:
                    self._made.popitem(last=False)
                self._changed.notify_all()


def _outcome(values: Mapping[str, Any]) -> Outcome:
    try:
        return forecast(run_config(values))
    except UnderstudyError as error:
        return error
    except Exception as error:  # the worker must keep running
        return ConfigError(f"This cannot be planned ({type(error).__name__}).", "This is a bug; please report it.")


@dataclass(frozen=True)
class Line:
    """A title, and points (x, y) from left to right."""

    title: str
    points: Sequence[tuple[float, float]]

    @staticmethod
    def letter(place: int) -> str:
        """Return a letter that identifies the line without its colour."""
        return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place % 26]


def curves(
    name: str, title: str, lines: Sequence[Line], *, at: float | None, even: float | None = None, width: float = 400
) -> Markup:
    """Return a chart (SVG) of the lines against epsilon.

    Args:
        at: the epsilon in the form, which is marked.
        even: a value to mark with a line: where the signal is as large as the noise.
    """
    xs = sorted({x for line in lines for x, _ in line.points})
    values = [y for line in lines for _, y in line.points] + ([] if even is None else [even])
    frame = Frame(width=width, height=0.15 * width + 170, top=14, left=52, right=26)
    x = Scale((xs[0] / 1.15, xs[-1] * 1.15), frame.x, log=True, marks=tuple(xs))
    y = from_zero(values, frame.y)
    marks: list[Markup] = []
    if even is not None:
        marks.append(tag("line", x1=frame.x[0], x2=frame.x[1], y1=y(even), y2=y(even), class_="reference"))
        marks.append(tag("text", "signal = noise", x=frame.x[1], y=y(even) - 5, text_anchor="end", class_="note"))
    if at is not None:
        marks.append(tag("line", x1=x(at), x2=x(at), y1=frame.y[0], y2=frame.y[1], class_="reference"))
    said = []
    heights = apart([y(line.points[-1][1]) for line in lines], _LETTER, 0.0)
    for place, line in enumerate(lines):
        colour = f"c{place % COLOURS}"
        points = [(x(a), y(b)) for a, b in line.points]
        marks.append(path(points, class_=f"line {colour}"))
        marks += [
            tag("circle", cx=left, cy=top, r=4.5 if a == at else 2.5, class_=f"dot {colour}")
            for (left, top), (a, _) in zip(points, line.points, strict=True)
        ]
        if len(lines) > 1:
            right = points[-1][0] + 9
            marks.append(tag("text", line.letter(place), x=right, y=heights[place] + 4, class_=f"label {colour}"))
        elif at is not None and (here := dict(line.points).get(at)) is not None:
            marks.append(_number_at(short(here), x(at), y(here), frame, rises=line.points[-1][1] > line.points[0][1]))
        said.append(f"{line.title}: " + ", ".join(f"{short(b)} at epsilon {a:g}" for a, b in line.points))
    return svg_image(
        f"chart-{name}",
        f"{title} against epsilon",
        f"{'; '.join(said)}. The table has the same numbers.",
        frame,
        y_axis(frame, y, ""),
        x_axis(frame, x, "epsilon"),
        *marks,
    )


def _number_at(words: str, left: float, top: float, frame: Frame, *, rises: bool) -> Markup:
    near_the_end = left > frame.x[1] - 60
    top += 0 if rises == near_the_end else 20
    return tag(
        "text",
        words,
        x=left + (-9 if near_the_end else 9),
        y=max(top - 8, frame.y[1] + 8),
        text_anchor="end" if near_the_end else "start",
        class_="label",
    )
