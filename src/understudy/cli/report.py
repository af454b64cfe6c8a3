"""``understudy report``: runs as pages to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from understudy.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from understudy.models.types import Embedder

DEFAULT_EMBEDDER = "builtin"


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--compare", is_flag=True, help="One page that compares the runs: accuracy against epsilon.")
@click.option("--output", metavar="FILE", help="Where the comparison goes.")
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="A run's name in the comparison; once a RUN, in order."
)
@click.option("--shareable", is_flag=True, help="Compare only figures that were released with a charge.")
@click.option(
    "--embedder", metavar="SPEC", help="Of topics and the map.  [default: builtin, or without it the texts' words]"
)
@click.option("--seed", type=int, default=0, show_default=True, help="Steers the map and which texts are shown.")
def report(
    runs: tuple[str, ...],
    *,
    compare: bool,
    output: str | None,
    names: tuple[str, ...],
    shareable: bool,
    embedder: str | None,
    seed: int,
) -> None:
    """Write the report of each RUN, an --output folder of `run`, `release` or `generate`, and print where it is.

    release/report.html may be handed out; private/report.html is written too where something was measured on private
    texts, and stays inside.
    """
    from understudy.outputs import OutputFolder
    from understudy.report import write_comparison, write_reports
    from understudy.report.contents import read_statement

    if compare:
        if output is None:
            raise ConfigError("There is no file for the comparison.", "Name one with --output FILE.")
        folders = [Path(run) for run in runs]
        click.echo(write_comparison(folders, Path(output), names=names or None, shareable=shareable))
        return
    if output is not None or names or shareable:
        raise ConfigError(
            "--output, --name and --shareable belong to a comparison.", "Add --compare, or leave them out."
        )
    written = [OutputFolder(Path(run)) for run in runs]
    for folder in written:
        read_statement(folder.shareable)  # a wrong path is told before seconds go into loading a model
    loaded = _embedder(embedder)
    for folder in written:
        paths = write_reports(folder, embedder=loaded, seed=seed)
        click.echo(paths.shareable)
        if paths.internal is not None:
            click.echo(paths.internal)


def _embedder(spec: str | None) -> Embedder | None:
    """The embedder that is asked for; else the built-in one, where it is there."""
    from understudy.models.catalog import load_embedder

    try:
        return load_embedder(spec or DEFAULT_EMBEDDER)
    except ModelError:
        if spec is not None:
            raise
        click.echo("Built-in embedding model not installed; using TF-IDF for topics and the map.", err=True)
        return None
