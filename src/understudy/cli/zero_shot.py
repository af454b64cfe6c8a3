"""``understudy zero-shot``: the floor, texts without private data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from understudy.cli.listening import listener
from understudy.cli.options import ParametersCommand, given
from understudy.config import ModelParameters, OutputParameters, PlanParameters
from understudy.errors import ConfigError
from understudy.outputs import OutputFolder
from understudy.parameters import Parameters
from understudy.prompts.parameters import WritingParameters
from understudy.run.baseline import ZeroShotParameters
from understudy.run.baseline import zero_shot as write


class _ZeroShot(ParametersCommand):
    groups = (WritingParameters, ModelParameters, PlanParameters, OutputParameters)

    def method_parameters(self, method: type[Any]) -> type[Parameters]:  # noqa: ARG002 - there is no method
        return ZeroShotParameters


@click.command("zero-shot", cls=_ZeroShot)
@click.option("--config", default=None, metavar="FILE", help="YAML configuration; flags override it.")
def zero_shot(config: str | None, **values: Any) -> None:
    """Let the language model write texts from the labels alone, without private data: the floor to compare with."""
    settings = given(values, config)
    if not settings.get("output"):
        raise ConfigError("There is no folder for the results.", "Name one with --output FOLDER.")
    with listener() as told:
        write(listener=told, **settings)
    click.echo(OutputFolder(Path(settings["output"])).synthetic_file(str(settings.get("output_format", "parquet"))))
