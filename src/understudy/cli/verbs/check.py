"""``understudy check``: read a table as a run would."""

from __future__ import annotations

from typing import Any

import click

from understudy.cli.making import MAIN, method_option, run_groups, settings_of
from understudy.cli.options import ParametersCommand, config_option, json_option
from understudy.cli.output import listener, show_json
from understudy.run.check import check as read_and_check


@click.command(cls=ParametersCommand, groups=run_groups, main=MAIN)
@method_option
@config_option
@json_option
def check(config: str | None, as_json: bool, **values: Any) -> None:
    """Read the whole private table as a run would, and say what is wrong with it. Charges nothing.

    Counts of each fault, and where the first ones are, go to private/check.json of the output folder.
    """
    settings = settings_of(values, config)
    with listener() as told:
        found = read_and_check(settings, listener=told)
    faults = [{"problem": each.problem, "cure": each.cure} for each in found.faults]
    if as_json:
        clamped = [column.name for column in found.clamped]
        show_json({"usable": found.usable, "faults": faults, "clamped": clamped, "file": str(found.file)})
    elif found.words:
        click.echo(found.words)
    if found.refused is not None:
        raise found.refused
