"""``understudy ledger``: what each dataset may spend, and has spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from understudy.base.display import printable
from understudy.base.errors import ConfigError
from understudy.cli.environment import TypedOption
from understudy.cli.options import ParametersCommand, given, json_option
from understudy.cli.output import answer, show_json, show_table

if TYPE_CHECKING:
    from understudy.ledger import Ledger
    from understudy.ledger.verbs import Account
    from understudy.privacy.accountant import CrossRunRule
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
    """Show and manage what each dataset may spend and has spent."""


def _open_groups(_args: Sequence[str]) -> Groups:
    from understudy.run.settings import ProtectionParameters

    return (ProtectionParameters,)


_BUDGETS = ("epsilon", "delta", "secret_prior", "secret_posterior")


@ledger.command("open", cls=ParametersCommand, groups=_open_groups, main=(*_BUDGETS, "owner", "secrets"))
@click.argument("name")
@click.option(
    "--rule",
    type=click.Choice(["basic", "rdp"]),
    help="How runs compose: basic adds stated costs, rdp puts all events in one Renyi accountant.  "
    "[default: basic; rdp for secrets]",
)
@click.option("--raise", "raises", is_flag=True, cls=TypedOption, help="Raise the cap of an open dataset.")
@json_option
@_location_option
def open_command(
    name: str, *, rule: CrossRunRule | None, raises: bool, as_json: bool, location: str | None, **values: Any
) -> None:
    """Open the dataset NAME with a cap on what all of its runs together may spend.

    The dataset's unit stays as it is opened, and its runs must have the same one: records, or with --owner COLUMN the
    owners in that column, or secrets.
    """
    from understudy.corpus.secrets import make_detectors
    from understudy.run.settings import ProtectionParameters

    flags = given(values, None)
    if raises and (rule or flags.keys() - set(_BUDGETS)):
        raise ConfigError("--raise changes only the cap.", "Leave out --rule and the options of what is protected.")
    protection = ProtectionParameters(**flags)
    make_detectors(protection.secret_detectors)
    with _ledger(location) as book:
        if raises:
            dataset = book.raise_cap(name, cap=protection.budget)
        else:
            unit = protection.unit
            if unit.kind == "secret" and unit.recognised_by is None:
                raise ConfigError(
                    "No secrets are described.",
                    "Name them with --secrets, --secrets-file or --secret-detectors, as in the runs.",
                )
            dataset = book.open_dataset(name, cap=protection.budget, unit=unit, rule=rule)
        said = f"Dataset {name} is open in {book.location}: cap {dataset.cap}, protecting one {dataset.unit.name}."
        answer(as_json, {**_facts(book), **dataset.to_json()}, said)


@ledger.command()
@click.option(
    "--strict/--no-strict",
    default=None,
    help="Refuse runs on datasets that nobody opened.  [default: unchanged; a new ledger is strict in PostgreSQL]",
)
@json_option
@_location_option
def create(*, strict: bool | None, as_json: bool, location: str | None) -> None:
    """Create a ledger; if it exists already, change only --strict."""
    from understudy.ledger import Ledger

    with Ledger.create(location, strict=strict) as book:
        answer(as_json, _facts(book), _title(book))


@ledger.command()
@click.argument("name", required=False)
@json_option
@_location_option
def show(name: str | None, *, as_json: bool, location: str | None) -> None:
    """Show the caps of one dataset or all, and how much of them is spent and left."""
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
    """List the runs that the dataset NAME was charged for, and the raises of its cap."""
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
