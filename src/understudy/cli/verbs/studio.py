"""``understudy studio``: pages in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from understudy.cli.output import say


@click.command()
@click.option("--runs", default="out", show_default=True, metavar="FOLDER", help="Folder of the runs' output folders.")
@click.option(
    "--ledger", metavar="LOCATION", help="File or URL.  [default: UNDERSTUDY_LEDGER, else a file in your state folder]"
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on this machine's loopback.  [default: any free one]"
)
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
def studio(*, runs: str, ledger: str | None, port: int, no_browser: bool) -> None:
    """Show plans, the ledger and runs in a browser on this machine, and start free jobs. It charges nothing.

    Anyone who has the printed address, with its token, sees everything that the internal report shows.
    """
    from understudy.studio.server import serve

    serve(runs=Path(runs), ledger=ledger, port=port, browser=not no_browser, show=click.echo, say=say)
