"""``understudy schema``: the JSON Schema of the YAML configuration."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--method", default="dp-kps", show_default=True, help="Include this method's parameters.")
def schema(method: str) -> None:
    """Print the JSON Schema of the YAML configuration."""
    from understudy.config import json_schema

    click.echo(json.dumps(json_schema(method), indent=1))
