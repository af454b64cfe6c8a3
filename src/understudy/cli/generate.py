"""``understudy generate``: a Release into synthetic texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import click

from understudy import run as running
from understudy.cli.listening import listener
from understudy.cli.options import MAX_RELEASE_BYTES, ParametersCommand, given
from understudy.config import DEFAULT_METHOD, EmbedderParameters, ModelParameters, OutputParameters, PlanParameters
from understudy.errors import ConfigError
from understudy.methods.registry import load_release, method_names
from understudy.parameters import Parameters
from understudy.prompts.parameters import WritingParameters
from understudy.release.reading import read_method


class _Generate(ParametersCommand):
    groups = (WritingParameters, ModelParameters, PlanParameters, OutputParameters)

    def method_of(self, args: Sequence[str]) -> str:
        """That of the Release: the first word that is one, of those that are no flag's value if there are such."""
        words = [pair for pair in pairwise(["", *args]) if not pair[1].startswith("-") and _is_file(pair[1])]
        words.sort(key=lambda pair: pair[0].startswith("-") and "=" not in pair[0])
        file = next((word for _, word in words if is_zipfile(word)), None)
        name = DEFAULT_METHOD if file is None else read_method(Path(file))
        return name if name in method_names() else DEFAULT_METHOD  # loading it says that there is no such method

    def groups_of(self, method: type[Any]) -> Sequence[type[Parameters]]:
        return (*self.groups, *((EmbedderParameters,) if method.needs.generation_embedder else ()))

    def method_parameters(self, method: type[Any]) -> type[Parameters]:
        """Those that are free."""
        parameters: type[Parameters] = method.generation_parameters
        return parameters


@click.command(cls=_Generate)
@click.argument("release", type=str)
@click.option("--config", default=None, metavar="FILE", help="YAML configuration; flags override it.")
@click.option("--max-release-bytes", type=click.IntRange(min=1), default=None, help=MAX_RELEASE_BYTES)
def generate(release: str, config: str | None, max_release_bytes: int | None, **values: Any) -> None:
    """Turn the Release file RELEASE into synthetic texts. Free, any number of times, wherever it is sent."""
    made = load_release(release, max_bytes=max_release_bytes)
    settings = given(values, config)
    if not settings.get("output"):
        raise ConfigError("There is no folder for the results.", "Name one with --output FOLDER.")
    with listener() as told:
        result = running.generate(made, listener=told, **settings)
    assert result.folder is not None
    click.echo(result.folder.synthetic_file(str(settings.get("output_format", "parquet"))))


def _is_file(word: str) -> bool:
    """Whether a word names a regular file: a pipe would be waited for, and a device has no end."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False
