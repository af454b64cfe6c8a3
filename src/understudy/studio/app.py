"""The studio's pages by their addresses."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from understudy import __version__
from understudy.base.errors import ConfigError, LedgerError, UnderstudyError
from understudy.ledger import Balance, Dataset, Ledger, default_location
from understudy.ledger.values import both, numbers, unit_words, what_remains
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.report.numbers import short
from understudy.report.page import environment, report_file, visible
from understudy.report.svg import Frame, Scale, counted, path, svg_image, tag, x_axis, y_axis
from understudy.studio import plans
from understudy.studio import runs as runs_of
from understudy.studio.guard import STARTS, Guard, Tokens
from understudy.studio.jobs import GenerateForm, Jobs

SECTIONS = {"overview": "Overview", "plan": "Plan", "ledger": "Ledger", "runs": "Runs", "jobs": "Jobs"}
_WRONG = {403: ("This form was not sent by a page of the studio.", "Open the page again and send the form from there.")}
_NO_PAGE = ("This page does not exist.", "Choose one from the menu.")
_KINDS = {"studio.css": "text/css", "studio.js": "text/javascript", "icon.svg": "image/svg+xml"}


def make_app(*, runs: Path, ledger: str | None, tokens: Tokens, jobs: Jobs) -> Guard:
    """Return the studio for one folder of runs and one ledger."""
    pages = _Pages(runs, ledger, tokens, jobs)
    routes = [
        Route("/", lambda _: RedirectResponse("/overview", 303)),
        Route("/static/{name}", _static),
        Route("/overview", pages.overview),
        Route("/plan", pages.plan),
        Route("/plan/results", pages.plan_results),
        Route("/ledger", pages.ledger),
        Route("/runs", pages.runs),
        Route("/runs/list", pages.runs_list),
        Route("/runs/{run}", pages.run),
        Route("/runs/{run}/progress", pages.run_progress),
        Route("/runs/{run}/texts", pages.texts),
        Route("/jobs", pages.jobs),
        Route("/jobs/now", pages.job),
        Route(f"{STARTS}stop", pages.stop, methods=["POST"]),
        Route(STARTS + "{verb:str}/{run}", pages.start, methods=["POST"]),
    ]
    handlers: Any = {HTTPException: _wrong, UnderstudyError: _wrong, Exception: _bug}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, tokens=tokens)


class _Pages:
    """Functions from a request to a page. They run in threads, so that a slow page does not delay others."""

    def __init__(self, folder: Path, ledger: str | None, tokens: Tokens, jobs: Jobs) -> None:
        self._folder, self._ledger, self._tokens, self._jobs = folder, ledger, tokens, jobs
        self._forecasts = plans.Forecasts()

    def overview(self, _request: Request) -> Response:
        book, runs = read_ledger(self._ledger), runs_of.find_runs(self._folder)
        return _page("overview.html", "overview", book=book, folder=self._folder, runs=runs)

    def plan(self, request: Request) -> Response:
        form = plans.Form.of(request.query_params)
        return _page("plan.html", "plan", form=form, results=plans.results(form, self._forecasts), **plans.CHOICES)

    def plan_results(self, request: Request) -> Response:
        form = plans.Form.of(request.query_params)
        return _part("plan_results.html", results=plans.results(form, self._forecasts))

    def ledger(self, _request: Request) -> Response:
        return _page("ledger.html", "ledger", book=read_ledger(self._ledger))

    def runs(self, _request: Request) -> Response:
        return _page("runs.html", "runs", folder=self._folder, runs=runs_of.find_runs(self._folder))

    def runs_list(self, _request: Request) -> Response:
        return _part("runs_list.html", folder=self._folder, runs=runs_of.find_runs(self._folder))

    def run(self, request: Request) -> Response:
        run = self._run(request)
        accounts_now = read_ledger(self._ledger).accounts
        left = next((each["remaining"] for each in accounts_now if each["name"] == run.dataset), "")
        page, form, token = runs_of.run_page(run), GenerateForm.of(run), self._tokens.of_form
        return _page("run.html", "runs", page=page, left=left, form=form, token=token, starts=STARTS)

    def run_progress(self, request: Request) -> Response:
        return _part("progress.html", run=self._run(request))

    def texts(self, request: Request) -> Response:
        asked = request.query_params
        page = runs_of.texts_page(self._run(request), label=asked.get("label"), number=asked.get("page", "1"))
        return _page("texts.html", "runs", page=page)

    def jobs(self, _request: Request) -> Response:
        return _page("jobs.html", "jobs", **self._job())

    def job(self, _request: Request) -> Response:
        return _part("job.html", **self._job())

    def _job(self) -> dict[str, Any]:
        job = self._jobs.now
        made = None if job is None else runs_of.run_at(self._folder, job.output.root)
        return {"job": job, "made": made, "stop": f"{STARTS}stop", "token": self._tokens.of_form}

    async def start(self, request: Request) -> Response:
        """Start ``generate`` or ``report`` from a form of a run's page."""
        values, verb = await self._tokens.read_form(request), request.path_params["verb"]
        if verb not in ("generate", "report"):
            raise HTTPException(404)
        await run_in_threadpool(lambda: self._jobs.start(verb, self._run(request), values))
        return RedirectResponse("/jobs", 303)

    async def stop(self, request: Request) -> Response:
        await self._tokens.read_form(request)
        await run_in_threadpool(self._jobs.stop)
        return RedirectResponse("/jobs", 303)

    def _run(self, request: Request) -> runs_of.FoundRun:
        return runs_of.find_run(self._folder, request.path_params["run"])


def _page(template: str, section: str, *, status: int = 200, **values: Any) -> Response:
    return _part(template, status=status, section=section, sections=SECTIONS, version=__version__, **values)


def _part(template: str, *, status: int = 200, **values: Any) -> Response:
    made = environment("understudy.studio").get_template(template).render(**values)
    return HTMLResponse(visible(made), status)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name == "report.css":
        return PlainTextResponse(report_file("style.css"), media_type="text/css")
    text, kind = static_file(name)
    return PlainTextResponse(text, media_type=kind)


@lru_cache
def static_file(name: str) -> tuple[str, str]:
    """Return the text and the media type of a static file. Raises HTTPException 404 for any other name."""
    if name not in _KINDS:
        raise HTTPException(404)
    return resources.files("understudy.studio").joinpath("static", name).read_text("utf-8"), _KINDS[name]


def _wrong(_request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        known = ConfigError(*_WRONG.get(error.status_code, _NO_PAGE))
        return _page("wrong.html", "", status=error.status_code, error=known)
    return _page("wrong.html", "", status=400, error=error)


def _bug(_request: Request, error: Exception) -> Response:
    """Show an error without its traceback, which could quote a text."""
    fault = ConfigError(f"Internal error: {type(error).__name__}.", "This is a bug; please report it.")
    return _page("wrong.html", "", status=500, error=fault)


_TICKS = 4


@dataclass(frozen=True)
class Book:
    """What the page *Ledger* shows: the ledger and its datasets, or the error if it cannot be read."""

    location: str
    strict: bool
    accounts: tuple[dict[str, Any], ...]
    error: LedgerError | None = None


def read_ledger(location: str | None) -> Book:
    """Return every dataset's account; a missing ledger is not created."""
    try:
        with Ledger(location or default_location()) as ledger:
            accounts = tuple(_account(ledger, dataset, location) for dataset in ledger.datasets())
            return Book(ledger.location, ledger.strict, accounts)
    except LedgerError as error:
        return Book("", False, (), error)


def _account(ledger: Ledger, dataset: Dataset, location: str | None) -> dict[str, Any]:
    """Return a dataset's numbers, as ``understudy ledger show`` prints them, and its history, the latest first."""
    balances = ledger.account(dataset.name)
    spent = balances[-1].spent if balances else None
    secret = dataset.unit.kind == "secret"
    place = ["--ledger", ledger.location] if location else []  # without a password, which `location` may contain
    return {
        "name": dataset.name,
        "unit": unit_words(dataset),
        "rule": dataset.rule,
        "measures": ("prior", "posterior") if secret else ("epsilon", "delta"),
        "cap": numbers(dataset.cap, left=True),
        "spent": numbers(spent),
        "remaining": what_remains(dataset, ledger.remaining(dataset.name)),
        "share": min(1.0, _amount(spent) / (_amount(dataset.cap) or 1.0)),
        "chart": _chart(dataset, balances),
        "rows": tuple((*(own := each.entry.cells)[:3], both(each.spent), *own[3:]) for each in reversed(balances)),
        "opened": f"{dataset.opened_at:%Y-%m-%d %H:%M}",
        "command": shlex.join(["understudy", "ledger", "history", dataset.name, *place]),
    }


def _amount(budget: Budget | SecretBudget | None) -> float:
    if budget is None:
        return 0.0
    return float(budget.epsilon if isinstance(budget, Budget) else budget.posterior)


def _chart(dataset: Dataset, balances: list[Balance]) -> Markup:
    """Draw the spent budget as an area with steps, and the cap, if known, as a line above it."""
    if not balances:
        return Markup("")
    raised = any(balance.entry.cap is not None for balance in balances)
    start, end = dataset.opened_at, datetime.now(UTC)
    whole = max((end - start).total_seconds(), 60.0)
    spent = [(0.0, 0.0), *((_since(start, each), _amount(each.spent)) for each in balances)]
    caps = [] if raised else [(0.0, _amount(dataset.cap))]
    caps += [(_since(start, each), _amount(each.cap)) for each in balances if each.cap is not None]

    def moment(offset: float) -> str:
        form = "%d %b %Y" if whole > 3e7 else "%d %b" if whole > 4e5 else "%d %b %H:%M" if whole > 9e4 else "%H:%M"
        words = (start + timedelta(seconds=offset)).strftime(form)
        return words.lstrip("0") if "%d" in form else words

    frame = Frame(width=640, height=240, top=24, left=52)
    x = Scale((0, whole), frame.x, words=moment, marks=tuple(whole * place / _TICKS for place in range(_TICKS + 1)))
    y = Scale((0, max(value for _, value in (*spent, *caps)) * 1.1 or 1), frame.y, words=counted)
    outline = [(x(a), y(b)) for a, b in _stairs(spent, whole)]
    marks = [
        path([(x(0), y(0)), *outline, (x(whole), y(0))], class_="area synthetic"),
        path(outline, class_="line synthetic"),
    ]
    if caps:
        marks.append(path([(x(a), y(b)) for a, b in _stairs(caps, whole)], class_="chance"))
        marks.append(tag("text", "cap", x=x(whole), y=y(caps[-1][1]) - 6, text_anchor="end", class_="note"))
    marks += [tag("circle", cx=x(at), cy=y(value), r=3, class_="dot synthetic") for at, value in spent]
    measure = "posterior" if dataset.unit.kind == "secret" else "epsilon"
    times = [start, *(balance.entry.at for balance in balances)]
    said = "; ".join(f"{at:%Y-%m-%d %H:%M}: {short(value)}" for at, (_, value) in zip(times, spent, strict=True))
    return svg_image(
        f"account-{dataset.name}",
        f"Budget spent on {dataset.name}",
        f"Spent {measure} after each entry: {said}. The table has the same numbers.",
        frame,
        y_axis(frame, y, measure),
        *marks,
        x_axis(frame, x, "", inward=True),
    )


def _since(start: datetime, balance: Balance) -> float:
    return (balance.entry.at - start).total_seconds()


def _stairs(points: Sequence[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for left, value in points:
        if found:
            found.append((left, found[-1][1]))
        found.append((left, value))
    return [*found, (end, found[-1][1])] if found else []
