"""The verbs of ``understudy ledger``, for Python: ``us.ledger.show()``."""

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
"""A file or ``postgresql://...``. None: as :class:`Ledger` finds it."""
HEADS = ("dataset", "unit", "rule", "cap", "spent", "remaining")


@dataclass(frozen=True)
class Account:
    """A dataset, what is spent of its cap (None: nothing), and what remains (None: nothing, or it depends on a run)."""

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
        """For people, under :data:`HEADS`."""
        dataset = self.dataset
        cap, spent, remains = both(dataset.cap, left=True), both(self.spent), what_remains(dataset, self.remaining)
        return dataset.name, unit_words(dataset), dataset.rule, cap, spent, remains


class Accounts(list[Account]):
    """Several of them; as a table where they are shown."""

    def __repr__(self) -> str:
        return aligned(HEADS, [account.row for account in self])


class Entries(list[Entry]):
    """What one was charged for; as a table where they are shown."""

    @property
    def heads(self) -> tuple[str, ...]:
        secrets = any(isinstance(entry.cost or entry.cap, SecretBudget) for entry in self)
        return "at (UTC)", "method", "prior, posterior" if secrets else "epsilon, delta", "releases", "run", "note"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """For people, under :attr:`heads`."""
        return [entry.cells for entry in self]

    def __repr__(self) -> str:
        return aligned(self.heads, self.rows)


def create(ledger: Location = None, *, strict: bool | None = None) -> None:
    """Begin a ledger; where there is one, change nothing but ``strict``.

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
    """Open the dataset ``name`` with a cap on what all of its runs together may spend.

    Args:
        cap: the cap; or in its place ``epsilon`` and ``delta``, or ``secret_prior`` and ``secret_posterior``.
        owner: what is protected, described as in the runs; so are the owner's and the secrets' other parameters.
        rule: how runs compose: ``basic`` or ``rdp``.
    """
    cap = _cap(cap, epsilon, delta, secret_prior, secret_posterior)
    unit = Unit("owner", max_records_per_owner, owner) if owner else Unit("record")
    if isinstance(cap, SecretBudget):
        told = recognised_by(secrets, secrets_file, secret_detectors)
        if told is None or max_records_per_secret is None:
            raise ConfigError(
                "The secrets, or how many records hold one at most, are not described.",
                "Give secrets, secrets_file or secret_detectors, and max_records_per_secret, as the runs will.",
            )
        unit = Unit("secret", max_records_per_secret, recognised_by=told)
    with Ledger(ledger) as book:
        book.open_dataset(name, cap=cap, unit=unit, rule=rule)
        return Account.of(book, name)


def _cap(cap: Budget | SecretBudget | None, *numbers: Number | None) -> Budget | SecretBudget:
    """The cap, or that of these numbers: epsilon and delta, or a prior and a posterior."""
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
    """Raise the cap of a dataset that is open, as ``understudy ledger open --raise``.

    Args:
        cap: the new one, given as for :func:`open`.
    """
    cap = _cap(cap, epsilon, delta, secret_prior, secret_posterior)
    with Ledger(ledger) as book:
        book.raise_cap(name, cap=cap)
        return Account.of(book, name)


def show(name: str | None = None, *, ledger: Location = None) -> Accounts:
    """Caps, and what is spent and left of them, for one dataset or all."""
    with Ledger(ledger) as book:
        names = [name] if name else [dataset.name for dataset in book.datasets()]
        return Accounts(Account.of(book, each) for each in names)


def history(name: str, *, ledger: Location = None) -> Entries:
    """The runs that a dataset was charged for, and the raises of its cap."""
    with Ledger(ledger) as book:
        return Entries(book.history(name))
