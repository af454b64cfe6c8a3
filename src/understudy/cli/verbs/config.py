"""``understudy config``: the JSON Schema of the configuration."""

from __future__ import annotations

import click

from understudy.cli.output import show_json


@click.group("config")
def config() -> None:
    """Show the JSON Schema of the YAML configuration."""


@config.command()
@click.option("--method", default="dp-kps", show_default=True, help="Include this method's parameters.")
def schema(method: str) -> None:
    """Print the JSON Schema of the YAML configuration."""
    from understudy.run.settings import json_schema

    show_json(json_schema(method))
