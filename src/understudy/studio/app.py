"""The studio's pages by their addresses."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from understudy import __version__
from understudy.base.errors import ConfigError, UnderstudyError
from understudy.report.grids import BETTER, SIGNS
from understudy.report.page import environment, report_file, visible
from understudy.studio import accounts, plans
from understudy.studio import runs as runs_of
from understudy.studio.guard import STARTS, Guard, Tokens
from understudy.studio.jobs import GenerateForm, Jobs

SECTIONS = {"plan": "Plan", "ledger": "Ledger", "runs": "Runs", "jobs": "Jobs"}
_WRONG = {403: ("This form was not sent by the studio's page.", "Open the page again, and send it from there.")}
_NO_PAGE = ("There is no such page.", "Choose one from the menu.")
_KINDS = {"studio.css": "text/css", "studio.js": "text/javascript", "icon.svg": "image/svg+xml"}


def make_app(*, runs: Path, ledger: str | None, tokens: Tokens, jobs: Jobs) -> Guard:
    """The studio over one folder of runs and one ledger."""
    pages = _Pages(runs, ledger, tokens, jobs)
    routes = [
        Route("/", lambda _: RedirectResponse("/plan", 303)),
        Route("/static/{name}", _static),
        Route("/plan", pages.plan),
        Route("/plan/results", pages.plan_results),
        Route("/ledger", pages.ledger),
        Route("/runs", pages.runs),
        Route("/runs/list", pages.runs_list),
        Route("/runs/compare", pages.compare),
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
    """Each a function from a request to a page; they run in threads, so that a slow one holds up no other."""

    def __init__(self, folder: Path, ledger: str | None, tokens: Tokens, jobs: Jobs) -> None:
        self._folder, self._ledger, self._tokens, self._jobs = folder, ledger, tokens, jobs
        self._forecasts = plans.Forecasts()

    def plan(self, request: Request) -> Response:
        form = plans.Form.of(request.query_params)
        return _page("plan.html", "plan", form=form, results=plans.results(form, self._forecasts), **plans.CHOICES)

    def plan_results(self, request: Request) -> Response:
        form = plans.Form.of(request.query_params)
        return _part("plan_results.html", results=plans.results(form, self._forecasts))

    def ledger(self, _request: Request) -> Response:
        return _page("ledger.html", "ledger", book=accounts.read_ledger(self._ledger))

    def runs(self, _request: Request) -> Response:
        return _page("runs.html", "runs", folder=self._folder, runs=runs_of.find_runs(self._folder))

    def runs_list(self, _request: Request) -> Response:
        return _part("runs_list.html", folder=self._folder, runs=runs_of.find_runs(self._folder))

    def run(self, request: Request) -> Response:
        run = self._run(request)
        accounts_now = accounts.read_ledger(self._ledger).accounts
        left = next((each["remaining"] for each in accounts_now if each["name"] == run.dataset), "")
        page, form, token = runs_of.run_page(run), GenerateForm.of(run), self._tokens.of_form
        return _page("run.html", "runs", page=page, left=left, form=form, token=token, starts=STARTS)

    def run_progress(self, request: Request) -> Response:
        return _part("progress.html", run=self._run(request))

    def texts(self, request: Request) -> Response:
        asked = request.query_params
        page = runs_of.texts_page(self._run(request), label=asked.get("label"), number=asked.get("page", "1"))
        return _page("texts.html", "runs", page=page)

    def compare(self, request: Request) -> Response:
        chosen = [runs_of.find_run(self._folder, each) for each in request.query_params.getlist("run")]
        return _page("compare.html", "runs", comparison=runs_of.compare(chosen))

    def jobs(self, _request: Request) -> Response:
        return _page("jobs.html", "jobs", **self._job())

    def job(self, _request: Request) -> Response:
        return _part("job.html", **self._job())

    def _job(self) -> dict[str, Any]:
        job = self._jobs.now
        made = None if job is None else runs_of.run_at(self._folder, job.output.root)
        return {"job": job, "made": made, "stop": f"{STARTS}stop", "token": self._tokens.of_form}

    async def start(self, request: Request) -> Response:
        """``generate`` or ``report``, by a form of a run's page."""
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
    made = environment("understudy.studio").get_template(template).render(signs=SIGNS, better=BETTER, **values)
    return HTMLResponse(visible(made), status)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name == "report.css":
        return PlainTextResponse(report_file("style.css"), media_type="text/css")
    text, kind = static_file(name)
    return PlainTextResponse(text, media_type=kind)


@lru_cache
def static_file(name: str) -> tuple[str, str]:
    """The text and the media type of one of them; HTTPException 404 for any other name."""
    if name not in _KINDS:
        raise HTTPException(404)
    return resources.files("understudy.studio").joinpath("static", name).read_text("utf-8"), _KINDS[name]


def _wrong(_request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        known = ConfigError(*_WRONG.get(error.status_code, _NO_PAGE))
        return _page("wrong.html", "", status=error.status_code, error=known)
    return _page("wrong.html", "", status=400, error=error)


def _bug(_request: Request, error: Exception) -> Response:
    """No traceback, which could quote a text."""
    fault = ConfigError(f"Internal error: {type(error).__name__}.", "This is a bug; please report it.")
    return _page("wrong.html", "", status=500, error=fault)
