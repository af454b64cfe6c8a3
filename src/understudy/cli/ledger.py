"""``understudy ledger``: what each dataset may spend, has spent, and on what."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from understudy.cli.printable import printable
from understudy.cli.table import show_table
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from understudy.ledger import Dataset, Ledger
    from understudy.privacy.accountant import CrossRunRule
    from understudy.privacy.guarantee import Budget
    from understudy.privacy.secrets.budget import SecretBudget
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
@click.option("--epsilon", metavar="E", help="The cap: what all runs together may spend.")
@click.option("--delta", metavar="D", help="The cap's delta; 0 for pure differential privacy.")
@click.option("--secret-prior", metavar="P", help="The cap for secrets: the chance to guess one before any run, ...")
@click.option("--secret-posterior", metavar="R", help="... and the highest that all runs together may raise it to.")
@click.option(
    "--unit",
    "kind",
    type=click.Choice(["record", "owner", "secret"]),
    help="What is protected.  [default: record]",
)
@click.option("--owner-column", metavar="NAME", help="Whose values tell owners apart; needed with --unit owner.")
@click.option("--secrets", metavar="COLUMNS", help="Columns that list secrets, as the runs will name them.")
@click.option("--secrets-file", metavar="FILE", help="The file of secrets, as the runs will name it.")
@click.option("--secret-detectors", metavar="NAMES", help="The detectors, as the runs will name them.")
@click.option(
    "--max-records",
    type=int,
    metavar="K",
    help="How many records of one owner runs are expected to use at most (default: 1), or how many hold one secret.",
)
@click.option(
    "--rule",
    type=click.Choice(["basic", "rdp"]),
    help="How runs compose: stated costs add up, or all events in one Renyi accountant.  "
    "[default: basic; rdp for secrets]",
)
@click.option("--raise", "raises", is_flag=True, help="Raise the cap of a dataset that is open.")
@_location_option
def open_command(
    name: str,
    *,
    epsilon: str | None,
    delta: str | None,
    secret_prior: str | None,
    secret_posterior: str | None,
    kind: UnitKind | None,
    owner_column: str | None,
    secrets: str | None,
    secrets_file: str | None,
    secret_detectors: str | None,
    max_records: int | None,
    rule: CrossRunRule | None,
    raises: bool,
    location: str | None,
) -> None:
    """Open the dataset NAME with a cap on what all of its runs together may spend."""
    from understudy.privacy.unit import Unit, recognised_by

    cap = _cap(epsilon, delta, secret_prior, secret_posterior)
    if raises and (kind, owner_column, max_records, rule) != (None, None, None, None):
        raise ConfigError(
            "--raise changes the cap alone.", "Leave out --unit, --owner-column, --max-records and --rule."
        )
    if (kind == "owner") != (owner_column is not None):
        raise ConfigError(
            "A dataset of owners, and no other, has a column that tells them apart.",
            "Give --unit owner and --owner-column NAME together.",
        )
    if kind == "secret" and max_records is None:
        raise ConfigError(
            "How many records may hold one secret is not declared.", "Give --max-records M with --unit secret."
        )
    if secret_detectors is not None:
        from understudy.corpus.secrets import make_detectors

        make_detectors(_listed(secret_detectors))
    told = recognised_by(_listed(secrets), secrets_file, _listed(secret_detectors))
    if (kind == "secret") != (told is not None) and not raises:
        raise ConfigError(
            "A dataset of secrets, and no other, says what tells them.",
            "Give --unit secret with --secrets, --secrets-file or --secret-detectors, as the runs will.",
        )
    unit = Unit(kind or "record", 1 if max_records is None else max_records, owner_column, told)
    with _ledger(location) as book:
        if raises:
            dataset = book.raise_cap(name, cap=cap)
        else:
            dataset = book.open_dataset(name, cap=cap, unit=unit, rule=rule)
        click.echo(f"Dataset {name} is open in {book.location}: cap {dataset.cap}.")


def _listed(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


@ledger.command()
@click.option(
    "--strict/--no-strict",
    default=None,
    help="Refuse runs on datasets that nobody opened.  [default: as it is; a new one is strict in PostgreSQL]",
)
@_location_option
def create(*, strict: bool | None, location: str | None) -> None:
    """Begin a ledger; where there is one, change nothing but --strict."""
    from understudy.ledger import Ledger

    with Ledger.create(location, strict=strict) as book:
        click.echo(_title(book))


@ledger.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="The same in full, as JSON.")
@_location_option
def show(name: str | None, *, as_json: bool, location: str | None) -> None:
    """Caps, and what is spent and left of them, for one dataset or all."""
    with _ledger(location) as book:
        names = [name] if name else [dataset.name for dataset in book.datasets()]
        states = [_state(book, name) for name in names]
        title, changes = _title(book), book.strict_changes
        facts = {"ledger": book.id, "location": book.location, "strict": book.strict}
    if as_json:
        noted = [{"at": at.isoformat(), "strict": strict} for at, strict in changes]
        made = {**facts, "strict_changes": noted, "datasets": [_state_json(*state) for state in states]}
        click.echo(json.dumps(made, indent=2))
        return
    click.echo(title)
    show_table(("dataset", "unit", "rule", "cap", "spent", "remaining"), [_summary(*state) for state in states])


@ledger.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Everything, with every charge, as JSON.")
@_location_option
def history(name: str, *, as_json: bool, location: str | None) -> None:
    """The runs that the dataset NAME was charged for, and the raises of its cap."""
    with _ledger(location) as book:
        entries = book.history(name)
        dataset = book.dataset(name)
    assert dataset is not None  # or `history` would have raised
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
    numbers = "prior, posterior" if dataset.unit.kind == "secret" else "epsilon, delta"
    show_table(("at (UTC)", "method", numbers, "releases", "run", "note"), rows)


def _ledger(location: str | None) -> Ledger:
    from understudy.ledger import Ledger

    return Ledger(location)


def _title(book: Ledger) -> str:
    strict = "; strict: runs open no dataset" if book.strict else ""
    return printable(f"Ledger {book.id} at {book.location}{strict}.")


def _cap(epsilon: str | None, delta: str | None, prior: str | None, posterior: str | None) -> Budget | SecretBudget:
    from understudy.privacy.guarantee import Budget
    from understudy.privacy.secrets.budget import SecretBudget

    if (epsilon, delta, prior, posterior) == (None, None, None, None):
        raise ConfigError(
            "There is no cap.", "Give --epsilon and --delta, or for secrets --secret-prior and --secret-posterior."
        )
    if prior is None and posterior is None:
        return Budget(epsilon, delta)  # type: ignore[arg-type]  # None is an error with its own message
    if epsilon is not None or delta is not None:
        raise ConfigError(
            "A cap is an epsilon and a delta, or a prior and a posterior for secrets.",
            "Give --epsilon and --delta, or --secret-prior and --secret-posterior.",
        )
    return SecretBudget(prior, posterior)


_State = tuple["Dataset", "Budget | SecretBudget | None", "Budget | SecretBudget | None"]
"""A dataset, what is spent and what remains."""


def _state(book: Ledger, name: str) -> _State:
    spent, remaining = book.spent(name), book.remaining(name)
    dataset = book.dataset(name)
    assert dataset is not None  # or `spent` would have raised
    return dataset, spent, remaining


def _state_json(dataset: Dataset, spent: Budget | SecretBudget | None, remaining: Budget | SecretBudget | None) -> Any:
    return {
        **dataset.to_json(),
        "spent": spent and spent.to_json(),
        "remaining": remaining and remaining.to_json(),
    }


def _summary(
    dataset: Dataset, spent: Budget | SecretBudget | None, remaining: Budget | SecretBudget | None
) -> tuple[str, ...]:
    nothing = "depends on the run" if dataset.unit.kind == "secret" else "0"  # posteriors do not subtract
    return (
        dataset.name,
        _unit(dataset),
        dataset.rule,
        _show(dataset.cap, ROUND_FLOOR),
        _show(spent, ROUND_CEILING),
        nothing if remaining is None else _show(remaining, ROUND_FLOOR),
    )


def _unit(dataset: Dataset) -> str:
    unit = dataset.unit
    return unit.kind if unit.kind == "record" else f"{unit.name}, at most {unit.max_records} records"


def _show(budget: Budget | SecretBudget | None, rounding: str) -> str:
    """The two numbers in six digits, rounded to the side that promises nothing too much (the prior to the other)."""
    from understudy.privacy.guarantee import Budget

    if budget is None:
        return "-"
    if isinstance(budget, Budget):
        return f"{_digits(budget.epsilon, rounding)}, {_digits(budget.delta, rounding)}"
    other = ROUND_FLOOR if rounding == ROUND_CEILING else ROUND_CEILING
    return f"{_digits(budget.prior, other)}, {_digits(budget.posterior, rounding)}"


def _digits(number: Fraction, rounding: str) -> str:
    context = Context(prec=6, rounding=rounding)
    return f"{float(context.divide(Decimal(number.numerator), Decimal(number.denominator))):g}"
