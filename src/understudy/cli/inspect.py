"""``understudy inspect``: what a Release promises, and what came of it under the noise."""

from __future__ import annotations

import json

import click

from understudy.cli.options import MAX_RELEASE_BYTES
from understudy.cli.printable import printable
from understudy.methods.registry import load_release


@click.command()
@click.argument("release", type=str)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--max-release-bytes", type=click.IntRange(min=1), default=None, help=MAX_RELEASE_BYTES)
def inspect(release: str, as_json: bool, max_release_bytes: int | None) -> None:
    """Show the privacy statement of the Release file RELEASE."""
    made = load_release(release, max_bytes=max_release_bytes)
    if as_json:
        fields = {
            "statement": made.statement.to_json(),
            "parameters": dict(made.parameters),
            "schema": made.schema.to_json(),
            "noise_check": made.noise_check.to_json(),
        }
        click.echo(json.dumps(fields, indent=1))
        return
    click.echo(printable(made.statement.to_markdown()))
    click.echo("## What came of it\n")
    for line in made.noise_lines:
        click.echo(f"- {printable(line)}")
