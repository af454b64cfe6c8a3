"""``understudy init``: draft a configuration from the names of columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path

import click

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.files import PRIVATE_MODE, write_file
from understudy.cli.environment import TypedOption
from understudy.corpus.read import Kind, is_value, read_header
from understudy.schema.transcript import text_columns


@click.command()
@click.argument("table")
@click.option("--format", "kind", default=None, help="csv, tsv, jsonl or parquet, if the file's name does not say.")
@click.option("--delimiter", default=None, help="Character that separates CSV cells.")
@click.option("--encoding", default="utf-8", show_default=True, help="Encoding of CSV and JSONL.")
@click.option("--output", default=None, metavar="FILE", help="The YAML file to write. Default: standard output.")
@click.option(
    "--names-are-public",
    is_flag=True,
    cls=TypedOption,
    help="Accept column names that look like values; in a table without a header they are the first record.",
)
def init(
    table: str, kind: str | None, delimiter: str | None, encoding: str, output: str | None, names_are_public: bool
) -> None:
    """Write a configuration for TABLE, for you to fill in, from the names of its columns: no value is read."""
    columns = read_header(table, format=kind, delimiter=delimiter, encoding=encoding)
    names = [name for name, _ in columns]
    if not names_are_public and (any(map(is_value, names)) or len(set(names)) < len(names)):
        raise CorpusError(  # a "header" may be the first private row of a file without a header
            "Some names of columns look like values, or occur twice: the table seems to have no header.",
            "Give it a header row; if these are its columns, and public, say so with --names-are-public.",
        )
    told = {"format": kind, "delimiter": delimiter, "encoding": None if encoding == "utf-8" else encoding}
    text = draft(table, columns, {name: value for name, value in told.items() if value is not None})
    if output is None:
        click.echo(text, nl=False)
        return
    path = Path(output)
    if path.exists():
        raise ConfigError(f"The file {path.name!r} exists already.", "Name another with --output.")
    write_file(path, text, mode=PRIVATE_MODE)
    click.echo(path)


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
"""Words that mean people only before a word for a number, as in ``pat_id``."""
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
"""Words in column names that suggest a kind if the file does not state one."""
_ENDS = "datum anzahl menge betrag preis summe kosten gebühr gehalt lohn umsatz gewicht dauer"
"""Words of kinds that may end a longer word: ``Rechnungsbetrag``."""


def draft(data: str, columns: Sequence[tuple[str, Kind | None]], told: Mapping[str, str]) -> str:
    """Return YAML to fill in: it lists every column, and leaves every domain to be declared."""
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
        owner=(owner, f"its name contains {people[owner][1]!r}" if owner else ""),
        numbers=numbers,
        people=[name for name in rest if name in people],
        columns=[(name, _FORMS.get(kind, "[A, B, C]")) for name, kind in others],
        forms=[*list(_FORMS.values())[1:], "identifier P-####"],
        unknown=any(kind is None for _, kind in columns),
    )


def _likely(names: Sequence[str], words: Sequence[str]) -> tuple[str | None, str]:
    """Return the first name that contains one of the words, and the reason; None if there is no such name."""
    found = ((name, f"its name contains {word!r}") for word in words for name in names if word in name.casefold())
    return next(found, (None, ""))


def _words(name: str) -> list[str]:
    """Return the words of a column's name: ``Pat_ID``, ``patientNo`` and ``user-id`` have two."""
    return re.findall(r"[^\W\d_]+", re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).casefold())


def _person(name: str) -> tuple[tuple[bool, int], str] | None:
    """Return how likely a column identifies people, by its name (lower is likelier), and the word that suggests it;
    None if no word does. Such names are ``customer_id``, ``KundenNr``, ``user``, but not ``customer_type``."""
    words = _words(name)
    for first in range(len(words)):
        if found := _PERSON.fullmatch("".join(words[first:])):
            word = found[1] or found[3]
            return (not (found[2] or found[4]), (_PEOPLE + _BY_NUMBER).find(word)), word
    return None


def _numbers_rows(name: str) -> bool:
    """Return whether a column identifies rows, by its name, and so has no values to declare: ``ticket_id``."""
    words = _words(name)
    return not words or words[-1] in _ROWS.split()


def _named_kind(name: str) -> Kind | None:
    ends = {word.removesuffix("s") for word in _words(name)}.union(_words(name))

    ends |= {word for word in _ENDS.split() if any(end.endswith(word) for end in ends)}
    return next((kind for kind, words in _NAMED.items() if ends.intersection(words.split())), None)


def _quoted(name: str) -> str:
    """Return the name in YAML: unquoted if it is a plain word."""
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum() and name[0].isalpha()
    return name if plain and name.casefold() not in _WORDS else json.dumps(name, ensure_ascii=False)


_WORDS = {"yes", "no", "on", "off", "true", "false", "null", "y", "n"}
