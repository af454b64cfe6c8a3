"""``understudy show``: show the statement of a Release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.base.display import printable
from understudy.cli.options import json_option, release_size_option
from understudy.cli.output import show_json

if TYPE_CHECKING:
    from understudy.release import Release


@click.command()
@click.argument("release", type=str)
@json_option
@release_size_option
def show(release: str, as_json: bool, max_release_bytes: int | None) -> None:
    """Show the privacy statement of the Release file RELEASE, or of an output folder."""
    from understudy.base.files import require_path
    from understudy.methods.registry import load_release
    from understudy.release.statement import load_statement
    from understudy.run.outputs import schema_of_table

    shareable = Path(require_path(release)) / "release"
    if (stated := shareable / "statement.json").is_file() and not any(shareable.glob("*.release")):  # of `generate`
        statement, schema = load_statement(stated), schema_of_table(shareable)
        if as_json:
            show_json({"statement": statement.to_json(), "schema": schema and schema.to_json()})
        else:
            click.echo(printable(statement.to_markdown(labelled=schema is not None and schema.label is not None)))
        return
    made = load_release(release, max_bytes=max_release_bytes)
    if as_json:
        parts: dict[str, Any] = {"statement": made.statement, "schema": made.schema, "noise_check": made.noise_check}
        show_json({name: part.to_json() for name, part in parts.items()} | {"parameters": dict(made.parameters)})
        return
    click.echo(printable(made.statement.to_markdown(labelled=made.schema.label is not None)))
    for title, lines in {"Topics": _topics(made), "Result": made.noise_lines}.items():
        if lines:
            click.echo("\n".join([f"## {title}\n", *(f"- {printable(line)}" for line in lines), ""]))


def _topics(made: Release) -> list[str]:
    """Return a line per topic that the Release found, the largest first; none for another Release."""
    from understudy.methods.additions.topics.found import by_share, topics_of
    from understudy.methods.additions.topics.plan import NAME

    if made.method != NAME and not made.schema.topics:
        return []
    return [
        f"{each.name}: {share:.0%}, {each.size:,.0f} ({each.low:,.0f} to {each.high:,.0f})"
        + ("" if each.clear else "; too small to tell from the noise")
        for each, share in by_share(topics_of(made))
    ]
