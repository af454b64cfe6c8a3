"""``understudy generate``: a Release into synthetic texts."""

from __future__ import annotations

from typing import Any

import click

from understudy import run as running
from understudy.cli.listening import listener
from understudy.cli.options import ParametersCommand, given, options_of
from understudy.config import ModelParameters, OutputParameters, PlanParameters
from understudy.errors import ConfigError
from understudy.generation.parameters import WritingParameters
from understudy.methods.registry import method_class
from understudy.release import load_release


class _Generate(ParametersCommand):
    groups = (WritingParameters, ModelParameters, PlanParameters, OutputParameters)
    takes_method = False

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        free = options_of(method_class("dp-kps").generation_parameters)
        return [*own, *(option for option in free if option.name not in {parameter.name for parameter in own})]


@click.command(cls=_Generate)
@click.argument("release", type=str)
@click.option("--config", default=None, metavar="FILE", help="YAML configuration; flags override it.")
def generate(release: str, config: str | None, **values: Any) -> None:
    """Turn the Release file RELEASE into synthetic texts. Free, any number of times, wherever it is sent."""
    made = load_release(release)
    settings = given(values, config)
    if not settings.get("output"):
        raise ConfigError("There is no folder for the results.", "Name one with --output FOLDER.")
    with listener() as told:
        result = running.generate(made, settings, listener=told)
    assert result.folder is not None
    click.echo(result.folder.synthetic_file(str(settings.get("output_format", "parquet"))))
