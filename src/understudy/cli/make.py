"""``understudy run | release | generate | plan | baseline``: what makes something."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import click

from understudy.base.errors import ConfigError
from understudy.base.files import PRIVATE_MODE, atomic_file
from understudy.base.parameters import Free
from understudy.cli.environment import TypedOption
from understudy.cli.options import (
    METHOD,
    TABLE,
    WRITING,
    ParametersCommand,
    config_option,
    given,
    json_option,
    known_names,
    read_file,
    release_size_option,
    require_output,
    value_of,
)
from understudy.cli.output import answer, listener, say, show_json
from understudy.corpus.read import Kind, read_header, require_names
from understudy.methods.additions.columns.variables import RowsParameters
from understudy.methods.additions.guide.plan import ChoosingParameters
from understudy.methods.additions.topics.labelling import LabellingParameters
from understudy.methods.additions.topics.plan import NAME as TOPICS
from understudy.methods.registry import load_release, method_class, method_names
from understudy.release.reading import read_method
from understudy.run import pipeline
from understudy.run.defaults import settings_begun
from understudy.run.forecast import forecast
from understudy.run.generating import Result
from understudy.run.outputs import OutputFolder
from understudy.run.parts import Table, no_data
from understudy.run.pipeline import BaselineParameters, write_baseline
from understudy.run.settings import (
    DEFAULT_METHOD,
    RUN_GROUPS,
    WRITING_GROUPS,
    EmbedderParameters,
    Groups,
    ModelParameters,
    OutputParameters,
    PrivateModelParameters,
    RunConfig,
    configured_method,
    read_config,
    release_groups,
    run_config,
)
from understudy.schema.transcript import text_columns

_BUDGET = ("epsilon", "delta", "dataset")
_ADVISED = ("labels_from_data", "delimiter", "encoding", "max_bad_rows", "ledger", "expected_records", "fresh")
"""What errors and lines of a first run tell people to use."""
_MAIN = ("data", *TABLE, *_BUDGET, "private_model", "guide", "engine", *WRITING, *_ADVISED)


_method_option = click.option(
    "--method",
    default=None,
    envvar=METHOD,
    metavar="NAME",
    help=f"{', '.join(method_names())}. [default: {DEFAULT_METHOD}]",
)


def _method_of(args: Sequence[str]) -> type[Any]:
    """The method of a command line: of ``--method``, else of the configuration file, else the default."""
    config = value_of("--config", args)
    return method_class(value_of("--method", args) or configured_method(read_config(config) if config else {}))


def _run_groups(args: Sequence[str]) -> Groups:
    return (*RUN_GROUPS, _method_of(args).parameters)


def _ignored(args: Sequence[str]) -> tuple[str, ...]:
    """Parameters that the method of a command line does nothing with."""
    needs = _method_of(args).needs
    return () if needs.private_model or needs.generation_model else ("private_model",)


def _method_of_release(args: Sequence[str]) -> type[Any]:
    """The method of the first word that is a Release; words that are no flag's value come first."""
    words = [pair for pair in pairwise(["", *args]) if not pair[1].startswith("-") and _is_file(pair[1])]
    words.sort(key=lambda pair: pair[0].startswith("-") and "=" not in pair[0])
    file = next((word for _, word in words if is_zipfile(word)), None)
    config = value_of("--config", args)
    name = (
        read_method(Path(file))
        if file
        else configured_method(read_file(config if config and _is_file(config) else None))
    )
    return method_class(name if name in method_names() else DEFAULT_METHOD)  # loading it says that there is none


def _generate_groups(args: Sequence[str]) -> Groups:
    method = _method_of_release(args)
    model = (PrivateModelParameters,) if method.needs.generation_model else ()
    return (
        *(*WRITING_GROUPS, OutputParameters, ChoosingParameters, RowsParameters, EmbedderParameters),
        *(*model, method.generation_parameters),
    )


def _is_file(word: str) -> bool:
    """Whether a word names a regular file: a pipe would be waited for, and a device has no end."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False


@click.command()
@click.argument("table")
@click.option("--format", "kind", default=None, help="csv, tsv, jsonl or parquet, where the name does not say.")
@click.option("--delimiter", default=None, help="What separates CSV cells.")
@click.option("--encoding", default="utf-8", show_default=True, help="Encoding of CSV and JSONL.")
@click.option("--output", default=None, metavar="FILE", help="The YAML file to write. Default: standard output.")
@click.option(
    "--names-are-public",
    is_flag=True,
    cls=TypedOption,
    help="Take names of columns that look like values: in a table without a header they are the first record.",
)
def init(
    table: str, kind: str | None, delimiter: str | None, encoding: str, output: str | None, names_are_public: bool
) -> None:
    """Write a configuration for TABLE to be filled in, from the names of its columns alone: no value is read."""
    columns = read_header(table, format=kind, delimiter=delimiter, encoding=encoding)
    if not names_are_public:
        require_names([name for name, _ in columns])
    told = {"format": kind, "delimiter": delimiter, "encoding": None if encoding == "utf-8" else encoding}
    text = draft(table, columns, {name: value for name, value in told.items() if value is not None})
    if output is None:
        click.echo(text, nl=False)
        return
    path = Path(output)
    if path.exists():
        raise ConfigError(f"There is a file {path.name!r} already.", "Name another with --output.")
    with atomic_file(path, mode=PRIVATE_MODE) as file:
        file.write(text.encode())
    click.echo(path)


def _with_output(settings: RunConfig) -> RunConfig:
    """The settings; if no folder is given, with one in the working directory that is named after the table."""
    named = settings.output is not None
    if not named and not settings.data:
        raise no_data()
    name = Path(settings.data[0]).name.split(".")[0] if len(settings.data) == 1 else ""
    if not named and not _is_plain(name):
        dataset = "" if settings.dataset else ", and the dataset in the ledger with --dataset NAME"
        raise ConfigError(
            "Standard input, a pattern or several files have no one name, after which the results are called.",
            f"Name their folder with --output FOLDER{dataset}.",
        )
    settings = settings if named else settings.model_copy(update={"output": f"{name}-synthetic"})
    if (settings.dataset or len(settings.data) == 1) and not settings_begun(settings):  # which may do without its table
        settings.part(Table).require_header()  # before what else is wrong, such as labels
    if not named:
        say(f"The results go to {settings.output} (--output).")
    return settings


def _is_plain(name: str) -> bool:
    """Whether a name is one of a folder here: a Release may come from anybody."""
    return name.replace("-", "").replace("_", "").isalnum()


@click.command(cls=ParametersCommand, groups=_run_groups, main=_MAIN, ignored=_ignored)
@_method_option
@config_option
@json_option
def run(config: str | None, as_json: bool, **values: Any) -> None:
    """Make a synthetic table from a private one: release, then generate. The same command resumes a run that was
    killed."""
    settings = _with_output(run_config(given(values, config)))
    with listener() as told:
        _show(pipeline.run(settings, listener=told), as_json, table=True)


@click.command(cls=ParametersCommand, groups=_run_groups, main=_MAIN)
@_method_option
@config_option
@json_option
def check(config: str | None, as_json: bool, **values: Any) -> None:
    """Read the whole private table as a run would, and say what is wrong with it. Charges nothing.

    Counts of each fault, and where the first ones are, go to private/check.json of the output folder.
    """
    settings = _with_output(run_config(given(values, config)))
    with listener() as told:
        found = pipeline.check(settings, listener=told)
    faults = [{"problem": each.problem, "cure": each.cure} for each in found.faults]
    if as_json:
        clamped = [column.name for column in found.clamped]
        show_json({"usable": found.usable, "faults": faults, "clamped": clamped, "file": str(found.file)})
    elif found.words:
        click.echo(found.words)
    if found.refused is not None:
        raise found.refused


@click.command(cls=ParametersCommand, groups=lambda args: release_groups(_method_of(args)), main=_MAIN)
@_method_option
@config_option
@json_option
@click.option(
    "--continue",
    "resume",
    is_flag=True,
    cls=TypedOption,
    help="Use what an earlier release here has paid for and not used.",
)
def release(config: str | None, as_json: bool, resume: bool, **values: Any) -> None:
    """Make a Release of a private table: the only step that reads it."""
    settings = _with_output(run_config(given(values, config)))
    with listener() as told:
        _show(pipeline.release(settings, listener=told, resume=resume), as_json, table=False)


@click.command(cls=ParametersCommand, groups=_generate_groups, main=(*WRITING, "where"))
@click.argument("release", type=str, required=False)
@config_option
@json_option
@release_size_option
def generate(
    release: str | None, config: str | None, as_json: bool, max_release_bytes: int | None, **values: Any
) -> None:
    """Turn the Release file RELEASE (or the output folder that holds it) into synthetic texts.

    Free, any number of times, anywhere. With --config a run's own file says where its Release is.
    """
    file = read_file(config)
    if not (release := release or file.get("output")):
        raise ConfigError("No Release given.", "Name its file or folder, or --config with the file of the run.")
    made = load_release(release, max_bytes=max_release_bytes)
    taken = None if "data" in file else known_names(file)  # in a file of its own what the Release fixed is an error
    settings = given(values, config, taken=taken, of_run=("output", "fresh", "seed"))
    if not settings.get("output"):
        name = made.statement.dataset
        settings["output"] = f"{name if _is_plain(name) else made.method}-texts"
        say(f"The results go to {settings['output']} (--output).")
    with listener() as told:
        result = pipeline.generate(made, listener=told, **settings)
    _show(result, as_json, table=True)


@click.command(
    cls=ParametersCommand, groups=_run_groups, main=(*TABLE[1:], *_BUDGET, "guide", "expected_records", *WRITING)
)
@_method_option
@config_option
@json_option
def plan(config: str | None, as_json: bool, **values: Any) -> None:
    """Forecast what a run would release, cost and buy. Reads no private data."""
    made = forecast(run_config(given(values, config)))
    answer(as_json, made.to_json(), made.words)


def _topics_groups(_args: Sequence[str]) -> Groups:
    *shared, own = release_groups(method_class(TOPICS))
    groups = (each for each in shared if each is not LabellingParameters)  # its own are no labels
    return (*groups, _TitleParameters, own)


class _TitleParameters(ModelParameters):
    """The language model that gives topics titles; it sees their released terms only."""

    llm: Free[str] = "none"
    """``none`` (the names alone), ``builtin``, ``hf:ORG/NAME``, or an endpoint's model (docs/endpoints.md)."""


@click.command(
    cls=ParametersCommand,
    groups=_topics_groups,
    main=(
        "data",
        "text",
        "roles",
        "language",
        "owner",
        *_BUDGET,
        "topics",
        *_ADVISED[1:3],
        "expected_records",
        "llm",
        "output",
    ),
)
@config_option
@json_option
def topics(config: str | None, as_json: bool, **values: Any) -> None:
    """Find what a private table is about: topics with names and noisy sizes, and no text of any record.

    Writes the page release/topics.html in the output folder, which may be handed out, and prints where it is. The same
    command resumes.
    """
    from understudy.report.topics import PAGE, write_topics
    from understudy.run.topics import find_topics

    settings = _with_output(run_config({**given(values, config), "method": TOPICS}))
    with listener() as told:
        found = find_topics(settings, listener=told)
    assert found.folder is not None
    page = write_topics(found, found.folder.shareable / PAGE)
    fields = {"output": str(found.folder.root), "release": str(found.folder.release_file(TOPICS)), "page": str(page)}
    answer(as_json, {**fields, "topics": found.to_json()}, page)


@click.command(
    cls=ParametersCommand,
    groups=lambda _: (*WRITING_GROUPS, OutputParameters, BaselineParameters),
    main=("labels", *WRITING, "keywords", "keywords_are_public"),
)
@config_option
@json_option
def baseline(config: str | None, as_json: bool, **values: Any) -> None:
    """Let the language model write texts from the labels alone, without private data: the baseline to compare with."""
    settings = given(values, config)
    require_output(settings.get("output"))
    with listener() as told:
        records = write_baseline(settings, listener=told)
    table = OutputFolder(Path(settings["output"])).synthetic_file()
    answer(as_json, {"output": str(settings["output"]), "table": str(table), "records": len(records)}, table)


@click.command()
@click.argument("folder")
@click.option(
    "--to", type=click.Choice(["chat", "huggingface", "csv", "jsonl", "parquet"]), required=True, help="The form."
)
@click.option("--output", metavar="PATH", required=True, help="The file or, for huggingface, the new folder.")
@click.option("--document-type", metavar="TEXT", help="What chats call a text.  [default: as the run did]")
@click.option("--system", metavar="TEXT", help="The system message of chats.  [default: none]")
@click.option(
    "--like",
    metavar="OPTIONS",
    help="How csv and jsonl are written: source (as the private table), plain (UTF-8, commas, ISO dates), or what "
    'reads such a file: "delimiter=; encoding=cp1252 formats=de".  [default: source, if it is such a file]',
)
@click.option("--provenance", is_flag=True, help="Add what is known of each text as further columns.")
@json_option
def export(folder: str, as_json: bool, **values: Any) -> None:
    """Write the synthetic table in FOLDER, an --output folder of `run` or `generate`, in a form that others work with.

    chat: JSON lines with `messages`, for fine-tuning. huggingface: a dataset folder with a card made of the statement
    and of metrics that were released with a charge. csv, jsonl, parquet: the table, as the private one is. Nothing
    private is read, and nothing is charged.
    """
    from understudy import api

    made = api.export(folder, **values)
    answer(as_json, {"to": values["to"], "output": str(made)}, made)


def _show(result: Result, as_json: bool, *, table: bool) -> None:
    """What was made: a table, or the Release alone."""
    assert result.folder is not None
    release, written = result.folder.release_file(result.release.method), result.folder.synthetic_file()
    files = {"release": str(release) if release.exists() else None, "table": str(written) if table else None}
    fields = {**result.to_json(), "output": str(result.folder.root), **files}
    answer(as_json, fields, written if table else release)


_FORMS: dict[Kind | None, str] = {
    "boolean": "boolean",
    "integer": "{kind: integer, range: [0, 100], bins: 20}",
    "number": "{kind: number, range: [0.0, 100.0], bins: 20, decimals: 2}",
    "date": "{kind: date, range: [2024-01-01, 2024-12-31], bins: 12}",
    "datetime": '{kind: datetime, range: ["2024-01-01T00:00", "2024-12-31T23:59"], bins: 12}',
}
_TEXTS = (
    *("text", "message", "note", "body", "content", "review", "comment", "description", "dialog"),
    *("beschreibung", "nachricht", "notiz", "inhalt", "kommentar", "bemerkung", "anliegen", "befund"),
)
_LABELS = (
    *("label", "category", "class", "topic", "department", "product", "service", "type"),
    *("kategorie", "thema", "abteilung", "produkt", "bereich"),
)
_PEOPLE = """
    owner customer patient client user member membership subscriber insured policyholder person student pupil learner
    applicant participant respondent resident citizen donor visitor guest buyer seller player caller reviewer author
    writer sender kunde kundin klient mandant nutzer benutzer anwender mitglied versicherte proband teilnehmer bewerber
    bewohner bürger schüler gast autor verfasser absender einsender cliente usuario paciente utilisateur adherent
    adhérent utente paziente employee staff worker mitarbeiter beschäftigte empleado salarie salarié dipendente"""
_BY_NUMBER = "pat cust usr emp subject contact account acct personal vers kd"
"""Words that mean people only before a number of theirs."""
_KEYS = "id ids uuid guid key nr no num number nummer code kennung hash ref"
_ROWS = f"{_KEYS} row zeile index unnamed"
_PERSON = re.compile(
    "(?:({})(?:s|e|n|en|er|in|innen)?({})?(?:name|email|mail|login|account|konto)?|({})({}))".format(
        *("|".join(words.split()) for words in (_PEOPLE, _KEYS, _BY_NUMBER, _KEYS))
    )
)
_NAMED: dict[Kind, str] = {
    "boolean": "is has ist hat",
    "datetime": "timestamp datetime zeitstempel",
    "date": "date datum eingang created updated opened closed birthday geburtstag dob",
    "integer": "age alter count anzahl menge quantity qty days rating stars sterne",
    "number": """
        amount amt price paid cost fee charge total subtotal sum revenue salary income wage balance payment budget
        discount tax score weight height duration betrag preis summe kosten gebühr gehalt lohn umsatz saldo gewicht
        dauer montant prix importe precio prezzo importo eur euro usd gbp chf""",
}
"""Words of names that tell kinds where the file does not."""
_ENDS = "datum anzahl menge betrag preis summe kosten gebühr gehalt lohn umsatz gewicht dauer"
"""Those that end longer words: ``Rechnungsbetrag``."""


def draft(data: str, columns: Sequence[tuple[str, Kind | None]], told: Mapping[str, str]) -> str:
    """YAML to be filled in: every column is there, and every domain is to be declared."""
    from jinja2 import Environment, StrictUndefined

    names = [name for name, _ in columns]
    dialogues = [name for name, kind in columns if kind == "dialogue"]
    texts = dialogues or [name for name, kind in columns if kind in ("text", None)] or names
    people = {name: found for name in names if (found := _person(name))}
    kinds = {name: kind if kind in _FORMS else _named_kind(name) for name, kind in columns}
    other = [name for name in names if not (name in people or kinds[name] or _numbers_rows(name))]
    text, why = _likely([name for name in texts if name in other or name in dialogues], _TEXTS)
    if text is None and len(texts) == 1:
        text, why = texts[0], "no other column can be it"
    made = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    made.filters["quoted"] = _quoted
    made.filters["listed"] = lambda name: f"[{_quoted(name)}]" if text_columns(name) != (name,) else _quoted(name)
    made.filters["quoted_always"] = partial(json.dumps, ensure_ascii=False)
    made.filters["because"] = lambda why: f" (proposed because {why})" if why else ""
    label = _likely([name for name in other if name != text], _LABELS)
    owner = min((name for name in people if name != text), key=lambda name: people[name][0], default=None)
    written = (text, label[0], owner)
    rest = [name for name in names if name not in written]
    numbers = [name for name in rest if _numbers_rows(name) and name not in people]
    others = [(name, kinds[name]) for name in rest if name not in people and name not in numbers]
    return made.from_string(resources.files(__package__).joinpath("init.yaml").read_text("utf-8")).render(
        data=data,
        told=told,
        text=text,
        why=why,
        texts=texts,
        dialogues=dialogues,
        label=label,
        owner=(owner, f"its name has {people[owner][1]!r} in it" if owner else ""),
        numbers=numbers,
        people=[name for name in rest if name in people],
        columns=[(name, _FORMS.get(kind, "[A, B, C]")) for name, kind in others],
        forms=list(_FORMS.values())[1:],
        unknown=any(kind is None for _, kind in columns),
    )


def _likely(names: Sequence[str], words: Sequence[str]) -> tuple[str | None, str]:
    """The first name with one of the words in it, and the reason; None where there is none."""
    found = ((name, f"its name has {word!r} in it") for word in words for name in names if word in name.casefold())
    return next(found, (None, ""))


def _words(name: str) -> list[str]:
    """The words of a column's name: ``Pat_ID``, ``patientNo`` and ``user-id`` have two."""
    return re.findall(r"[^\W\d_]+", re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).casefold())


def _person(name: str) -> tuple[tuple[bool, int], str] | None:
    """How likely a column's name says that it tells people apart (the least is the likeliest), and the word that does;
    None where none does: ``customer_id``, ``KundenNr``, ``user``, but not ``customer_type``."""
    words = _words(name)
    for first in range(len(words)):
        if found := _PERSON.fullmatch("".join(words[first:])):
            word = found[1] or found[3]
            return (not (found[2] or found[4]), (_PEOPLE + _BY_NUMBER).find(word)), word
    return None


def _numbers_rows(name: str) -> bool:
    """Whether a column's name says that it tells rows apart, and so has no values to declare: ``ticket_id``."""
    words = _words(name)
    return not words or words[-1] in _ROWS.split()


def _named_kind(name: str) -> Kind | None:
    ends = {word.removesuffix("s") for word in _words(name)}.union(_words(name))

    ends |= {word for word in _ENDS.split() if any(end.endswith(word) for end in ends)}
    return next((kind for kind, words in _NAMED.items() if ends.intersection(words.split())), None)


def _quoted(name: str) -> str:
    """The name as YAML reads it back: unquoted if it is a plain word."""
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum() and name[0].isalpha()
    return name if plain and name.casefold() not in _WORDS else json.dumps(name, ensure_ascii=False)


_WORDS = {"yes", "no", "on", "off", "true", "false", "null", "y", "n"}
