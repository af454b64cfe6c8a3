"""``understudy plan``: forecast a run."""

from __future__ import annotations

from typing import Any

import click

from understudy.cli.making import BUDGET, method_option, run_groups
from understudy.cli.options import TABLE, WRITING, ParametersCommand, config_option, given, json_option
from understudy.cli.output import answer
from understudy.run.forecast import forecast
from understudy.run.settings import run_config


@click.command(
    cls=ParametersCommand, groups=run_groups, main=(*TABLE[1:], *BUDGET, "guide", "expected_records", *WRITING)
)
@method_option
@config_option
@json_option
def plan(config: str | None, as_json: bool, **values: Any) -> None:
    """Forecast what a run would release, cost and buy. Reads no private data."""
    made = forecast(run_config(given(values, config)))
    answer(as_json, made.to_json(), made.words)
