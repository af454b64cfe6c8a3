"""``understudy baseline``: texts from the labels alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from understudy.base.errors import ConfigError
from understudy.cli.options import WRITING, ParametersCommand, config_option, given, json_option
from understudy.cli.output import answer, listener
from understudy.run.baseline import BaselineParameters, write_baseline
from understudy.run.outputs import OutputFolder
from understudy.run.settings import WRITING_GROUPS, OutputParameters


@click.command(
    cls=ParametersCommand,
    groups=lambda _: (*WRITING_GROUPS, OutputParameters, BaselineParameters),
    main=("labels", *WRITING, "keywords", "keywords_are_public"),
)
@config_option
@json_option
def baseline(config: str | None, as_json: bool, **values: Any) -> None:
    """Let the language model write texts from the labels alone, without private data: the baseline to compare with."""
    settings = given(values, config)
    if not settings.get("output"):
        raise ConfigError("No output folder given.", "Name it with --output FOLDER.")
    with listener() as told:
        records = write_baseline(settings, listener=told)
    table = OutputFolder(Path(settings["output"])).synthetic_file()
    answer(as_json, {"output": str(settings["output"]), "table": str(table), "records": len(records)}, table)
