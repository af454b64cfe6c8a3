"""Provide the verbs of ``understudy ledger`` in Python: ``us.ledger.show()``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy.base.display import aligned
from understudy.base.errors import ConfigError
from understudy.ledger.ledger import Ledger
from understudy.ledger.values import Dataset, Entry, both, unit_words, what_remains
from understudy.privacy.accountant import CrossRunRule
from understudy.privacy.exact import Number
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.unit import Unit, recognised_by

Location = str | Path | None
"""A file or ``postgresql://...``. None: the default of :class:`Ledger`."""
HEADS = ("dataset", "unit", "rule", "cap", "spent", "remaining")


@dataclass(frozen=True)
class Account:
    """A dataset with its spent and remaining budget (``spent`` is None if nothing is spent; ``remaining`` is None if
    nothing is left, or if it depends on the next run)."""

    dataset: Dataset
    spent: Budget | SecretBudget | None
    remaining: Budget | SecretBudget | None

    @classmethod
    def of(cls, book: Ledger, name: str) -> Account:
        spent, remaining = book.spent(name), book.remaining(name)
        dataset = book.dataset(name)
        assert dataset is not None  # or `spent` would have raised
        return cls(dataset, spent, remaining)

    @property
    def row(self) -> tuple[str, ...]:
        """Return the cells of a line for people, under :data:`HEADS`."""
        dataset = self.dataset
        cap, spent, remains = both(dataset.cap, left=True), both(self.spent), what_remains(dataset, self.remaining)
        return dataset.name, unit_words(dataset), dataset.rule, cap, spent, remains


class Accounts(list[Account]):
    """A list of accounts, shown as a table."""

    def __repr__(self) -> str:
        return aligned(HEADS, [account.row for account in self])


class Entries(list[Entry]):
    """The entries of one dataset, shown as a table."""

    @property
    def heads(self) -> tuple[str, ...]:
        secrets = any(isinstance(entry.cost or entry.cap, SecretBudget) for entry in self)
        return "at (UTC)", "method", "prior, posterior" if secrets else "epsilon, delta", "releases", "run", "note"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return the lines for people, under :attr:`heads`."""
        return [entry.cells for entry in self]

    def __repr__(self) -> str:
        return aligned(self.heads, self.rows)


def create(ledger: Location = None, *, strict: bool | None = None) -> None:
    """Create a ledger; if it exists, change only ``strict``.

    Args:
        strict: refuse runs on datasets that nobody opened.
    """
    Ledger.create(ledger, strict=strict).close()


def open(  # noqa: A001 - the verb's name
    name: str,
    cap: Budget | SecretBudget | None = None,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    secret_prior: Number | None = None,
    secret_posterior: Number | None = None,
    owner: str | None = None,
    max_records_per_owner: int = 5,
    secrets: Sequence[str] = (),
    secrets_file: str | None = None,
    secret_detectors: Sequence[str] = (),
    max_records_per_secret: int | None = None,
    rule: CrossRunRule | None = None,
    ledger: Location = None,
) -> Account:
    """Open the dataset ``name`` with a cap on the total spending of all its runs.

    Args:
        cap: the cap; or give ``epsilon`` and ``delta``, or ``secret_prior`` and ``secret_posterior`` instead.
        owner: the protected owner column, given as in the runs, like the other parameters of owners and secrets.
        rule: how runs compose: ``basic`` or ``rdp``.
    """
    cap = _cap(cap, epsilon, delta, secret_prior, secret_posterior)
    unit = Unit("owner", max_records_per_owner, owner) if owner else Unit("record")
    if isinstance(cap, SecretBudget):
        told = recognised_by(secrets, secrets_file, secret_detectors)
        if told is None or max_records_per_secret is None:
            raise ConfigError(
                "The secrets, or the most records that contain one of them, are not given.",
                "Give secrets, secrets_file or secret_detectors, and max_records_per_secret, as the runs will.",
            )
        unit = Unit("secret", max_records_per_secret, recognised_by=told)
    with Ledger(ledger) as book:
        book.open_dataset(name, cap=cap, unit=unit, rule=rule)
        return Account.of(book, name)


def _cap(cap: Budget | SecretBudget | None, *numbers: Number | None) -> Budget | SecretBudget:
    """Return the cap, or the cap of these numbers: epsilon and delta, or a prior and a posterior."""
    epsilon, delta, prior, posterior = numbers
    if cap is not None and any(number is not None for number in numbers):
        raise ConfigError("The cap is given twice.", "Give a Budget, or epsilon and delta.")
    if prior is not None or posterior is not None:
        return cap or SecretBudget(prior, posterior)
    return cap or Budget(epsilon, delta)  # type: ignore[arg-type]  # None is an error with its own message


def raise_cap(
    name: str,
    cap: Budget | SecretBudget | None = None,
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    secret_prior: Number | None = None,
    secret_posterior: Number | None = None,
    ledger: Location = None,
) -> Account:
    """Raise the cap of an open dataset, as ``understudy ledger open --raise`` does.

    Args:
        cap: the new cap, given as for :func:`open`.
    """
    cap = _cap(cap, epsilon, delta, secret_prior, secret_posterior)
    with Ledger(ledger) as book:
        book.raise_cap(name, cap=cap)
        return Account.of(book, name)


def show(name: str | None = None, *, ledger: Location = None) -> Accounts:
    """Return the caps of one dataset or all, and how much of each is spent and left."""
    with Ledger(ledger) as book:
        names = [name] if name else [dataset.name for dataset in book.datasets()]
        return Accounts(Account.of(book, each) for each in names)


def history(name: str, *, ledger: Location = None) -> Entries:
    """Return the runs that a dataset was charged for, and the raises of its cap."""
    with Ledger(ledger) as book:
        return Entries(book.history(name))
