"""``understudy release``: make a Release."""

from __future__ import annotations

from typing import Any

import click

from understudy.cli.environment import TypedOption
from understudy.cli.making import MAIN, method_of_words, method_option, settings_of, show_result
from understudy.cli.options import ParametersCommand, config_option, json_option
from understudy.cli.output import listener
from understudy.run import pipeline
from understudy.run.settings import release_groups


@click.command(cls=ParametersCommand, groups=lambda args: release_groups(method_of_words(args)), main=MAIN)
@method_option
@config_option
@json_option
@click.option(
    "--continue",
    "resume",
    is_flag=True,
    cls=TypedOption,
    help="Use what an earlier release here has paid for and not used.",
)
def release(config: str | None, as_json: bool, resume: bool, **values: Any) -> None:
    """Make a Release of a private table: the only step that reads it."""
    settings = settings_of(values, config)
    with listener() as told:
        show_result(pipeline.release(settings, listener=told, resume=resume), as_json, table=False)
