"""``understudy export``: write the synthetic table in another form."""

from __future__ import annotations

from typing import Any

import click

from understudy.cli.options import json_option
from understudy.cli.output import answer


@click.command()
@click.argument("folder")
@click.option(
    "--to", type=click.Choice(["chat", "huggingface", "csv", "jsonl", "parquet"]), required=True, help="The form."
)
@click.option("--output", metavar="PATH", required=True, help="The file or, for huggingface, the new folder.")
@click.option("--document-type", metavar="TEXT", help="Word for a text in chats.  [default: that of the run]")
@click.option("--system", metavar="TEXT", help="The system message of chats.  [default: none]")
@click.option(
    "--like",
    metavar="OPTIONS",
    help="How csv and jsonl are written: source (as the private table), plain (UTF-8, commas, ISO dates), or options "
    'that read such a file: "delimiter=; encoding=cp1252 formats=de".  [default: source, if it is such a file]',
)
@click.option("--provenance", is_flag=True, help="Add what is known of each text as further columns.")
@json_option
def export(folder: str, as_json: bool, **values: Any) -> None:
    """Write the synthetic table in FOLDER, an --output folder of `run` or `generate`, in another format.

    chat: JSON lines with `messages`, for fine-tuning. huggingface: a dataset folder with a card made from the statement
    and the metrics that were released with a charge. csv, jsonl, parquet: the table, laid out like the private one.
    Nothing private is read, and nothing is charged.
    """
    from understudy import api

    made = api.export(folder, **values)
    answer(as_json, {"to": values["to"], "output": str(made)}, made)
