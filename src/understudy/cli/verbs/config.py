"""``understudy config``: the JSON Schema of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from understudy.cli.output import show_json

if TYPE_CHECKING:
    pass


_location_option = click.option(
    "--ledger",
    "location",
    metavar="LOCATION",
    help="A file, or postgresql://USER:PASSWORD@HOST/DATABASE. "
    "[default: UNDERSTUDY_LEDGER, else a file in your state folder]",
)


@click.group("config")
def config() -> None:
    """Show the JSON Schema of the YAML configuration."""


@config.command()
@click.option("--method", default="dp-kps", show_default=True, help="Include this method's parameters.")
def schema(method: str) -> None:
    """Print the JSON Schema of the YAML configuration."""
    from understudy.run.settings import json_schema

    show_json(json_schema(method))
