"""``understudy studio``: pages in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from understudy.cli.output import say

if TYPE_CHECKING:
    pass


@click.command()
@click.option("--runs", default="out", show_default=True, metavar="FOLDER", help="Where runs put their outputs.")
@click.option(
    "--ledger", metavar="LOCATION", help="As elsewhere.  [default: UNDERSTUDY_LEDGER, else a file in your state folder]"
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on this machine's loopback.  [default: any that is free]",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
def studio(*, runs: str, ledger: str | None, port: int, no_browser: bool) -> None:
    """Show plans, the ledger and runs in a browser on this machine, and start what is free. It charges nothing.

    Whoever has the address that is printed, with its token, sees what the internal report shows.
    """
    from understudy.studio.server import serve

    serve(runs=Path(runs), ledger=ledger, port=port, browser=not no_browser, show=click.echo, say=say)
