"""``understudy plan | release | run``: the verbs that know the private table (``plan`` does not read it)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from understudy import run as running
from understudy.cli.listening import listener
from understudy.cli.options import ParametersCommand, given
from understudy.config import GROUPS, RunConfig, release_groups, run_config
from understudy.errors import ConfigError
from understudy.parameters import Parameters
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.run.forecast import Forecast, forecast


class _Plan(ParametersCommand):
    groups = GROUPS["plan"]


class _Release(ParametersCommand):
    groups = GROUPS["release"]

    def groups_of(self, method: type[Any]) -> Sequence[type[Parameters]]:
        return release_groups(method)


class _Run(ParametersCommand):
    groups = GROUPS["run"]


_METHOD = click.option("--method", default=None, help="The method. [default: dp-kps]")
_CONFIG = click.option("--config", default=None, metavar="FILE", help="YAML configuration; flags override it.")


@click.command(cls=_Plan)
@_METHOD
@_CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(config: str | None, as_json: bool, **values: Any) -> None:
    """Show what a run would release, what it costs and what the budget buys. Reads no private data."""
    made = forecast(run_config(given(values, config)))
    click.echo(json.dumps(made.to_json(), indent=1) if as_json else _table(made))


@click.command(cls=_Release)
@_METHOD
@_CONFIG
@click.option("--continue", "resume", is_flag=True, help="Use what an earlier release here has paid for and not used.")
def release(config: str | None, resume: bool, **values: Any) -> None:
    """Make a Release of a private table: the only step that reads it."""
    settings = run_config(given(values, config))
    with listener() as told:
        result = running.release(_with_output(settings), listener=told, resume=resume)
    assert result.folder is not None
    click.echo(result.folder.release_file(result.release.method))


@click.command(cls=_Run)
@_METHOD
@_CONFIG
def run(config: str | None, **values: Any) -> None:
    """From a private table to a synthetic one. The same command resumes a run that was killed."""
    settings = run_config(given(values, config))
    with listener() as told:
        result = running.run(_with_output(settings), listener=told)
    assert result.folder is not None
    click.echo(result.folder.synthetic_file(settings.output_format))


def _with_output(config: RunConfig) -> RunConfig:
    if config.output is None:
        raise ConfigError("There is no folder for the results.", "Name one with --output FOLDER.")
    return config


def _table(made: Forecast) -> str:
    lines = [
        f"Method {made.plan.method}, budget {made.plan.budget}, protecting {made.plan.unit.describe()}.",
        "",
        "Charges, in order:",
        *(f"  {charge.name}: {charge.why} ({charge.event})" for charge in made.plan.charges),
        f"  together: {_together(made.plan)}",
        "",
        "What the budget buys:",
        *(f"  {line}" for facts in (made.plan.forecast, made.calls) for line in facts.lines()),
    ]
    return "\n".join(lines)


def _together(plan: Plan) -> str:
    if isinstance(plan.budget, SecretBudget):
        return f"posterior {plan.total:.6g} at prior {float(plan.budget.prior):g}"
    return f"epsilon {plan.total:.6g} at delta {float(plan.budget.delta):g}"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
