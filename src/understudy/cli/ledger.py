"""``understudy ledger``: what each dataset may spend, has spent, and on what."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.ledger import Dataset, Ledger
    from understudy.privacy.accountant import CrossRunRule
    from understudy.privacy.guarantee import Budget
    from understudy.privacy.unit import UnitKind


def _location_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--ledger",
        "location",
        metavar="LOCATION",
        help="A file, or postgresql://USER:PASSWORD@HOST/DATABASE. "
        "[default: UNDERSTUDY_LEDGER, else a file in your state folder]",
    )(command)


@click.group("ledger")
def ledger() -> None:
    """What each dataset may spend, has spent, and on what."""


@ledger.command("open")
@click.argument("name")
@click.option("--epsilon", required=True, metavar="E", help="The cap: what all runs together may spend.")
@click.option("--delta", required=True, metavar="D", help="The cap's delta; 0 for pure differential privacy.")
@click.option(
    "--unit",
    "kind",
    type=click.Choice(["record", "owner"]),
    help="What is protected.  [default: record]",
)
@click.option("--owner-column", metavar="NAME", help="Whose values tell owners apart; needed with --unit owner.")
@click.option(
    "--max-records",
    type=int,
    metavar="K",
    help="How many records of one owner runs are expected to use at most.  [default: 1]",
)
@click.option(
    "--rule",
    type=click.Choice(["basic", "rdp"]),
    help="How runs compose: stated costs add up, or all events in one Renyi accountant.  [default: basic]",
)
@click.option("--raise", "raises", is_flag=True, help="Raise the cap of a dataset that is open.")
@_location_option
def open_command(
    name: str,
    *,
    epsilon: str,
    delta: str,
    kind: UnitKind | None,
    owner_column: str | None,
    max_records: int | None,
    rule: CrossRunRule | None,
    raises: bool,
    location: str | None,
) -> None:
    """Open the dataset NAME with a cap on what all of its runs together may spend."""
    from understudy.privacy.guarantee import Budget
    from understudy.privacy.unit import Unit

    cap = Budget(epsilon, delta)
    if raises and (kind, owner_column, max_records, rule) != (None, None, None, None):
        raise ConfigError(
            "--raise changes the cap alone.", "Leave out --unit, --owner-column, --max-records and --rule."
        )
    if (kind == "owner") != (owner_column is not None):
        raise ConfigError(
            "A dataset of owners, and no other, has a column that tells them apart.",
            "Give --unit owner and --owner-column NAME together.",
        )
    unit = Unit(kind or "record", 1 if max_records is None else max_records, owner_column)
    with _ledger(location) as book:
        if raises:
            dataset = book.raise_cap(name, cap=cap)
        else:
            dataset = book.open_dataset(name, cap=cap, unit=unit, rule=rule or "basic")
        click.echo(f"Dataset {name} is open in {book.location}: cap {dataset.cap}.")


@ledger.command()
@click.argument("name", required=False)
@_location_option
def show(name: str | None, *, location: str | None) -> None:
    """Caps, and what is spent and left of them, for one dataset or all."""
    with _ledger(location) as book:
        names = [name] if name else [dataset.name for dataset in book.datasets()]
        rows = [_summary(book, name) for name in names]
    _table(("dataset", "unit", "rule", "cap", "spent", "remaining"), rows)


@ledger.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Everything, with every charge, as JSON.")
@_location_option
def history(name: str, *, as_json: bool, location: str | None) -> None:
    """The runs that the dataset NAME was charged for, and the raises of its cap."""
    with _ledger(location) as book:
        entries = book.history(name)
    if as_json:
        click.echo(json.dumps([entry.to_json() for entry in entries], indent=2))
        return
    rows = [
        (
            f"{entry.at:%Y-%m-%d %H:%M:%S}",
            entry.method or "cap raised",
            _show(entry.cost or entry.cap, ROUND_CEILING),
            ", ".join(charge["name"] for charge in entry.charges),
            entry.run_id or "",
            entry.note,
        )
        for entry in entries
    ]
    _table(("at (UTC)", "method", "epsilon, delta", "releases", "run", "note"), rows)


def _ledger(location: str | None) -> Ledger:
    from understudy.ledger import Ledger

    return Ledger(location)


def _summary(book: Ledger, name: str) -> tuple[str, ...]:
    spent, remaining = book.spent(name), book.remaining(name)
    dataset = book.dataset(name)
    assert dataset is not None  # or `spent` would have raised
    return (
        name,
        _unit(dataset),
        dataset.rule,
        _show(dataset.cap, ROUND_FLOOR),
        _show(spent, ROUND_CEILING),
        "0" if remaining is None else _show(remaining, ROUND_FLOOR),
    )


def _unit(dataset: Dataset) -> str:
    unit = dataset.unit
    return unit.kind if unit.kind == "record" else f"{unit.name}, at most {unit.max_records} records"


def _show(budget: Budget | None, rounding: str) -> str:
    """epsilon and delta in six digits, rounded to the side that promises nothing too much."""
    if budget is None:
        return "-"
    return f"{_digits(budget.epsilon, rounding)}, {_digits(budget.delta, rounding)}"


def _digits(number: Fraction, rounding: str) -> str:
    context = Context(prec=6, rounding=rounding)
    return f"{float(context.divide(Decimal(number.numerator), Decimal(number.denominator))):g}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, else lines with tabs between the fields."""
    if not _on_terminal():
        for row in (heads, *rows):
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _on_terminal() -> bool:
    return sys.stdout.isatty()
