"""``understudy secrets``: the incidence file, and counts for the owner."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.base.errors import ConfigError
from understudy.cli.options import ParametersCommand, config_option, given, json_option
from understudy.cli.output import answer, say

if TYPE_CHECKING:
    from understudy.run.parts import Table
    from understudy.run.settings import Groups


COUNTS_FILE = "secret_counts.json"
_MOST_COMMON = 20
_INCIDENCE_NOTE = """\
This file says which record contains which secret, and how many records there are. By running `--incidence public` with
it, you declare all of that public: check that you may. The secrets themselves are not in it and stay private."""
_COUNT_NOTE = """\
These counts are private: they are not protected by any noise, and the file quotes secrets. A cap on records per secret
(--max-records-per-secret) becomes public: choose it from facts known outside this table (such as how often a customer
can write), not from the numbers found here."""


def _secrets_groups(_args: Sequence[str]) -> Groups:
    from understudy.run.settings import DataParameters, ProtectionParameters

    return (DataParameters, ProtectionParameters)


_SECRETS: dict[str, Any] = {
    "cls": ParametersCommand,
    "groups": _secrets_groups,
    "main": (
        *("data", "text", "record_columns", "label", "labels", "delimiter", "encoding"),
        *("secrets", "secrets_file", "secret_detectors"),
    ),
    "without": (
        *("epsilon", "delta", "secret_prior", "secret_posterior"),
        *("max_records_per_owner", "max_records_per_secret"),
    ),
}


@click.group("secrets")
def secrets() -> None:
    """Count the secrets of a private table, or write the incidence file."""


@secrets.command("incidence", **_SECRETS)
@click.option("--output", default=None, metavar="FILE", help="The Parquet file to write.")
@config_option
@json_option
def incidence_command(output: str | None, *, config: str | None, as_json: bool, **values: Any) -> None:
    """Write which record contains which secret, as numbers only: a file that you declare public."""
    from understudy.corpus.secrets import incidence

    target = _target(output, "FILE")
    with (table := _table(values, config)).open(None) as corpus:
        made = incidence(corpus, table.finder(corpus))
    target.parent.mkdir(parents=True, exist_ok=True)
    made.write(target)
    _wrote(target, _INCIDENCE_NOTE, as_json)


@secrets.command("count", **_SECRETS)
@click.option("--output", default=None, metavar="FOLDER", help="Folder for the counts (in its private/ folder).")
@config_option
@json_option
def count(output: str | None, *, config: str | None, as_json: bool, **values: Any) -> None:
    """Count the records of each secret, into a private file, to see which strings are not secrets."""
    from understudy.base.files import PRIVATE_MODE, write_file
    from understudy.corpus.secrets import records_per_secret
    from understudy.ledger.locking import is_in_use
    from understudy.run.outputs import OutputFolder
    from understudy.run.session import remove_leftovers

    folder = OutputFolder(_target(output, "FOLDER")).make_private()
    if not is_in_use(folder):
        remove_leftovers(folder)
    with (table := _table(values, config)).open(folder) as corpus:
        counts = records_per_secret(corpus, table.finder(corpus))
    written = {
        "most_records": max(counts.values(), default=0),
        "secrets_by_records": dict(sorted(Counter(counts.values()).items())),
        "most_common": dict(counts.most_common(_MOST_COMMON)),
    }
    target = folder / COUNTS_FILE
    write_file(target, json.dumps(written, indent=1, ensure_ascii=False), mode=PRIVATE_MODE)
    _wrote(target, _COUNT_NOTE, as_json)


def _target(output: str | None, kind: str) -> Path:
    from understudy.base.files import require_local

    if not output:
        raise ConfigError(f"No output {kind.lower()} given.", f"Name it with --output {kind}.")
    require_local(output)
    return Path(output)


def _wrote(target: Path, note: str, as_json: bool) -> None:
    say(note)
    answer(as_json, {"file": str(target)}, target)


def _table(values: dict[str, Any], config: str | None) -> Table:
    from understudy.run.parts import Table
    from understudy.run.settings import run_config

    return Table.of(run_config(given(values, config)))
