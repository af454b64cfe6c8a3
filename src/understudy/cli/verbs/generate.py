"""``understudy generate``: turn a Release into texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import click

from understudy.base.errors import ConfigError
from understudy.cli.making import show_result
from understudy.cli.options import (
    WRITING,
    ParametersCommand,
    config_option,
    given,
    json_option,
    known_names,
    read_file,
    release_size_option,
    value_of,
)
from understudy.cli.output import listener, say
from understudy.methods.additions.columns.variables import RowsParameters
from understudy.methods.additions.guide.plan import ChoosingParameters
from understudy.methods.registry import load_release, method_class, method_names
from understudy.release.reading import read_method
from understudy.run import pipeline
from understudy.run.defaults import is_plain
from understudy.run.settings import (
    DEFAULT_METHOD,
    WRITING_GROUPS,
    EmbedderParameters,
    Groups,
    OutputParameters,
    PrivateModelParameters,
    SigningParameters,
    configured_method,
)


def _method_of_release(args: Sequence[str]) -> type[Any]:
    """Return the method of the first word that is a Release; words that are not a flag's value are tried first."""
    words = [pair for pair in pairwise(["", *args]) if not pair[1].startswith("-") and _is_file(pair[1])]
    words.sort(key=lambda pair: pair[0].startswith("-") and "=" not in pair[0])
    file = next((word for _, word in words if is_zipfile(word)), None)
    config = value_of("--config", args)
    name = (
        read_method(Path(file))
        if file
        else configured_method(read_file(config if config and _is_file(config) else None))
    )
    return method_class(name if name in method_names() else DEFAULT_METHOD)  # loading it raises the error


def _generate_groups(args: Sequence[str]) -> Groups:
    method = _method_of_release(args)
    model = (PrivateModelParameters,) if method.needs.generation_model else ()
    return (
        *(*WRITING_GROUPS, OutputParameters, ChoosingParameters, RowsParameters, EmbedderParameters),
        *(SigningParameters, *model, method.generation_parameters),
    )


def _is_file(word: str) -> bool:
    """Return whether a word names a regular file: reading a pipe would block, and a device has no end."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False


@click.command(cls=ParametersCommand, groups=_generate_groups, main=(*WRITING, "where"))
@click.argument("release", type=str, required=False)
@config_option
@json_option
@release_size_option
def generate(
    release: str | None, config: str | None, as_json: bool, max_release_bytes: int | None, **values: Any
) -> None:
    """Turn the Release file RELEASE (or the output folder that contains it) into synthetic texts.

    Free, any number of times, anywhere. With --config the run's configuration names the folder of its Release.
    """
    file = read_file(config)
    if not (release := release or file.get("output")):
        raise ConfigError("No Release given.", "Name its file or folder, or --config with the file of the run.")
    made = load_release(release, max_bytes=max_release_bytes)
    taken = None if "data" in file else known_names(file)  # else what the Release fixed is an error
    settings = given(values, config, taken=taken, of_run=("output", "fresh", "seed"))
    if not settings.get("output"):
        name = made.statement.dataset
        settings["output"] = f"{name if is_plain(name) else made.method}-texts"
        say(f"The results go to {settings['output']} (--output).")
    with listener() as told:
        result = pipeline.generate(made, listener=told, **settings)
    show_result(result, as_json, table=True)
