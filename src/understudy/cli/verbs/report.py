"""``understudy report``: write the report of a run."""

from __future__ import annotations

from typing import Any

import click

from understudy.base.errors import ConfigError
from understudy.cli.options import config_option, json_option, read_file, require_no_configuration
from understudy.cli.output import answer


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1)
@config_option
@click.option("--embedder", metavar="SPEC", help="For topics and the map.  [default: builtin, or TF-IDF without it]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the map and the choice of texts.")
@click.option("--responsible", metavar="NAME", default="", help="Name of the person who answers for the release.")
@click.option("--ledger", metavar="LOCATION", help="Ledger of the runs; the internal report says what was left.")
@click.option("--sign", metavar="KEY", help="Private key that signs the shareable files, including the report.")
@json_option
def report(runs: tuple[str, ...], *, config: str | None, as_json: bool, **values: Any) -> None:
    """Write the report of each RUN, an --output folder of `run`, `release` or `generate`, and print where it is.

    You may hand out release/report.html. If anything was measured on private texts, private/report.html is written
    too; keep that one inside.
    """
    from understudy import api

    require_no_configuration(runs)
    if not runs and not (file := read_file(config)).get("output"):
        raise ConfigError("No run given.", "Name its output folder, or --config with the file of the run.")
    runs = runs or (str(file["output"]),)
    made = api.report(*runs, **values)
    reports = [{name: None if page is None else str(page) for name, page in vars(each).items()} for each in made]
    answer(as_json, {"reports": reports}, *(page for each in reports for page in each.values() if page is not None))
