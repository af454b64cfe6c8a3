"""Code shared by the verbs that make something: options, the method of a command line, the output folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from understudy.cli.options import METHOD, TABLE, WRITING, given, read_file, value_of
from understudy.cli.output import answer, say
from understudy.methods.registry import method_class, method_names
from understudy.run.defaults import AFTER_TABLE
from understudy.run.generating import Result
from understudy.run.settings import DEFAULT_METHOD, RUN_GROUPS, Groups, RunConfig, configured_method, run_config

BUDGET = ("epsilon", "delta", "dataset")
ADVISED = ("labels_from_data", "delimiter", "encoding", "max_bad_rows", "ledger", "expected_records", "fresh")
"""Options that the errors and messages of a first run recommend."""
MAIN = ("data", *TABLE, *BUDGET, "private_model", "guide", "engine", *WRITING, *ADVISED)


method_option = click.option(
    "--method",
    default=None,
    envvar=METHOD,
    metavar="NAME",
    help=f"{', '.join(method_names())}. [default: {DEFAULT_METHOD}]",
)


def method_of_words(args: Sequence[str]) -> type[Any]:
    """Return the method's name: from ``--method``, else from the configuration file, else the default."""
    return method_class(value_of("--method", args) or configured_method(read_file(value_of("--config", args))))


def run_groups(args: Sequence[str]) -> Groups:
    return (*RUN_GROUPS, method_of_words(args).parameters)


def settings_of(values: dict[str, Any], config: str | None) -> RunConfig:
    """Return the settings of a run; without an output folder, the run names one after the table."""
    return run_config({"output": AFTER_TABLE, **given(values, config)})


def show_result(result: Result, as_json: bool, *, table: bool) -> None:
    """Print what was made, a table or the Release alone, and say what to do next."""
    assert result.folder is not None
    folder = shlex.quote(str(result.folder.root))
    if table:
        say(f"Next: `understudy report {folder}` writes the report, `understudy show {folder}` prints the guarantee.")
    else:
        say(f"Next: `understudy generate {folder}` writes texts, `understudy show {folder}` prints the guarantee.")
    release, written = result.folder.release_file(result.release.method), result.folder.synthetic_file()
    files = {"release": str(release) if release.exists() else None, "table": str(written) if table else None}
    fields = {**result.to_json(), "output": str(result.folder.root), **files}
    answer(as_json, fields, written if table else release)
