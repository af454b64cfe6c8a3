"""``understudy run``: from a private table to a synthetic one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from understudy.cli.making import MAIN, method_of_words, method_option, run_groups, settings_of, show_result
from understudy.cli.options import ParametersCommand, config_option, json_option
from understudy.cli.output import listener
from understudy.run import pipeline


def _ignored(args: Sequence[str]) -> tuple[str, ...]:
    """Return the parameters that the method of a command line does not use."""
    needs = method_of_words(args).needs
    return () if needs.private_model or needs.generation_model else ("private_model",)


@click.command(cls=ParametersCommand, groups=run_groups, main=MAIN, ignored=_ignored)
@method_option
@config_option
@json_option
def run(config: str | None, as_json: bool, **values: Any) -> None:
    """Make a synthetic table from a private one: release, then generate. The same command resumes a run that was
    killed."""
    settings = settings_of(values, config)
    with listener() as told:
        show_result(pipeline.run(settings, listener=told), as_json, table=True)
