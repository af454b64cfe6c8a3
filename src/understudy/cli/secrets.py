"""``understudy secrets``: which records hold which secret, and in how many a secret is. Both read the private table."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from understudy.cli.options import given, options_of
from understudy.config import DataParameters, run_config
from understudy.corpus import Corpus, read_corpus
from understudy.corpus.secrets import SecretFinder, incidence, records_per_secret, secret_finder
from understudy.errors import ConfigError
from understudy.files import PRIVATE_MODE, atomic_file, private_folder, require_local

COUNTS_FILE = "secret_counts.json"
_MOST_COMMON = 20
_BOUNDS = {"max_records_per_owner", "max_records_per_secret"}
_NO_TABLE = _BOUNDS | {"data", "secrets_file", "secret_detectors"}
_FLAGS: list[click.Parameter] = [option for option in options_of(DataParameters) if option.name not in _BOUNDS]
_CONFIG = click.option("--config", default=None, metavar="FILE", help="YAML configuration; flags override it.")

_INCIDENCE_NOTE = """\
This file says which record holds which secret, and how many records there are. Whoever runs `--incidence public` with
it declares all of that to be public: look whether you may. The secrets themselves are not in it and stay private."""
_COUNT_NOTE = """\
These counts are private: they are not protected by any noise, and the file quotes secrets. A cap on records per secret
(--max-records-per-secret) becomes public: choose it from what is known beyond this table (how often a customer can
write, say), not as the number found here."""


@click.group("secrets")
def secrets() -> None:
    """Secrets of a private table: the incidence file, and counts for its owner."""


@secrets.command("incidence", params=[*_FLAGS])
@click.option("--output", default=None, metavar="FILE", help="The Parquet file to write.")
@_CONFIG
def incidence_command(output: str | None, *, config: str | None, **values: Any) -> None:
    """Write which record holds which secret, by numbers alone: a file that you declare public."""
    target = _target(output, "FILE")
    with _corpus(data := _data(values, config), None) as corpus:
        made = incidence(corpus, _finder(corpus, data))
    target.parent.mkdir(parents=True, exist_ok=True)
    made.write(target)
    click.echo(_INCIDENCE_NOTE, err=True)
    click.echo(target)


@secrets.command("count", params=[*_FLAGS])
@click.option("--output", default=None, metavar="FOLDER", help="The folder in whose private part the counts are kept.")
@_CONFIG
def count(output: str | None, *, config: str | None, **values: Any) -> None:
    """Count the records of each secret, into a private file: to see which strings are no secrets."""
    folder = private_folder(_target(output, "FOLDER") / "private")
    with _corpus(data := _data(values, config), folder) as corpus:
        counts = records_per_secret(corpus, _finder(corpus, data))
    written = {
        "most_records": max(counts.values(), default=0),
        "secrets_by_records": dict(sorted(Counter(counts.values()).items())),
        "most_common": dict(counts.most_common(_MOST_COMMON)),
    }
    target = folder / COUNTS_FILE
    with atomic_file(target, mode=PRIVATE_MODE) as stream:
        stream.write(json.dumps(written, indent=1, ensure_ascii=False).encode("utf-8"))
    click.echo(_COUNT_NOTE, err=True)
    click.echo(target)


def _target(output: str | None, kind: str) -> Path:
    if output is None:
        raise ConfigError("It is not said where to write.", f"Name it with --output {kind}.")
    require_local(output)
    return Path(output)


def _data(values: dict[str, Any], config: str | None) -> DataParameters:
    data: DataParameters = run_config(given(values, config)).part(DataParameters)
    if not data.data:
        raise ConfigError("No private data are named.", "Give them with --data FILE.")
    return data


def _corpus(data: DataParameters, private: Path | None) -> Corpus:
    source = data.data[0] if len(data.data) == 1 else data.data
    return read_corpus(source, **data.model_dump(exclude=_NO_TABLE), private_dir=private)


def _finder(corpus: Corpus, data: DataParameters) -> SecretFinder:
    return secret_finder(corpus, file=data.secrets_file, detectors=data.secret_detectors)
